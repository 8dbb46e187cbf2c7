"""Agents with the interface that users of Stable-Baselines3 know.

agent = GPLSAC("Hopper-v4", seed=0).learn(100_000)
action, _ = agent.predict(obs, deterministic=True)
agent.save("hopper.safetensors")
agent = GPLSAC.load("hopper.safetensors")
"""

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from gymnasium import Space
from numpy.typing import NDArray
from rich.console import Console

from pessimism import records
from pessimism.arguments import observation_array, whole_number
from pessimism.config import foreign
from pessimism.config.presets import PRESETS
from pessimism.config.resolve import resolved, validated
from pessimism.config.schema import Config
from pessimism.envs.control import AnyEnv, EnvFactory
from pessimism.envs.given import EnvLike, Given, given
from pessimism.envs.make import adapt, known
from pessimism.errors import UserError
from pessimism.training.agentfile import load_tensors, save_tensors
from pessimism.training.bias import Bias, BiasMeter
from pessimism.training.checkpoint import misfit
from pessimism.training.directory import RunDirectory, read_config
from pessimism.training.evaluate import Evaluation, Evaluator
from pessimism.training.export import Exported, export_policy
from pessimism.training.loop import Callback, Hooks
from pessimism.training.recorder import Recorder
from pessimism.training.run import WITHOUT_PRIOR, Assembly, assemble, env_factory, pixel_view, record
from pessimism.training.state import Progress, stream

CallbackLike = Callback | Callable[[Progress], bool | None]
FILE_FORMAT = "pessimism-agent-1"


