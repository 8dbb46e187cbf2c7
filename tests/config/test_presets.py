"""Each preset trains, goes on exactly where it was cut, and combines with the others' parts."""

import json

import pytest
import torch
from safetensors.torch import load_file

from pessimism.cli import main
from pessimism.config.choices import CRITIC_FORMS, MEASURES
from pessimism.config.presets import PRESETS, STATE_PRESETS
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.config.strategies import STRATEGIES
from pessimism.errors import UserError
from pessimism.training.bias import look_back
from pessimism.training.build import build_agent, build_replay
from pessimism.training.run import assemble, run
from pessimism.types import Batch, Episode
from waiting import NoWaiting

TASK = "InvertedPendulum-v4"
SMALL = {
    "env": TASK,
    "env_kwargs": {"max_episode_steps": 15},
    "steps": 60,
    "random_steps": 20,
    "updates_per_step": 2,
    "batch_size": 16,
    "hidden": 8,
    "critic": {"hidden": 8},
    "compile": False,
    "threads": 1,
    "evaluation": {"every": 0},
    "bias": {"every": 0},
    "log": {"every": 5, "tensorboard": False},
    "checkpoint": {"every": 17},
}
SMALL_MODEL = {"model": {"hidden": 8, "rollouts": 40, "train_every": 9, "patience": 1, "schedule": (0, 2, 1, 3)}}
SMALL_MODEL["model"]["epoch_steps"] = 20


def small_config(name, **changes):
    values = merge(preset_values(name, TASK), SMALL)
    values = merge(values, SMALL_MODEL) if name == "mbpo" else values
    return validated(merge(values, changes))


@pytest.mark.parametrize("name", STATE_PRESETS)
def test_preset_trains(name):
    assembly = assemble(small_config(name))
    before = {key: tensor.clone() for key, tensor in assembly.agent.state_dict().items()}
    assembly.trainer.run()
    after = assembly.agent.state_dict()
    assert all(tensor.isfinite().all() for tensor in after.values())
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    policy = "actor.net.head.weight" if "xqc" in name else "actor.net.0.weight"
    for part in (policy, "critic.head.weight", "target_critic.head.weight", "log_alpha"):
        assert part in changed, part
    from_episodes = ("gpl-sac-top", "gpl-sac-calibrated", "gpl-rlpd")
    learns_beta = name.startswith("gpl") and name not in from_episodes  # by Adam
    assert ("pessimism.step" in changed) == learns_beta
    if learns_beta:
        assert "pessimism.beta" in changed
    if name == "gpl-sac-top":
        assert after["pessimism.bandit.episodes"] >= 3
        assert round(float(after["pessimism.beta"]), 6) in (0.0, round(2**0.5, 6))
    if name in ("sac", "sac-20", "mbpo"):
        assert float(after["pessimism.beta"]) == 0.5


@pytest.mark.parametrize("name", STATE_PRESETS)
def test_an_update_does_not_wait_for_the_device(name):
    assembly = assemble(small_config(name, steps=30))
    assembly.trainer.run()
    batch = assembly.trainer.replay.sample(2, 16)
    with NoWaiting(assembly.agent):
        assembly.agent.update(batch, 30)


NOISY = {"policy": "noisy", "alpha": 0.0, "noise": (1.0, 0.1, 50)}
OPTIONS = {
    "n-step": {"n_step": 3},
    "noisy": NOISY,
    "noisy-xavier": NOISY | {"initialisation": "xavier"},
    "averaged-with-policy": {"average_with": "policy"},
}


