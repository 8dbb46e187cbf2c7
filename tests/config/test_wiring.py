"""Every setting, changed, changes the object that it is for. A setting without an entry here fails."""

import math
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from pessimism.agents import critic_learner
from pessimism.config.resolve import merge, nested, option_names, preset_values, validated
from pessimism.config.strategies import STRATEGIES
from pessimism.envs.control import ActionRepeat
from pessimism.errors import UserError
from pessimism.nn.compilation import compiler
from pessimism.nn.ensemble import EnsembleDropout
from pessimism.replay.prior import Recorded
from pessimism.training.checkpoint import Checkpoint
from pessimism.training.directory import RunDirectory
from pessimism.training.recorder import Recorder
from pessimism.training.run import assemble, default_path

LINE, DRAWN = (f"pessimism.envs.toys:pessimism-toys/{name}-v0" for name in ("Line", "DrawnLine"))
SMALL = {
    "hidden": 8,
    "critic": {"hidden": 8, "members": 3},
    "replay_capacity": 1000,
    "compile": False,
    "threads": 1,
    "log": {"tensorboard": False},
}
BASES = {
    "states": ("gpl-sac", SMALL | {"env": LINE, "env_kwargs": {"max_episode_steps": 50}}),
    "images": ("gpl-drq", SMALL | {"env": DRAWN, "pixels": {"filters": 2, "features": 4}}),
    "contrast": ("curl", SMALL | {"env": DRAWN, "pixels": {"filters": 2, "features": 4}}),
    "model": ("mbpo", SMALL | {"env": "InvertedPendulum-v4", "model": {"hidden": 8}}),
    "humanoid": ("gpl-sac", SMALL | {"env": "Humanoid-v4"}),
}


class Wire(NamedTuple):
    """A setting's new value, what is read from the assembled run, and what must be found there then."""

    value: Any
    read: Any  # Assembly -> object
    found: Any = None  # None: the value itself
    base: str = "states"
    given: Mapping[str, Any] = {}  # settings without which it has no effect
    also: Mapping[str, Any] = {}  # settings that must change together with it


def steps(count):
    """Return so many steps on the line, as prior data."""
    obs, flags = np.zeros((count, 1), np.float32), np.zeros(count, bool)
    return Recorded(obs, obs, np.ones(count), flags, flags | (np.arange(count) == count - 1), obs)


@pytest.fixture(autouse=True)
def _prior_data():
    """Write files with 3 and 5 steps."""
    for count in (3, 5):
        made = steps(count)
        names = ("observations", "actions", "rewards", "terminations", "truncations", "next_observations")
        np.savez(f"{count}.npz", **dict(zip(names, made, strict=True)))


def strategy(read):
    return lambda run: read(run.agent.pessimism)


def budget(name):
    return lambda run: getattr(run.trainer.budget, name)


def clock(name):
    return lambda run: getattr(run.trainer.budget, name).period


def learning_rates(run):
    return {run.agent.critic_optimizer.lr, run.agent.actor_optimizer.lr}


def contrast_rates(run):
    return {run.agent.view_optimizer.lr, run.agent.contrast_optimizer.lr} | learning_rates(run)


def head_shape(run):
    return tuple(run.agent.critic.head.weight.shape)


def repeats(run):
    env = run.trainer.env.env
    while not isinstance(env, ActionRepeat):
        if env is env.unwrapped:
            return 1
        env = env.env
    return env.times


def head_gain(run):
    return round(float(run.agent.critic.head.weight[0].detach().norm()), 4)


def off_centre(run):
    """Say whether the convolutions begin with anything outside the centre of their kernels."""
    weight = run.agent.encoder.layers[0].weight.detach().clone()
    weight[:, :, 1, 1] = 0
    return bool(weight.any())


def seeds(run):
    trainer = run.trainer
    return {trainer.seed, trainer.evaluator.seed, trainer.bias_meter.seed}


def recorder(run):
    one = Recorder(RunDirectory(Path(tempfile.mkdtemp(dir=Path.cwd()))), run.config)
    one.attach(run.trainer, [], [])
    one.close()
    return one


def sinks(run):
    return [type(sink).__name__ for sink in recorder(run).sinks[1:]]


def resumes_inexactly(run):
    """Return how the recorder asks the trainer to continue from a checkpoint."""
    one, asked = recorder(run), []
    one.store.load = lambda replay, expected: (Checkpoint(3, {}, {}), [])
    run.trainer.restore = lambda checkpoint, inexact: not asked.append(inexact)
    one.resume(run.trainer)
    return asked


