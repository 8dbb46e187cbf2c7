"""Agents in the shape that users of Stable-Baselines3 have in their fingers.

model = GPLSAC("Hopper-v4", seed=0).learn(100_000)
action, _ = model.predict(obs, deterministic=True)
model.save("hopper.safetensors")
model = GPLSAC.load("hopper.safetensors")
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from pessimism.config import Config, merge, validated
from pessimism.envs import gym
from pessimism.errors import UserError
from pessimism.presets import preset_values
from pessimism.run import Assembly, assemble, env_factory, pixel_view, record
from pessimism.training.bias import Bias, BiasMeter
from pessimism.training.checkpoint import load_tensors, save_tensors
from pessimism.training.evaluate import Evaluation, Evaluator
from pessimism.training.loop import Callback, Progress
from pessimism.training.seeding import stream

EnvLike = str | gymnasium.Env[Any, Any] | Callable[[], gymnasium.Env[Any, Any]]
CallbackLike = Callback | Callable[[Progress], bool | None]
FILE_FORMAT = "pessimism-agent-1"


class Model:
    """An algorithm on a task. Subclasses are presets; any setting can be given by its name."""

    preset: ClassVar[str] = "gpl-sac"

    def __init__(self, env: EnvLike, **settings: Any) -> None:  # noqa: ANN401
        """Take a Gymnasium id, an environment that has one, or a function that makes environments.

        Settings of sections are dicts: `GPLSAC("Hopper-v4", seed=1, critic={"members": 5})`.
        """
        config = validated(merge(preset_values(self.preset, _env_name(env)), {"env": _env_name(env), **settings}))
        self._set_up(assemble(config, _env_factory(env, config)))

    def _set_up(self, assembly: Assembly) -> None:
        self.assembly, self.config, self.agent = assembly, assembly.config, assembly.agent
        self._sampling = stream(self.config.seed, "predict")

    def learn(
        self,
        total_timesteps: int,
        callback: CallbackLike | Sequence[CallbackLike] = (),
        *,
        out: str | Path | None = None,
        progress_bar: bool = False,
    ) -> Self:
        """Train up to `total_timesteps` environment steps in all; a later call with more goes on.

        With `out` the run is a directory with logs and checkpoints, and goes on from them after a crash.
        """
        self.config = self.config.model_copy(update={"steps": total_timesteps})
        self.assembly = self.assembly._replace(config=self.config)
        trainer = self.assembly.trainer
        trainer.budget = trainer.budget._replace(steps=total_timesteps)
        callbacks = [_callback(one) for one in (callback if isinstance(callback, Sequence) else [callback])]
        if out is not None:
            record(self.assembly, Path(out), callbacks, Console(quiet=not progress_bar))
        else:
            trainer.hooks.callbacks = callbacks
            trainer.run()
        return self

    def predict(
        self,
        observation: NDArray[Any],
        state: None = None,
        episode_start: None = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[np.float32], None]:
        """Return the action for one observation or a batch of them, in the environment's own units.

        Observations are what the agent sees: where it sees pictures, the stacked ones [stack, H, W, C].
        """
        env = self.assembly.trainer.env
        pictures = len(env.obs_shape) > 1
        obs = torch.as_tensor(np.asarray(observation, dtype=np.uint8 if pictures else np.float32))
        single = obs.numel() == env.obs_size
        batch = obs.reshape(-1, *env.obs_shape)
        action = self.agent.mode(batch) if deterministic else self.agent.sample(batch, self._sampling)[0]
        scaled = np.stack([env.scaled(one) for one in action.numpy()])
        return (scaled[0] if single else scaled), None

    def evaluate(self, episodes: int = 5) -> Evaluation:
        """Run deterministic episodes on environments of their own."""
        return Evaluator(self.assembly.make_env, episodes, self.config.seed)(self.agent, 0)

    def measure_bias(self, episodes: int = 10) -> Bias:
        """Compare what the critics predict with what stochastic episodes then bring."""
        config = self.config
        return BiasMeter(self.assembly.make_env, episodes, config.bias.tail, config.discount, config.seed)(
            self.agent, 0
        )

    def save(self, path: str | Path) -> Path:
        """Write the agent and its settings to one safetensors file (the replay is in `learn(out=...)`'s run)."""
        header = {"format": FILE_FORMAT, "config": self.config.model_dump_json()}
        save_tensors(Path(path), self.agent.state_dict(), header)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path, env: EnvLike | None = None) -> Self:
        """Read a file of `save`; nothing in it is executed. `env` stands in for one that has no id."""
        tensors, header = load_tensors(Path(path))
        if header.get("format") != FILE_FORMAT:
            raise UserError(f"{path} is no agent of this library: Model.save writes them")
        config = validated(json.loads(header["config"]))
        model = cls.__new__(cls)
        model._set_up(assemble(config, _env_factory(config.env if env is None else env, config)))
        try:
            model.agent.load_state_dict(tensors)
        except RuntimeError as error:
            raise UserError(f"{path} does not fit {config.env}: {' '.join(str(error).split())[:200]}") from None
        return model


class GPLSAC(Model):
    """SAC with learned pessimism: the paper's GPL-SAC."""

    preset = "gpl-sac"


class SAC20(Model):
    """SAC with 20 critic updates per step: the paper's SAC-20."""

    preset = "sac-20"


class SAC(Model):
    """Soft actor-critic with one update per step."""

    preset = "sac"


class REDQ(Model):
    """Randomized ensembled double Q-learning (Chen et al., 2021)."""

    preset = "redq"


class MBPO(Model):
    """Model-based policy optimisation (Janner et al., 2019)."""

    preset = "mbpo"


class DrQv2(Model):
    """DrQ-v2, from pixels (Yarats et al., 2022)."""

    preset = "drqv2"


class GPLDrQ(Model):
    """DrQ-v2 with learned pessimism, from pixels: the paper's GPL-DrQ."""

    preset = "gpl-drq"


class CURL(Model):
    """SAC with features learned by contrast, from pixels (Laskin et al., 2020)."""

    preset = "curl"


class PixelSAC(Model):
    """SAC from pixels (Yarats et al., 2021, without the decoder)."""

    preset = "sac-pixels"


def _env_name(env: EnvLike) -> str:
    if isinstance(env, str):
        return env
    spec = env.spec if isinstance(env, gymnasium.Env) else None
    return spec.id if spec else getattr(env, "__name__", type(env).__name__)


def _env_factory(env: EnvLike, config: Config) -> gym.EnvFactory:
    if isinstance(env, str):
        return env_factory(config)
    if not isinstance(env, gymnasium.Env):
        return lambda: gym.adapt(env(), config.env, pixel_view(config), config.action_repeat)
    if env.spec is None:
        raise UserError(
            "evaluation needs environments of its own and this one has no spec to make more: "
            "give its Gymnasium id, or a function that makes it"
        )
    spec = env.spec
    return lambda: gym.adapt(gymnasium.make(spec), config.env, pixel_view(config), config.action_repeat)


class _FunctionCallback(Callback):
    def __init__(self, function: Callable[[Progress], bool | None]) -> None:
        self.function = function

    def on_step(self, progress: Progress) -> bool | None:
        return self.function(progress)


def _callback(one: CallbackLike) -> Callback:
    return one if isinstance(one, Callback) else _FunctionCallback(one)