@pytest.mark.parametrize("name", [*STATE_PRESETS, *OPTIONS])
def test_a_run_cut_twice_equals_one_never_cut(name, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    preset, changes = ("gpl-sac", OPTIONS[name]) if name in OPTIONS else (name, {})
    run(small_config(preset, **changes), whole)
    for steps in (31, 44, 60):
        run(small_config(preset, steps=steps, **changes), cut)
    assert (cut / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    tensors = [load_file(path / "checkpoints/step_000000060/tensors.safetensors") for path in (whole, cut)]
    assert tensors[0].keys() == tensors[1].keys()
    for key, tensor in tensors[0].items():
        assert torch.equal(tensors[1][key], tensor), key


def test_a_noisy_policy_on_states_explores_with_noise_that_decays_and_has_no_entropy():
    assembly = assemble(small_config("gpl-sac", **NOISY))
    assembly.trainer.run()
    agent = assembly.agent
    assert (float(agent.alpha), agent.target_entropy) == (0.0, None)
    assert float(agent.actor.std) == pytest.approx(0.1)
    obs = torch.zeros(1, 4)
    actions = [agent.sample(obs, torch.Generator().manual_seed(seed))[0].item() for seed in range(200)]
    assert torch.tensor(actions).std().item() == pytest.approx(0.1, rel=0.2)


@pytest.mark.parametrize(
    ("compile", "hidden"),
    [(False, 8), *(pytest.param(True, hidden, marks=pytest.mark.slow) for hidden in (8, 32))],
    ids=["eager", "compiled", "native"],
)
def test_target_critics_that_follow_the_policy_move_once_for_all_critic_updates(compile, hidden):
    changes = {"average_with": "policy", "tau": 0.25, "compile": compile, "critic": {"hidden": hidden}}
    config = small_config("sac", target_entropy=-1.0, **changes)
    agent = build_agent(config, (3,), 1)
    before = agent.target_critic.head.weight.clone()
    shapes = ((3,), (1,), (1,), (1,), (3,))
    agent.update(Batch(*(torch.rand(5, 6, *shape) for shape in shapes)), 1)
    moved = before.lerp(agent.critic.head.weight, 0.25)
    torch.testing.assert_close(agent.target_critic.head.weight, moved)
    assert not torch.equal(agent.target_critic.head.weight, before)


def test_a_replay_of_states_has_the_window_and_the_file_of_its_settings(tmp_path):
    replay = build_replay(small_config("sac", n_step=3, replay_file=str(tmp_path / "rows")), (3,), 1)
    assert (replay.n_step, replay.file) == (3, tmp_path / "rows")


def test_metrics_of_a_preset_tell_its_story(tmp_path):
    run(small_config("gpl-sac-top"), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    played = [line["rollout/beta"] for line in lines if "rollout/beta" in line]
    assert played
    assert all(0.0 <= beta <= 2**0.5 + 1e-6 for beta in played)


def test_annealing_changes_the_actor_only_and_ends():
    agent = build_agent(small_config("gpl-sac-anneal", target_entropy=-1.0), (3,), 1)
    values, rule = torch.tensor([[[1.0]], [[2.0]]]), agent.pessimism
    gaps = []
    for step in (0, 25_000, 50_000, 90_000):
        rule.advance(step)
        assert rule.target_value(values).detach().item() == pytest.approx(1.0)
        gaps.append(rule.actor_value(values).item() - 1.0)
    assert gaps == pytest.approx([0.5, 0.25, 0.0, 0.0])


@pytest.mark.parametrize("square", ["transitions", "expectation"])
def test_squared_bias_descends_through_the_target(square):
    """Two transitions with W = (1, 3), gamma = 1, unpenalised biases (2, 1): B = (2 - b, 1 - 3b) at b = 0.5.

    Their gradients by b: mean of 2 B dB = (2 * 1.5 * -1 + 2 * -0.5 * -3) / 2 = 0; of the squared mean
    2 * 0.5 * -2 = -2.
    """
    config = small_config("gpl-sac-e2e", target_entropy=-1.0, pessimism={"square": square})
    rule = build_agent(config, (3,), 1).pessimism
    next_values = torch.tensor([[[1.5], [-0.5]], [[2.5], [2.5]]])  # means 2 and 1, distances 1 and 3
    target, values = rule.target_value(next_values), torch.zeros(2, 2, 1)
    (gradient,) = torch.autograd.grad(rule.penalty_loss(values, target), [rule.beta])
    assert gradient.item() == pytest.approx(0.0 if square == "transitions" else -2.0, abs=1e-6)


EVERY_STRATEGY = [
    {"name": name, "measure": measure} if measure else {"name": name}
    for name, entry in STRATEGIES.items()
    for measure in (MEASURES if "measure" in entry.model_fields else [None])
]


def looked_back(agent, generator):
    """A finished episode of seven steps, and what the critics predicted for it."""
    obs, action = torch.rand(8, 3, generator=generator), torch.rand(7, 1, generator=generator)
    numbers = torch.rand(2, 7, generator=generator, dtype=torch.float64)
    episode = Episode(obs[:7], action, numbers[0], numbers[1], obs[7], terminated=False)
    return episode, look_back(agent, episode, discount=0.9, tail=0.01, generator=generator)


@pytest.mark.parametrize("members", [2, 5])
@pytest.mark.parametrize("atoms", [1, 4])
@pytest.mark.parametrize("form", CRITIC_FORMS)
def test_strategies_measures_and_critics_are_orthogonal(form, atoms, members):
    """Every combination goes through one update that moves what it should."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((3,), (1,), (1,), (1,), (3,))
    batch = Batch(*(torch.rand(2, 6, *shape, generator=generator) for shape in shapes))
    for rule in [*EVERY_STRATEGY, {"name": "subset-minimum", "subset": 1.5}]:
        critic = {"form": form, "atoms": atoms, "members": members}
        agent = build_agent(small_config("gpl-sac", target_entropy=-1.0, critic=critic, pessimism=rule), (3,), 1)
        before = {key: tensor.clone() for key, tensor in agent.state_dict().items()}
        metrics = agent.update(batch, 1) | agent.validate(batch.at(0))
        metrics |= agent.episode_finished(*looked_back(agent, generator))
        after = agent.state_dict()
        assert all(value.isfinite().all() for value in (*metrics.values(), *after.values())), rule
        for part in ("actor.net.4.weight", "critic.head.weight", "target_critic.head.weight"):
            assert not torch.equal(before[part], after[part]), (rule, part)
        if rule["name"] in ("learned", "squared-bias", "validation"):
            assert before["pessimism.beta"] != after["pessimism.beta"], rule
        if rule["name"] == "fixed":
            assert before["pessimism.beta"] == after["pessimism.beta"], rule


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("gpl-sac-top", "gpl-sac-e2e", "gpl-qr-sac", "gpl-qr-sac-w2"),
        *("droq", "gpl-droq", "gpl-dropout", "rlpd", "gpl-rlpd"),
    ],
)
def test_compiled_update_gives_the_same_numbers(name):
    runs = [assemble(small_config(name, compile=compile, steps=40)) for compile in (False, True)]
    for one in runs:
        one.trainer.run()
    eager, compiled = (one.agent.state_dict() for one in runs)
    for key, tensor in eager.items():
        torch.testing.assert_close(compiled[key], tensor, atol=1e-4, rtol=1e-3, msg=key)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gpl-sac", {"critic": {"members": 1}}, "critic.members = 1 has no disagreement to weigh"),
        ("gpl-sac-top", {"critic": {"members": 1}}, "critic.members = 1 has no disagreement to weigh"),
        ("redq", {"pessimism": {"subset": 11}}, "pessimism.subset = 11 cannot be drawn from 10 critics"),
        ("redq", {"pessimism": {"measure": "std"}}, "the strategy subset-minimum has no setting measure"),
        (
            "sac",
            {"pessimism": {"name": "minimum", "optimism": 0.5}},
            "the strategy minimum has no setting optimism",
        ),
        ("gpl-qr-sac", {"critic": {"atoms": 0}}, "critic.atoms: Input should be greater than or equal to 1, not 0"),
        ("gpl-sac", {"pessimism": {"measure": "w3"}}, "pessimism.measure: Input should be 'wasserstein1', "),
        ("gpl-sac", {"pessimism": {"name": "guess"}}, "pessimism.name: there is no strategy guess"),
        (
            "mbpo",
            {"policy_every": 3, "average_with": "policy"},
            "average_with = policy: policy_every must divide the 2 updates of a step",
        ),
        ("gpl-dropout", {"pessimism": {"samples": 1}}, "critic.members = 1 has no disagreement to weigh"),
        (
            "gpl-dropout",
            {"pessimism": {"name": "calibrated", "samples": 5}},
            "critic.members = 1 has no disagreement",
        ),
        ("gpl-sac", {"pessimism": {"samples": 2}}, "pessimism.samples are dropout masks"),
        ("gpl-xqc", {"pessimism": {"measure": "wasserstein2"}}, "measure = wasserstein2 is for quantiles"),
        ("gpl-xqc", {"critic": {"support": (1.0, -1.0)}}, "critic.support is [lowest, highest]"),
        ("gpl-xqc", {"policy": "noisy", "alpha": 0.0}, "the noisy policy has two hidden layers"),
        ("gpl-xqc", {"pixels": {}}, "critic.form: agents on images have critics of the forms plain and residual"),
        ("mbpo", {"n_step": 3}, "a model learns single steps: n_step = 3 does not go with it"),
        ("sac", {"policy": "noisy"}, "alpha = 0 is for the noisy policy"),
        ("mbpo", {"random_steps": 2}, "random_steps must be 10 or more"),
        ("mbpo", {"model": {"elites": 9}}, "9 elites cannot be chosen from 7 members"),
        ("mbpo", {"model": {"schedule": [20, 10, 1, 1]}}, "schedule is [first epoch, last epoch,"),
    ],
)
def test_meaningless_values_are_refused_in_one_line(name, changes, message):
    with pytest.raises(UserError) as caught:
        small_config(name, **changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


ABLATIONS = [{"pessimism": {"name": "fixed", "beta": beta}} for beta in (0.25, 0.75, 0.86, 0.53, 0.34)]
ABLATIONS += [{"critic": {"members": 4}, "pessimism": {"name": "fixed", "beta": beta}} for beta in (0.0, 0.5)]
ABLATIONS += [{"critic": {"members": members}} for members in (2, 5, 15, 20)]
ABLATIONS += [{"updates_per_step": updates} for updates in (1, 5, 10)]
ABLATIONS += [{"critic": {"form": "plain"}}]


@pytest.mark.parametrize("options", ABLATIONS, ids=str)
def test_ablations_of_the_paper_are_one_flag_away(options):
    changes = {"env": "Hopper-v4", "target_entropy": -1.0, "compile": False, "hidden": 8}
    config = validated(merge(merge(preset_values("gpl-sac"), changes), options))
    agent = build_agent(config, (11,), 3)
    assert len(agent.critic.head.weight) == config.critic.members
    assert agent.pessimism.beta.detach().item() == pytest.approx(config.pessimism.beta)


def test_list_shows_every_preset_with_its_source(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    for name, one in PRESETS.items():
        assert name in shown
        assert one.source in shown
    for name in PRESETS:
        assert main(["list", name]) == 0