def learning_rate_after(run, step):
    run.agent._advance(step)
    optimizer = run.agent.critic_optimizer
    return round(optimizer.lr * float(optimizer.share[0]), 9)


def dropouts(run):
    return {layer.rate for layer in run.agent.critic.modules() if isinstance(layer, EnsembleDropout)}


def view(name):
    return lambda run: getattr(run.make_env.keywords["view"], name)


def model(name):
    return lambda run: getattr(run.trainer.replay.plan, name)


def fitting(name):
    return lambda run: run.trainer.replay.fit.keywords[name]


def actor(run):
    return run.agent.actor


def learner(name):
    return lambda run: getattr(run.agent.learner, name)


def td_loss(name):
    return lambda run: getattr(run.agent.learner.td_loss, "keywords", {}).get(name)


WIRES = {
    "algorithm": [Wire("mine", lambda run: default_path(run.config).parts[1])],
    "env": [
        Wire(
            "pessimism.envs.toys:pessimism-toys/Constant-v0",
            lambda run: run.trainer.env.env.spec.id,
            found="pessimism-toys/Constant-v0",
        )
    ],
    "env_kwargs": [Wire({"length": 7}, lambda run: run.trainer.env.env.unwrapped.length, found=7)],
    "observation": [Wire("truncated", lambda run: run.trainer.env.obs_shape, found=(45,), base="humanoid")],
    "action_repeat": [Wire(3, repeats)],
    "pixels": [Wire({}, lambda run: len(run.trainer.env.obs_shape), found=4, also={"env": DRAWN})],
    "model": [
        Wire(
            {"hidden": 8},
            lambda run: type(run.trainer.replay).__name__,
            found="ModelReplay",
            also={"env": "InvertedPendulum-v4"},
        )
    ],
    "seed": [Wire(5, seeds, found={5})],
    "steps": [Wire(77, budget("steps"))],
    "random_steps": [Wire(78, budget("random_steps")), Wire(78, model("first_step"), found=79, base="model")],
    "update_every": [Wire(4, budget("update_every"))],
    "learn_at": [Wire("episode", budget("learn_at"))],
    "updates_per_step": [Wire(6, budget("updates_per_step"))],
    "policy_every": [Wire(5, budget("policy_every"))],
    "batch_size": [Wire(33, budget("batch_size"))],
    "replay_capacity": [
        Wire(555, lambda run: run.trainer.replay.capacity),
        Wire(555, lambda run: run.trainer.replay.capacity, base="images"),
        Wire(555, lambda run: run.trainer.replay.capacity, base="model"),
    ],
    "replay_file": [
        Wire("rows", lambda run: str(run.trainer.replay.file)),
        Wire("frames", lambda run: str(run.trainer.replay.file), base="images"),
    ],
    "prior": [Wire("3.npz", lambda run: len(getattr(run.trainer.replay, "prior", ())), found=3)],
    "prior_share": [Wire(0.25, lambda run: run.trainer.replay.share, given={"prior": "3.npz"})],
    "prior_checksum": [
        Wire(
            steps(5).checksum,
            lambda run: run.config.prior_checksum,
            given={"prior": "3.npz"},
            also={"prior": "5.npz"},
        )
    ],
    "n_step": [
        Wire(4, lambda run: run.trainer.replay.n_step),
        Wire(4, lambda run: run.trainer.replay.n_step, base="images"),
        Wire(4, strategy(lambda rule: rule.n_step), given={"pessimism.name": "calibrated"}),
    ],
    "held_out": [
        Wire(0.25, lambda run: run.trainer.replay.held_out_every, found=4),
        Wire(0.25, lambda run: run.trainer.replay.held_out_every, found=4, base="images"),
    ],
    "discount": [
        Wire(0.5, lambda run: {run.trainer.replay.discount, run.trainer.bias_meter.discount}, found={0.5}),
        Wire(0.5, lambda run: float(run.trainer.replay.powers[1]), base="images"),
        Wire(0.5, lambda run: run.trainer.replay.pool.discount, base="model"),
        Wire(0.5, strategy(lambda rule: rule.discount), given={"pessimism.name": "calibrated"}),
    ],
    "tau": [Wire(0.3, learner("tau")), Wire(0.3, learner("tau"), base="images")],
    "average_with": [
        Wire("policy", learner("average_with")),
        Wire("policy", learner("average_with"), base="images"),
    ],
    "lr": [
        Wire(0.2, learning_rates, found={0.2}),
        Wire(0.2, learning_rates, found={0.2}, base="images"),
        Wire(0.2, contrast_rates, found={0.2}, base="contrast"),
    ],
    "lr_end": [Wire(1e-5, lambda run: learning_rate_after(run, 10), given={"lr_steps": 10})],
    "lr_steps": [Wire(20, lambda run: learning_rate_after(run, 20), found=1e-5, given={"lr_end": 1e-5})],
    "scale_rewards": [Wire(True, lambda run: run.agent.reward_scale is not None)],
    "policy_form": [Wire("xqc", lambda run: type(actor(run)).__name__, found="XQCActor")],
    "hidden": [
        Wire(12, lambda run: actor(run).net[0].out_features),
        Wire(12, lambda run: actor(run).policy.net[0].out_features, base="images"),
    ],
    "policy": [
        Wire("noisy", lambda run: type(actor(run)).__name__, found="NoisyActor", also={"alpha": 0.0}),
        Wire(
            "gaussian",
            lambda run: type(actor(run).policy).__name__,
            found="SquashedGaussianActor",
            base="images",
            also={"alpha": 0.1},
        ),
    ],
    "noise": [
        Wire(
            (0.8, 0.4, 10),
            lambda run: [round(actor(run).policy.schedule(step), 6) for step in (0, 5, 20)],
            found=[0.8, 0.6, 0.4],
            base="images",
        )
    ],
    "noise_clip": [Wire(0.11, lambda run: actor(run).policy.clip, base="images")],
    "actor_clip": [
        Wire(3.0, lambda run: run.agent.actor_clip),
        Wire(0.0, lambda run: run.agent.actor_clip, found=math.inf),
    ],
    "log_std": [Wire("clamped", lambda run: actor(run).log_std)],
    "initialisation": [
        Wire("unit-orthogonal", head_gain, found=1.0),
        Wire("orthogonal", head_gain, found=round(0.01 * math.sqrt(2), 4), base="images"),
        Wire("xavier", lambda run: head_gain(run) > 0.1, found=True),
    ],
    "alpha": [Wire(0.25, lambda run: round(float(run.agent.alpha), 6))],
    "alpha_lr": [Wire(0.02, lambda run: run.agent.alpha_optimizer.lr)],
    "alpha_beta1": [Wire(0.7, lambda run: run.agent.alpha_optimizer.betas[0])],
    "target_entropy": [Wire(-0.3, lambda run: run.agent.target_entropy)],
    "entropy_per_action": [Wire(-0.25, lambda run: run.agent.target_entropy)],
    "critic.form": [Wire("plain", lambda run: type(run.agent.critic).__name__, found="EnsembleCritic")],
    "critic.members": [Wire(4, head_shape, found=(4, 8, 1))],
    "critic.hidden": [Wire(16, head_shape, found=(3, 16, 1))],
    "critic.spectral": [Wire("reparameterised", lambda run: run.agent.critic.spectral[0].form)],
    "critic.atoms": [Wire(5, head_shape, found=(3, 8, 5))],
    "critic.support": [
        Wire(
            (-2.0, 3.0),
            lambda run: type(run.agent.values(torch.zeros(1, 1), torch.zeros(1, 1))).__name__,
            found="Atoms",
            given={"critic.atoms": 5},
        )
    ],
    "critic.dropout": [Wire(0.2, dropouts, found={0.2}, given={"critic.form": "droq"})],
    "critic.kappa": [Wire(0.6, td_loss("kappa"), given={"critic.atoms": 5})],
    "critic.scale": [Wire(0.9, td_loss("scale"))],
    "evaluation.every": [Wire(12, clock("evaluate_now"))],
    "evaluation.limit": [Wire(55, lambda run: run.trainer.evaluator.limit)],
    "bias.limit": [Wire(56, lambda run: run.trainer.bias_meter.limit)],
    "evaluation.episodes": [Wire(3, lambda run: run.trainer.evaluator.episodes)],
    "bias.every": [Wire(13, clock("measure_now"))],
    "bias.episodes": [Wire(4, lambda run: run.trainer.bias_meter.episodes)],
    "bias.tail": [Wire(0.07, lambda run: run.trainer.bias_meter.tail)],
    "log.every": [Wire(14, clock("log_now"))],
    "log.tensorboard": [Wire(True, sinks, found=["TensorBoardSink"])],
    "log.wandb": [Wire("project", sinks, found=["FakeWandbSink"])],
    "checkpoint.every": [Wire(15, clock("save_now"))],
    "checkpoint.keep": [Wire(6, lambda run: recorder(run).store.keep)],
    "resume": [Wire("inexact", resumes_inexactly, found=[True])],
    "precision": [Wire("bfloat16", lambda run: run.agent.critic.precision, given={"compile": True})],
    "compile": [Wire(True, lambda run: type(run.agent.learner).__name__, found="CompiledLearner")],
    "threads": [Wire(2, lambda run: torch.get_num_threads())],
    "device": [Wire("cuda", lambda run: run.agent.device.type)],
    "model.members": [Wire(6, lambda run: run.trainer.replay.model.members, base="model")],
    "model.elites": [Wire(2, lambda run: len(run.trainer.replay.model.elites), base="model")],
    "model.hidden": [Wire(9, lambda run: run.trainer.replay.model.weights[0].shape[-1], base="model")],
    "model.lr": [Wire(0.3, lambda run: run.trainer.replay.model.optimizer.lr, base="model")],
    "model.batch_size": [Wire(31, fitting("batch_size"), base="model")],
    "model.holdout": [Wire(0.4, fitting("holdout"), base="model")],
    "model.holdout_limit": [Wire(90, fitting("holdout_limit"), base="model")],
    "model.patience": [Wire(2, fitting("patience"), base="model")],
    "model.train_every": [Wire(17, model("train_every"), base="model")],
    "model.rollouts": [Wire(18, model("rollouts"), base="model")],
    "model.schedule": [Wire((1, 2, 3, 4), model("schedule"), base="model")],
    "model.epoch_steps": [Wire(19, model("epoch_steps"), base="model")],
    "model.retain_epochs": [Wire(20, model("retain_epochs"), base="model")],
    "model.real_ratio": [Wire(0.6, lambda run: run.trainer.replay.real_ratio, base="model")],
    "pixels.size": [Wire(40, view("size"), base="images")],
    "pixels.stack": [Wire(2, lambda run: run.trainer.env.obs_shape[0], base="images")],
    "pixels.camera": [Wire(1, view("camera"), base="images")],
    "pixels.augmentation": [
        Wire("none", lambda run: run.agent.crop.places, found=1, base="images"),
        Wire("crop", lambda run: run.agent.crop.size, found=20, base="images"),
    ],
    "pixels.filters": [Wire(5, lambda run: run.agent.encoder.layers[3].out_channels, base="images")],
    "pixels.features": [
        Wire(
            6,
            lambda run: {trunk.linear.out_features for trunk in (run.agent.critic.trunk, actor(run).trunk)},
            found={6},
            base="images",
        )
    ],
    "pixels.squashed": [
        Wire(
            False,
            lambda run: {trunk.squashed for trunk in (run.agent.critic.trunk, actor(run).trunk)},
            found={False},
            base="images",
        )
    ],
    "pixels.centred": [Wire(False, lambda run: run.agent.encoder.offset, found=0.0, base="images")],
    "pixels.convolutions": [Wire("delta-orthogonal", off_centre, found=False, base="images")],
    "pixels.encoder_tau": [Wire(0.4, learner("encoder_tau"), base="images")],
    "pixels.contrastive": [
        Wire(
            True,
            lambda run: run.agent.contrast is not None,
            base="images",
            given={"pixels.encoder_tau": 0.1},
        )
    ],
}


