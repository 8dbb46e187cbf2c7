"""Environments as the loop sees them: float32 vectors or stacked uint8 pictures, actions in (-1, 1)."""

import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pessimism.envs.frames import ActionRepeat, AnyEnv, PixelView, enlarged, is_image, viewed
from pessimism.envs.rendering import check_rendering, prepare_rendering, rendering_error, silence_mujoco
from pessimism.errors import UserError, nearest
from pessimism.tasks import canonical

Array = NDArray[np.float32]
Observation = NDArray[Any]
"""A float32 vector [n], or uint8 pictures [stack, H, W, C], the oldest first."""
FILM = (240, 320)  # height and width of a film's pictures where the environment leaves it open


class NonFiniteError(UserError):
    """The environment returned a number that nothing can be learned from."""


class Step(NamedTuple):
    """What one action led to."""

    obs: Observation
    reward: float
    terminated: bool
    truncated: bool


class ControlEnv:
    """A continuous-control environment with its actions rescaled and its outputs checked."""

    def __init__(self, env: AnyEnv, name: str) -> None:
        self.env = env
        self.obs_shape = _checked_observation(env.observation_space, name)
        self.obs_size = math.prod(self.obs_shape)
        low, high = _checked_action(env.action_space, name)
        self.action_size = low.size
        self._shape = env.action_space.shape
        self._center, self._scale = (high + low) / 2, (high - low) / 2

    def reset(self, seed: int) -> Observation:
        """Start an episode that is a function of `seed`."""
        obs, _ = self.env.reset(seed=seed)
        return self._checked(obs, "after reset")

    def step(self, action: Array) -> Step:
        """Take an action in (-1, 1)."""
        obs, reward, terminated, truncated, _ = self.env.step(self.scaled(action))
        if not math.isfinite(float(reward)):
            raise NonFiniteError(f"the environment returned the reward {reward}")
        return Step(self._checked(obs, "after a step"), float(reward), terminated, truncated)

    def scaled(self, action: Array) -> Array:
        """Return an action in (-1, 1) in the environment's own units."""
        return np.asarray(self._center + self._scale * action, dtype=np.float32).reshape(self._shape)

    def render(self) -> NDArray[np.uint8]:
        """Return the current picture for a film (environments made with render_mode="rgb_array")."""
        try:
            if draw := getattr(self.env.unwrapped, "film_picture", None):
                return draw()
            return enlarged(np.asarray(self.env.render(), dtype=np.uint8), FILM[0])
        except UserError:
            raise
        except Exception as error:  # each GL platform fails in a way of its own
            raise rendering_error(error) from None

    def close(self) -> None:
        """Free what the environment holds."""
        self.env.close()

    def _checked(self, obs: Any, when: str) -> Observation:  # noqa: ANN401
        if len(self.obs_shape) > 1:
            return np.asarray(obs)
        flat = np.asarray(obs, dtype=np.float32).reshape(-1)
        if not np.isfinite(flat).all():
            index = int(np.flatnonzero(~np.isfinite(flat))[0])
            raise NonFiniteError(f"the environment returned an observation with {flat[index]} at {index} {when}")
        return flat


EnvFactory = Callable[[], ControlEnv]


def make(
    env_id: str,
    *,
    entries: int | None = None,
    view: PixelView | None = None,
    action_repeat: int = 1,
    **kwargs: Any,  # noqa: ANN401
) -> ControlEnv:
    """Make a task of DeepMind Control or a registered environment, or say in one line why it cannot be used.

    `entries` keeps that many leading entries of its observations. With a `view` observations are stacked
    pictures: the environment's own, or rendered ones.
    """
    prepare_rendering()
    try:
        with warnings.catch_warnings():
            # The -v4 tasks are the paper's; that newer versions exist is no news to the user.
            warnings.filterwarnings("ignore", message=".*is out of date.*")
            task = canonical(env_id)
            env = _registered(env_id, view, kwargs) if task is None else _suite(task, view, kwargs)
            return adapt(env if entries is None else _leading(env, entries), env_id, view, action_repeat)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.NamespaceNotFound):
        hint = nearest(env_id, gymnasium.registry) or ": any Gymnasium id will do, also module:Name-v0"
        raise UserError(f"unknown environment {env_id}{hint}") from None
    except (gymnasium.error.Error, ImportError, TypeError, AttributeError, AssertionError) as error:
        raise UserError(f"environment {env_id} cannot be made: {' '.join(str(error).split())}") from None


