"""Gymnasium environments as the loop sees them: flat float32 observations, actions in (-1, 1)."""

import math
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pessimism.errors import UserError, nearest

Array = NDArray[np.float32]


class NonFiniteError(UserError):
    """The environment returned a number that nothing can be learned from."""


class Step(NamedTuple):
    """What one action led to."""

    obs: Array
    reward: float
    terminated: bool
    truncated: bool


class ControlEnv:
    """A continuous-control environment with its actions rescaled and its outputs checked."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str) -> None:
        self.env = env
        self.obs_size = _checked_observation(env.observation_space, name)
        low, high = _checked_action(env.action_space, name)
        self.action_size = low.size
        self._shape = env.action_space.shape
        self._center, self._scale = (high + low) / 2, (high - low) / 2

    def reset(self, seed: int) -> Array:
        """Start an episode that is a function of `seed`."""
        obs, _ = self.env.reset(seed=seed)
        return self._checked(obs, "observation", "after reset")

    def step(self, action: Array) -> Step:
        """Take an action in (-1, 1)."""
        obs, reward, terminated, truncated, _ = self.env.step(self.scaled(action))
        if not math.isfinite(float(reward)):
            raise NonFiniteError(f"the environment returned the reward {reward}")
        return Step(self._checked(obs, "observation", "after a step"), float(reward), terminated, truncated)

    def scaled(self, action: Array) -> Array:
        """Return an action in (-1, 1) in the environment's own units."""
        return np.asarray(self._center + self._scale * action, dtype=np.float32).reshape(self._shape)

    def render(self) -> NDArray[np.uint8]:
        """Return the current frame (environments made with render_mode="rgb_array")."""
        return np.asarray(self.env.render(), dtype=np.uint8)

    def close(self) -> None:
        """Free what the environment holds."""
        self.env.close()

    @staticmethod
    def _checked(obs: Any, what: str, when: str) -> Array:  # noqa: ANN401
        flat = np.asarray(obs, dtype=np.float32).reshape(-1)
        if not np.isfinite(flat).all():
            index = int(np.flatnonzero(~np.isfinite(flat))[0])
            raise NonFiniteError(f"the environment returned an {what} with {flat[index]} at {index} {when}")
        return flat


EnvFactory = Callable[[], ControlEnv]


def make(env_id: str, *, entries: int | None = None, **kwargs: Any) -> ControlEnv:  # noqa: ANN401
    """Make a registered environment, or say in one line why it cannot be used.

    `entries` keeps that many leading entries of its observations.
    """
    prepare_rendering()
    if ":" in env_id and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # module:Name-v0 may be a file of the user's
    try:
        with warnings.catch_warnings():
            # The -v4 tasks are the paper's; that newer versions exist is no news to the user.
            warnings.filterwarnings("ignore", message=".*is out of date.*")
            _silence_mujoco()
            env = gymnasium.make(env_id, **kwargs)
            return ControlEnv(env if entries is None else _leading(env, entries), env_id)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.NamespaceNotFound):
        hint = nearest(env_id, gymnasium.registry) or ": any Gymnasium id will do, also module:Name-v0"
        raise UserError(f"unknown environment {env_id}{hint}") from None
    except (gymnasium.error.Error, ImportError, TypeError, AttributeError, AssertionError) as error:
        raise UserError(f"environment {env_id} cannot be made: {' '.join(str(error).split())}") from None


def _leading(env: gymnasium.Env[Any, Any], entries: int) -> gymnasium.Env[Any, Any]:
    space = env.observation_space
    assert isinstance(space, spaces.Box)
    shorter = spaces.Box(space.low[:entries], space.high[:entries], dtype=np.float64)
    return gymnasium.wrappers.TransformObservation(env, lambda obs: obs[:entries], shorter)


def prepare_rendering() -> None:
    """Choose EGL on machines without a display: MuJoCo reads the variable at its first import."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")


def _silence_mujoco() -> None:
    """Keep MuJoCo's notes on its own model files off the screen and out of MUJOCO_LOG.TXT."""
    import mujoco

    mujoco.set_mju_user_warning(lambda message: None)


def _checked_observation(space: spaces.Space[Any], name: str) -> int:
    if not isinstance(space, spaces.Box):
        kind = type(space).__name__
        hint = "gymnasium.wrappers.FlattenObservation makes it a vector" if kind == "Dict" else "a Box is needed"
        raise UserError(f"{name} has {kind} observations, which an agent on states cannot read: {hint}")
    if len(space.shape) > 1 and space.dtype == np.uint8:
        raise UserError(f"{name} has image observations {space.shape}: an agent on states needs a vector")
    return int(np.prod(space.shape))


def _checked_action(space: spaces.Space[Any], name: str) -> tuple[Array, Array]:
    if not isinstance(space, spaces.Box):
        raise UserError(f"{name} has {type(space).__name__} actions: these agents need continuous ones (Box)")
    low, high = (np.asarray(bound, dtype=np.float32).reshape(-1) for bound in (space.low, space.high))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UserError(
            f"{name} has unbounded actions: wrap it in gymnasium.wrappers.RescaleAction or give finite bounds"
        )
    return low, high
