"""Faults that the tests must notice: each changes one place of the source, and its guards must fail.

python tests/mutants.py            # all of them, one after the other
python tests/mutants.py NAME ...   # some of them; --list shows the names

A fault is made in a temporary copy of the package, so that nothing here is touched. `test_mutants.py` runs the same
under pytest.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "pessimism"
ALGORITHM = ("agents/test_algorithm1.py::test_update_is_algorithm_1[eager-residual]",)
PIXELS = ("agents/test_algorithm1_pixels.py::test_update_from_images_is_the_one_by_hand[gpl-drq-anneal]",)
PIXEL_SAC = ("agents/test_algorithm1_pixels.py::test_update_from_images_is_the_one_by_hand[sac-pixels]",)
WIRING = "config/test_wiring.py::test_setting_reaches_its_object"
EAGER_RETURN = """  # which is updated once after these updates
            polyak_(self.target_critic, self.critic, self.tau)
        return Learned(step, batch.at(-1), bonus[-1], {})"""
ROWS = "replay/test_prior_rows.py"
DROPOUT = ("native/test_native.py::test_updates_agree_with_torch[(2, 7, 23, 64)-dropout-vectors]",)
ORDER = ("native/test_native.py::test_updates_in_one_call_are_those_one_by_one",)
MASKS = ("native/test_native.py::test_a_gradient_is_that_of_the_masks_its_values_had[3]",)
TESTS_FAILED = 1  # pytest's exit code; others say that nothing was tested


class Mutant(NamedTuple):
    """One fault: where, what stands there, what is put there instead, and the tests that must notice it."""

    file: str
    old: str
    new: str
    guards: tuple[str, ...]

    def check(self) -> None:
        """Fail unless the text to replace is there exactly once."""
        found = (PACKAGE / self.file).read_text().count(self.old)
        assert found == 1, f"{self.file} has {found} times the text {self.old!r}: rewrite this mutant"

    def make(self, package: Path) -> None:
        """Make the fault in a copy of the package."""
        self.check()
        path = package / self.file
        path.write_text(path.read_text().replace(self.old, self.new))


MUTANTS = {
    "entropy bonus with the other sign": Mutant(
        "agents/sac.py",
        "action, -self.entropy_weight * next_log_prob",
        "action, self.entropy_weight * next_log_prob",
        ALGORITHM,
    ),
    "entropy bonus with the other sign, images": Mutant(
        "agents/pixel_learner.py", "-log_alpha.exp() * next_log_prob", "log_alpha.exp() * next_log_prob", PIXEL_SAC
    ),
    "advance not called": Mutant("agents/sac.py", "self.pessimism.advance(step)", "pass", ALGORITHM),
    "policy and beta on the first batch": Mutant(
        "agents/critic_learner.py",
        EAGER_RETURN,
        EAGER_RETURN.replace("batch.at(-1)", "batch.at(0)"),
        ALGORITHM,
    ),
    "dual target with the first bonus": Mutant(
        "agents/critic_learner.py",
        EAGER_RETURN,
        EAGER_RETURN.replace("bonus[-1]", "bonus[0]"),
        ALGORITHM,
    ),
    "no spectral projection": Mutant("agents/critic_learner.py", "self.critic.normalise_()", "pass", ALGORITHM),
    "policy's gradient not clipped": Mutant(
        "agents/sac.py", "minimise(loss, self.actor_clip)", "minimise(loss)", ALGORITHM
    ),
    "value() is the minimum": Mutant("agents/sac.py", "action)).mean(dim=0)", "action)).amin(dim=0)", ALGORITHM),
    "logged TD error with the other sign": Mutant(
        "strategies/base.py",
        '"train/td_error": td_error',
        '"train/td_error": -td_error',
        ALGORITHM,
    ),
    "policy learns from the target critics": Mutant(
        "agents/critic_learner.py",
        "return self.critic.judged(obs, action)",
        "return self.target_critic.judged(obs, action)",
        ALGORITHM,
    ),
    "policy learns from the target critics, images": Mutant(
        "agents/sac.py",
        "return self.critic.judged(obs, action)",
        "return self.target_critic.judged(obs, action)",
        PIXELS,
    ),
    "policy descends the value": Mutant(
        "agents/sac.py",
        "loss = (self.entropy_weight * log_prob - value)",
        "loss = (self.entropy_weight * log_prob + value)",
        ("agents/test_learning.py::test_agents_on_states_learn_the_best_policy[redq]",),
    ),
    "target critics are not averaged": Mutant(
        "agents/critic_learner.py", '        if self.average_with == "critic":', "        if False:", ALGORITHM
    ),
    "targets from the online critics": Mutant(
        "agents/critic_learner.py",
        "self.target_critic.following(pairs)",
        "self.critic.following(pairs)",
        ALGORITHM,
    ),
    "next actions in C++ of the first policy": Mutant(
        "agents/critic_learner.py",
        "PolicyNetwork(actor.net)",
        "PolicyNetwork(__import__('copy').deepcopy(actor.net))",
        ("native/test_network.py::test_next_actions_are_those_of_torch[gaussian]",),
    ),
    "policy's network in C++ without its biases": Mutant(
        "native/network.py",
        "layer.weight.t()), layer.bias]",
        "layer.weight.t()), torch.zeros_like(layer.bias)]",
        ("native/test_network.py::test_next_actions_are_those_of_torch[gaussian]",),
    ),
    "C++: LayerNorm's gradient without its mean": Mutant(
        "native/norm.hpp", "load(row + j) - mean - normal * slope", "load(row + j) - normal * slope", DROPOUT
    ),
    "C++: no dropout in the backward pass": Mutant(
        "native/layers.hpp", "put(j, by * factors(j))", "put(j, by)", DROPOUT
    ),
    "C++: dropout's masks of the call before": Mutant(
        "native/dropout.hpp", "hashed(hashed(uint32_t(*calls))", "hashed(hashed(uint32_t(*calls) - 1)", DROPOUT
    ),
    "C++: policy's gradient under other masks than its values": Mutant(
        "native/critic.py", "(saved, context.masks, *slopes)", "(saved, Masks(), *slopes)", MASKS
    ),
    "C++: estimates in descending order": Mutant(
        "native/targets.hpp", "swap = second < first", "swap = first < second", ORDER
    ),
    "C++: targets of the first update for all": Mutant(
        "native/targets.hpp", "bonus = all.bonuses + update * batch", "bonus = all.bonuses", ORDER
    ),
    "C++: the strategy is not drawn again": Mutant(
        "agents/critic_learner.py",
        "self.pessimism.redraw()\n            order =",
        "order =",
        (
            "agents/test_algorithm1.py::test_fast_implementations_redraw_the_strategy_before_each_update[native-redq]",
        ),
    ),
    "targets in C++ with the other sign of beta": Mutant(
        "strategies/penalty.py",
        "1 / count - beta * weight",
        "1 / count + beta * weight",
        ("strategies/test_order.py::test_weighted_sums_are_target_values[FixedPenalty-3]",),
    ),
    "lowest critic by its largest atom": Mutant(
        "values.py",
        "mean = expectation(values)  # [N, B, 1]\n    index",
        "mean = values.amax(dim=-1, keepdim=True)\n    index",
        ("test_values.py::test_lowest_keeps_the_atoms_of_one_critic_whole",),
    ),
    "checkpoints without checksum": Mutant(
        "training/directory.py",
        'if fingerprint(path) != {"bytes": expected["bytes"], "crc32": expected["crc32"]}:',
        'if fingerprint(path)["bytes"] != expected["bytes"]:',
        ("training/test_checkpoint.py::test_a_torn_checkpoint_is_reported_and_the_one_before_is_used",),
    ),
    "evaluation with sampled actions": Mutant(
        "training/evaluate.py",
        "(agent.mode(obs), no_log_prob)",
        "agent.sample(obs, torch.Generator())",
        ("training/test_loop.py::test_evaluation_takes_deterministic_actions",),
    ),
    "random actions from [0, 1]": Mutant(
        "training/loop.py",
        "return 2 * uniform - 1",
        "return uniform",
        ("training/test_loop.py::test_random_actions_are_uniform_over_all_actions",),
    ),
    "bias/dual_td never cleared": Mutant(
        "training/loop.py",
        "self.td_errors.take()",
        "self.td_errors.means()",
        ("training/test_loop.py::test_the_mean_td_error_beside_the_bias_is_that_since_the_last_measurement",),
    ),
    "dynamics model: noise scaled by the variance": Mutant(
        "models/dynamics.py",
        "(0.5 * log_var).exp() * noise",
        "log_var.exp() * noise",
        ("models/test_mbpo.py::test_imagined_outcomes_have_the_predicted_standard_deviation",),
    ),
    "dynamics model: likelihood with the standard deviation": Mutant(
        "models/dynamics.py",
        "* (-log_var).exp() + log_var",
        "* (-0.5 * log_var).exp() + log_var",
        ("models/test_mbpo.py::test_loss_on_literals",),
    ),
    "dynamics model: changes have the other sign": Mutant(
        "models/dynamics.py",
        "return obs + outcome[:, 1:]",
        "return obs - outcome[:, 1:]",
        ("agents/test_learning.py::test_mbpo_learns_the_best_policy",),
    ),
    "one bootstrap for all model members": Mutant(
        "models/fitting.py",
        "torch.randint(len(train), (model.members, len(train)), generator=generator)",
        "torch.randint(len(train), (1, len(train)), generator=generator).expand(model.members, -1)",
        ("models/test_mbpo.py::test_each_member_learns_from_a_bootstrap_sample_of_its_own",),
    ),
    "noise schedule never advanced": Mutant("agents/sac.py", "self.actor.advance(step)", "pass", PIXELS),
    "one window for observation and next observation": Mutant(
        "agents/pixel_learner.py", "views.next_place", "views.place", PIXELS
    ),
    "n-step returns without their discount": Mutant(
        "replay/frames.py", "self.powers[steps] * (1", "self.powers[1] * (1", PIXELS
    ),
    "n-step returns of states without their discount": Mutant(
        "replay/transitions.py",
        "self.discount ** len(self.window)",
        "self.discount",
        ("replay/test_replay.py::test_windows_of_three_steps_on_literals",),
    ),
    "lr of the critics not wired": Mutant(
        "training/build.py", "lr=config.lr, average_with", "average_with", (f"{WIRING}[lr-states]",)
    ),
    "lr of the policy not wired": Mutant(
        "training/build.py", "        lr=config.lr,\n", "", (f"{WIRING}[lr-states]",)
    ),
    "n_step of states not wired": Mutant(
        "training/build.py",
        "streams.replay,\n        n_step=config.n_step,",
        "streams.replay,",
        (f"{WIRING}[n_step-states]",),
    ),
    "n_step of images not wired": Mutant(
        "training/build.py",
        "n_step=config.n_step,\n            generator",
        "n_step=1,\n            generator",
        (f"{WIRING}[n_step-images]",),
    ),
    "discount of states not wired": Mutant(
        "training/build.py", "\n        config.discount,\n", "\n        0.99,\n", (f"{WIRING}[discount-states]",)
    ),
    "discount of images not wired": Mutant(
        "training/build.py",
        "action_size=action_size,\n            discount=config.discount",
        "action_size=action_size,\n            discount=0.99",
        (f"{WIRING}[discount-images]",),
    ),
    "bias meter: tail and discount swapped": Mutant(
        "training/run.py",
        "bias.limit, tail=bias.tail, discount=discount",
        "bias.limit, tail=discount, discount=bias.tail",
        (f"{WIRING}[bias.tail-states]",),
    ),
    "gain of the critics' last layer": Mutant(
        "nn/critic.py",
        "0.01 * math.sqrt(2)",
        "math.sqrt(2)",
        ("nn/test_nn.py::test_critics_start_with_gain_sqrt_2_and_a_last_layer_near_zero",),
    ),
    "gain of the policy's last layer": Mutant(
        "nn/actor.py",
        "(1.0, 1.0, 0.01)",
        "(1.0, 1.0, 1.0)",
        ("nn/test_nn.py::test_policies_start_with_gain_sqrt_2_and_a_last_layer_near_zero",),
    ),
    "policy reads all of beta": Mutant(
        "strategies/penalty.py",
        "self.actor_share * self.beta",
        "self.beta",
        ("strategies/test_strategies.py::test_the_policy_reads_a_share_of_beta_and_targets_all_of_it",),
    ),
    "prior data take the run's part of a batch": Mutant(
        "replay/prior.py",
        "rest = batch_size - round(self.share * batch_size)",
        "rest = round(self.share * batch_size)",
        (f"{ROWS}::test_each_batch_has_its_share_of_prior_data",),
    ),
    "prior data not in the place of missing transitions": Mutant(
        "replay/prior.py",
        "own = min(rest, drawable(self._valid(), self.held_out_every))",
        "own = rest",
        (f"{ROWS}::test_prior_data_fill_the_place_of_transitions_that_are_not_there_yet",),
    ),
    "prior data: bootstrap after termination": Mutant(
        "replay/prior.py",
        "np.where(self.terminated[last], 0.0, discount**length)",
        "discount**length",
        (f"{ROWS}::test_windows_are_those_that_a_run_stores",),
    ),
    "prior data: windows across episodes": Mutant(
        "replay/prior.py",
        "inside = inside & ~self.ended[now]",
        "pass",
        (f"{ROWS}::test_windows_are_those_that_a_run_stores",),
    ),
    "prior data: actions beyond their bounds": Mutant(
        "training/prior.py",
        "np.abs(unit) > 1 + ROUNDING",
        "np.abs(unit) > 9",
        ("training/test_prior.py::test_wrong_data_are_one_line[bounds]",),
    ),
    "prior data: others than the run began with": Mutant(
        "training/run.py",
        "if config.prior_checksum not in (None, checksum):",
        "if False:",
        ("training/test_prior.py::test_a_run_goes_on_with_the_same_data_only",),
    ),
    "prior data: ends of a run's episodes": Mutant(
        "training/prior.py",
        "(obs[1:] != next_obs[:-1]).any(axis=1), True)",
        "(obs[1:] != obs[1:]).any(axis=1), True)",
        (
            "training/test_prior.py::test_without_truncations_an_episode_ends_where_the_states_do_not_follow_each_other",
        ),
    ),
}


def failures(mutant: Mutant, guards: Sequence[str] = ()) -> tuple[bool, str]:
    """Make the fault, run its guards, and say whether they noticed it, with pytest's last lines."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "pessimism"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        mutant.make(package)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
        paths = [str(TESTS / guard) for guard in guards or mutant.guards]
        environment = os.environ | {"PYTHONPATH": folder}
        done = subprocess.run([*command, *paths], env=environment, capture_output=True, text=True, check=False)
    tail = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
    assert done.returncode in (0, TESTS_FAILED), f"the guards could not be run:\n{tail}"
    return done.returncode == TESTS_FAILED, tail


def main() -> int:
    """Run the mutants asked for; return how many went unnoticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="faults to make; none: all of them")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--tests", nargs="+", default=(), help="tests to run instead of each fault's own guards")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(MUTANTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; see --list")
    unnoticed = 0
    for name in asked.names or MUTANTS:
        if asked.list:
            print(name)
            continue
        noticed, tail = failures(MUTANTS[name], asked.tests)
        unnoticed += not noticed
        print(f"{'noticed  ' if noticed else 'UNNOTICED'} {name}", flush=True)
        if noticed and asked.tests:
            print("    " + next((line for line in tail.splitlines() if line.startswith("FAILED")), ""), flush=True)
    return unnoticed


if __name__ == "__main__":
    sys.exit(main())