def adapt(env: AnyEnv, name: str, view: PixelView | None = None, action_repeat: int = 1) -> ControlEnv:
    """Return an environment in the shape in which the loop sees it."""
    if action_repeat > 1:
        env = ActionRepeat(env, action_repeat)  # inside the view: only the last of the steps is drawn
    return ControlEnv(env if view is None else viewed(env, view.stack, name), name)


def _suite(task: str, view: PixelView | None, kwargs: dict[str, Any]) -> AnyEnv:
    try:
        from pessimism.envs.dmc import ControlSuiteEnv
    except ModuleNotFoundError:
        raise UserError("DeepMind Control is not installed: pip install 'pessimism[dmc]'") from None
    except Exception as error:  # the backend that MUJOCO_GL names is loaded at import
        raise rendering_error(error) from None
    if view is not None:
        kwargs = {"size": view.size, "camera": view.camera} | kwargs
    return ControlSuiteEnv(task, **kwargs)


def _registered(env_id: str, view: PixelView | None, kwargs: dict[str, Any]) -> AnyEnv:
    if ":" in env_id and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # module:Name-v0 may be a file of the user's
    silence_mujoco()
    env: AnyEnv = gymnasium.make(env_id, **kwargs)
    if view is None or is_image(env.observation_space):
        return env
    env.close()
    check_rendering()
    drawn = {"render_mode": "rgb_array", "width": view.size, "height": view.size}
    if view.camera is not None:
        drawn["camera_id"] = view.camera
    try:
        return gymnasium.make(env_id, **kwargs | drawn)
    except TypeError:
        raise UserError(
            f"{env_id} has no image observations and cannot be drawn at {view.size} x {view.size}: "
            "learn from its states, or wrap it so that it observes pictures"
        ) from None


def _leading(env: AnyEnv, entries: int) -> AnyEnv:
    space = env.observation_space
    assert isinstance(space, spaces.Box)
    shorter = spaces.Box(space.low[:entries], space.high[:entries], dtype=np.float64)
    return gymnasium.wrappers.TransformObservation(env, lambda obs: obs[:entries], shorter)


def _checked_observation(space: spaces.Space[Any], name: str) -> tuple[int, ...]:
    if not isinstance(space, spaces.Box):
        kind = type(space).__name__
        hint = "gymnasium.wrappers.FlattenObservation makes it a vector" if kind == "Dict" else "a Box is needed"
        raise UserError(f"{name} has {kind} observations, which an agent cannot read: {hint}")
    if is_image(space):
        raise UserError(
            f"{name} has image observations {space.shape}: take an algorithm for pixels, such as drqv2 or gpl-drq"
        )
    pictures = space.dtype == np.uint8 and len(space.shape) == 4
    return space.shape if pictures else (math.prod(space.shape),)


def _checked_action(space: spaces.Space[Any], name: str) -> tuple[Array, Array]:
    if not isinstance(space, spaces.Box):
        raise UserError(f"{name} has {type(space).__name__} actions: these agents need continuous ones (Box)")
    low, high = (np.asarray(bound, dtype=np.float32).reshape(-1) for bound in (space.low, space.high))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UserError(
            f"{name} has unbounded actions: wrap it in gymnasium.wrappers.RescaleAction or give finite bounds"
        )
    return low, high