def attribute(name, value):
    return Wire(value, strategy(lambda rule: getattr(rule, name)))


def adam(name):
    return strategy(lambda rule: rule.optimizer.param_groups[0][name])


PENALTY = {
    "measure": Wire("std", strategy(lambda rule: rule.disagreement.__name__), found="ensemble_spread"),
    "actor_share": Wire(0.6, strategy(lambda rule: rule.actor_share)),
    "samples": Wire(4, lambda run: run.agent.critic.samples, given={"critic.form": "droq"}),
    "optimism": Wire(0.3, strategy(lambda rule: rule.schedule(0))),
    "optimism_steps": Wire(
        10, strategy(lambda rule: rule.schedule(5)), found=0.2, given={"pessimism.optimism": 0.4}
    ),
}
BETA = {"beta": Wire(0.75, strategy(lambda rule: float(rule.beta.detach())))}
LEARNED = PENALTY | BETA | {"lr": Wire(0.03, adam("lr")), "beta1": Wire(0.8, adam("betas"), found=(0.8, 0.999))}
CALIBRATED = {"gain": 0.7, "wait": 2.0, "fewest": 6}
ACC = {"lr": 0.3, "start": 11, "every": 12, "window": 13, "decay": 0.2}
STRATEGY_WIRES = {
    "learned": LEARNED,
    "squared-bias": LEARNED | {"square": Wire("expectation", strategy(lambda rule: rule.square))},
    "validation": LEARNED,
    "fixed": PENALTY | BETA,
    "calibrated": PENALTY | BETA | {name: attribute(name, value) for name, value in CALIBRATED.items()},
    "acc": PENALTY | BETA | {name: attribute(name, value) for name, value in ACC.items()},
    "bandit": PENALTY
    | {
        "arms": Wire((0.1, 0.2, 0.3), strategy(lambda rule: rule.arms)),
        "lr": Wire(0.4, strategy(lambda rule: rule.bandit.lr)),
        "decay": Wire(0.5, strategy(lambda rule: rule.bandit.decay)),
        "window": Wire(9, strategy(lambda rule: len(rule.bandit.history))),
    },
    "minimum": {},
    "subset-minimum": {"subset": Wire(1.5, strategy(lambda rule: rule.subset))},
}
CASES = [(path, wire) for path, wires in WIRES.items() for wire in wires]
CASES += [
    (f"pessimism.{field}", wire._replace(given={"pessimism.name": name} | wire.given))
    for name, wires in STRATEGY_WIRES.items()
    for field, wire in wires.items()
]