class Algorithm:
    """An algorithm on a task. Each preset has a subclass; any setting can be given by its name."""

    preset: ClassVar[str | None] = None  # None: `algorithm` is a setting, or named by the file that is loaded

    def __init__(self, env: EnvLike, *others: object, **settings: Any) -> None:  # noqa: ANN401
        """Take a Gymnasium id, an environment, or a function that makes environments.

        Settings of sections are dicts: `GPLSAC("Hopper-v4", seed=1, critic={"members": 5})`. An environment is
        trained in as it is; evaluation and the bias meter use copies, which keep what was changed on it.
        """
        if others:
            raise UserError(f"{type(self).__name__}(env, name=value, ...) takes no policy: its settings have names")
        if line := foreign.answer(settings, foreign.SETTINGS):
            raise UserError(line)
        found = given(env)
        preset = self.preset or settings.get("algorithm", "gpl-sac")
        config = resolved(preset, {"env": found.name, **settings})
        self._set_up(assemble(config, _env_factory(found, config)))

    def _set_up(self, assembly: Assembly) -> None:
        self.assembly, self.config, self.agent = assembly, assembly.config, assembly.agent
        self._sampling = stream(self.config.seed, "predict")
        self._run: Path | None = None  # the directory that holds what was learned so far
        self._replay_missing = False  # loaded from a file, which has no replay

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Answer names of SB3 with what to use instead."""
        line = foreign.answer([name], foreign.ATTRIBUTES)
        if line is None and name in Config.model_fields:
            line = f"{name} is a setting: it is config.{name}"
        raise AttributeError(line or f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)

    @property
    def num_timesteps(self) -> int:
        """Environment steps that the agent has trained for."""
        return self.assembly.trainer.progress.step

    @property
    def observation_space(self) -> Space[Any]:
        """The space of the observations that `predict` takes."""
        return self.assembly.trainer.env.space

    @property
    def action_space(self) -> Space[Any]:
        """The space of the actions that `predict` returns."""
        return self.get_env().action_space

    def get_env(self) -> AnyEnv:
        """Return the environment that the agent trains in."""
        return self.assembly.trainer.env.env

    def learn(
        self,
        total_timesteps: int,
        callback: CallbackLike | Sequence[CallbackLike] | None = None,
        *,
        out: str | Path | None = None,
        progress_bar: bool = False,
        **others: object,
    ) -> Self:
        """Train up to `total_timesteps` environment steps in all; a later call with more trains on.

        With `out` the run is a directory with logs and checkpoints, from which the same call resumes.
        """
        if others:
            unknown = f"learn has no argument {next(iter(others))}"
            raise UserError(foreign.answer(others, foreign.LEARN) or unknown)
        steps, callbacks = whole_number("total_timesteps", total_timesteps), _callbacks(callback)
        if out is not None:
            self._prepare(Path(out))
        self.config = validated(self.config.model_dump() | {"steps": steps})
        self.assembly = self.assembly._replace(config=self.config)
        trainer = self.assembly.trainer
        trainer.budget = trainer.budget._replace(steps=steps)
        if out is not None:
            record(self.assembly, Path(out), callbacks, Console(quiet=not progress_bar))
            self._run = Path(out).resolve()
            return self
        self._say_what_is_unexpected(steps)
        trainer.hooks = Hooks(callbacks=callbacks)
        trainer.run()
        self._run, self._replay_missing = None, False
        return self

    def _prepare(self, out: Path) -> None:
        """Check that a directory fits what the agent has learned; start again where the run is read from it."""
        has_run = (out / records.CONFIG).exists()
        if has_run and (self.num_timesteps or self._replay_missing) and out.resolve() != self._run:
            raise UserError(
                f"{out} holds a run, and this agent has learned elsewhere: give another out, or load({str(out)!r})"
            )
        if has_run and self.num_timesteps:
            trainer, run = self.assembly.trainer, self._run
            self._set_up(assemble(self.config, self.assembly.make_env, trainer.env))
            self._run = run

    def _say_what_is_unexpected(self, steps: int) -> None:
        if steps <= self.num_timesteps:
            done = f"learn({steps}) has nothing to do: {self.num_timesteps} steps are done"
            warnings.warn(f"{done}, and total_timesteps counts them too", stacklevel=3)
        elif self._replay_missing:
            warnings.warn(
                f"the file had no replay: training starts with {self.config.random_steps} random steps "
                "(load the directory of learn(out=...) to train on with the replay)",
                stacklevel=3,
            )

    def predict(
        self,
        observation: NDArray[Any],
        state: object = None,
        episode_start: object = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[np.float32], None]:
        """Return the action for one observation or a batch of them, in the environment's own units.

        Observations have the shape of the environment's space, or [batch, *shape]; actions come back likewise.
        Where the agent sees images, they are the stacked ones [stack, H, W, C].
        """
        env = self.assembly.trainer.env
        obs = observation_array(observation, np.uint8 if len(env.obs_shape) > 1 else np.float32)
        batched = obs.ndim == len(env.space.shape) + 1
        if obs.shape[batched:] != env.space.shape:
            raise UserError(
                f"an observation of {self.config.env} has the shape {env.space.shape}, and a batch of them "
                f"[batch, ...]: this one has {obs.shape}"
            )
        batch = torch.from_numpy(obs.reshape(-1, *env.obs_shape))
        action = self.agent.mode(batch) if deterministic else self.agent.sample(batch, self._sampling)[0]
        scaled = env.scaled_batch(action.numpy())
        return (scaled if batched else scaled[0]), None

    def evaluate(self, episodes: int = 5) -> Evaluation:
        """Run deterministic episodes on environments of their own."""
        count = whole_number("episodes", episodes)
        return Evaluator(self.assembly.make_env, count, self.config.seed)(self.agent, 0)

    def measure_bias(self, episodes: int = 10) -> Bias:
        """Compare what the critics predict with the returns of stochastic episodes."""
        config, count = self.config, whole_number("episodes", episodes)
        tail, discount = config.bias.tail, config.discount
        meter = BiasMeter(self.assembly.make_env, count, config.seed, tail=tail, discount=discount)
        return meter(self.agent, 0)

    def save(self, path: str | Path) -> Path:
        """Write the agent and its settings to one safetensors file (the replay is in `learn(out=...)`'s run)."""
        config = self.config.model_copy(update=WITHOUT_PRIOR)
        header = {"format": FILE_FORMAT, "config": config.model_dump_json()}
        save_tensors(Path(path), self.agent.state_dict(), header)
        return Path(path)

    def export(self, path: str | Path) -> Exported:
        """Write the deterministic policy as an ONNX file, which runs without torch (extra: onnx).

        It takes an observation of the environment's shape and returns an action in the environment's own units.
        """
        return export_policy(self.agent, self.assembly.trainer.env, Path(path))

    @classmethod
    def load(cls, path: str | Path, env: EnvLike | None = None, **others: object) -> Self:
        """Read a file of `save`, or the directory of `learn(out=...)`, with which training resumes exactly.

        Nothing in it is executed. `env` replaces an environment that has no id.
        """
        if others:
            unknown = f"load has no argument {next(iter(others))}"
            raise UserError(foreign.answer(others, foreign.LOAD) or unknown)
        path = Path(path)
        return cls._load_run(path, env) if path.is_dir() else cls._load_file(path, env)

    @classmethod
    def _load_file(cls, path: Path, env: EnvLike | None) -> Self:
        tensors, header = load_tensors(path)
        if header.get("format") != FILE_FORMAT:
            raise UserError(f"{path} holds no agent of this library: `save` writes them")
        try:
            config = validated(json.loads(header["config"]))
        except (KeyError, ValueError, RecursionError):
            raise UserError(f"{path} holds no settings that can be read") from None
        except UserError as error:
            raise UserError(f"{path} holds settings that cannot be used: {error}") from None
        agent = cls._built(path, config, env)
        if problem := misfit(agent.agent.state_dict(), tensors):
            raise UserError(f"{path} does not fit {agent.config.env}: {problem}")
        agent.agent.load_state_dict(tensors)
        agent._replay_missing = True
        return agent

    @classmethod
    def _load_run(cls, path: Path, env: EnvLike | None) -> Self:
        config = read_config(path)
        agent = cls._built(path, config, env)
        step, torn = Recorder(RunDirectory(path), config).resume(agent.assembly.trainer)
        if not step:
            raise UserError(f"the run in {path} has no checkpoint yet: train it further")
        for line in torn:
            warnings.warn(line, stacklevel=3)
        agent._run = path.resolve()
        return agent

    @classmethod
    def _built(cls, path: Path, config: Config, env: EnvLike | None) -> Self:
        """Return an untrained agent with the settings of a file."""
        if cls.preset not in (None, config.algorithm):
            raise UserError(
                f"{path} holds an agent of {config.algorithm}, not of {cls.preset}: Algorithm.load reads both"
            )
        found = Given(known(config.env), None) if env is None else given(env)
        agent = cls.__new__(cls)
        if found.make is None:
            config = config.model_copy(update={"env": found.name})
        agent._set_up(assemble(config, _env_factory(found, config)))
        return agent


def _class(name: str) -> type[Algorithm]:
    """Return the class of a preset."""
    entry = PRESETS[name]
    body = {"preset": name, "__doc__": entry.text(), "__module__": "pessimism"}
    return cast("type[Algorithm]", type(entry.python, (Algorithm,), body))


CLASSES = {PRESETS[name].python: _class(name) for name in PRESETS}
"""A class for each preset, by its name in Python."""


def _env_factory(found: Given, config: Config) -> EnvFactory:
    make = found.make
    if make is None:
        return env_factory(config)
    return lambda: adapt(make(), config.env, pixel_view(config), config.action_repeat)


class _FunctionCallback(Callback):
    def __init__(self, function: Callable[[Progress], bool | None]) -> None:
        self.function = function

    def on_step(self, progress: Progress) -> bool | None:
        return self.function(progress)


def _callbacks(asked: CallbackLike | Sequence[CallbackLike] | None) -> list[Callback]:
    if asked is None:
        return []
    several = asked if isinstance(asked, Sequence) else [asked]
    return [_callback(one) for one in several]


def _callback(one: CallbackLike) -> Callback:
    if isinstance(one, Callback):
        return one
    if hasattr(one, "init_callback"):
        raise UserError("SB3's callbacks are for SB3's agents (pessimism.sb3): derive from pessimism.Callback here")
    if not callable(one):
        raise UserError(f"{one!r} is not a callback: give a pessimism.Callback, or a function of the progress")
    return _FunctionCallback(one)