def assembled(base, changes):
    preset, small = BASES[base]
    values = merge(preset_values(preset, small["env"]), small)
    for path, value in changes.items():
        values = merge(values, nested(path, value))
    return assemble(validated(values))


@cache
def unchanged(base, given):
    return assembled(base, dict(given))


class FakeWandbSink:
    """Takes the place of a sink that would log to a server."""

    def __init__(self, *arguments):
        pass

    def close(self):
        pass


def label(value):
    return f"{value.given.get('pessimism.name', value.base)}" if isinstance(value, Wire) else None


@pytest.mark.parametrize(("path", "wire"), CASES, ids=label)
def test_setting_reaches_its_object(path, wire, monkeypatch):
    monkeypatch.setattr("pessimism.training.sinks.WandbSink", FakeWandbSink)
    monkeypatch.setattr(critic_learner, "covered", lambda critic, td_loss: False)
    monkeypatch.setattr("pessimism.training.build.refusal", lambda precision: None)
    monkeypatch.setattr("pessimism.training.recorder.check_same", lambda *arguments: None)
    if path == "compile" and compiler() is None:
        pytest.skip("needs a C++ compiler")
    if path == "device" and not torch.cuda.is_available():
        with pytest.raises(UserError, match="finds no CUDA device"):
            assembled(wire.base, {path: wire.value})
        return
    before = wire.read(unchanged(wire.base, tuple(wire.given.items())))
    after = wire.read(assembled(wire.base, {**wire.given, **wire.also, path: wire.value}))
    assert after == (wire.value if wire.found is None else wire.found)
    assert before != after


def test_the_seed_decides_every_random_stream():
    def starts(seed):
        run = assembled("states", {"seed": seed, "pessimism.name": "subset-minimum"})
        streams = {name: generator.initial_seed() for name, generator in run.trainer.generators.items()}
        return streams | {"weights": float(run.agent.critic.body[0].weight.detach().sum())}

    one, again, other = starts(0), starts(0), starts(1)
    assert one == again
    assert {"explore", "replay", "update", "pessimism"} <= one.keys()
    assert all(one[name] != other[name] for name in one)
    assert len({*one.values()}) == len(one)


def test_every_setting_has_an_entry():
    apart = [name for name in option_names() if not name.startswith("pessimism.")]
    assert not set(apart) ^ set(WIRES), "each setting needs an entry in WIRES, and each entry a setting"
    fields = {
        (name, field) for name, entry in STRATEGIES.items() for field in entry.model_fields if field != "name"
    }
    wired = {(name, field) for name, wires in STRATEGY_WIRES.items() for field in wires}
    assert not fields ^ wired, "each setting of a strategy needs an entry in STRATEGY_WIRES"


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategys_name_chooses_its_class(name):
    run = assembled("states", {"pessimism.name": name})
    assert STRATEGIES[name].implementation.endswith(f":{type(run.agent.pessimism).__name__}")
