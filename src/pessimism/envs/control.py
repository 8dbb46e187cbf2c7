"""Environments as the loop sees them: float32 vectors or stacked uint8 images, actions in (-1, 1).

A fault of an environment ends in one line that says what it did and where.
"""

import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import NormalizeObservation, NormalizeReward
from numpy.typing import NDArray

from pessimism.envs.rendering import rendering_error
from pessimism.errors import EnvironmentFault, UserError
from pessimism.types import Array, Observation

AnyEnv = gymnasium.Env[Any, Any]

UNBOUNDED = 1e30  # bounds as large as float32's largest number mean that there are none
FILM = (240, 320)  # height and width of a film's images where the environment leaves it open


class PolicyFault(UserError):
    """The policy returned an action that is not a number."""


class Step(NamedTuple):
    """What one action led to."""

    obs: Observation
    reward: float
    terminated: bool
    truncated: bool


class ControlEnv:
    """A continuous-control environment with its actions rescaled and its outputs checked and copied.

    With `images` its observations are stacks [stack, H, W, C]; all others are flattened.
    """

    def __init__(self, env: AnyEnv, name: str, *, images: bool = False) -> None:
        self.env, self.name = env, name
        self.space = _checked_space(env.observation_space, name, images)
        self.obs_shape = self.space.shape if images else (math.prod(self.space.shape),)
        self.obs_size = math.prod(self.obs_shape)
        low, high = _checked_action(env.action_space, name)
        self.action_size = low.size
        self.action_shape = env.action_space.shape or ()
        self._center, self._scale = (high + low) / 2, (high - low) / 2

    def reset(self, seed: int) -> Observation:
        """Start an episode that is a function of `seed`."""
        with no_traceback("the environment failed in reset"):
            obs, _ = self.env.reset(seed=seed)
            return self._checked(obs, "after reset")

    def step(self, action: Array) -> Step:
        """Take an action in (-1, 1)."""
        if not np.isfinite(action).all():
            raise PolicyFault(f"the policy's action became {action[~np.isfinite(action)][0]}")
        with no_traceback("the environment failed in step"):
            obs, reward, terminated, truncated, _ = self.env.step(self.scaled(action))
            checked = self._checked(obs, "after a step")
            return Step(checked, checked_reward(reward), bool(terminated), bool(truncated))

    def scaled(self, action: Array) -> Array:
        """Return an action in (-1, 1) in the environment's own units."""
        return np.asarray(self._center + self._scale * action, dtype=np.float32).reshape(self.action_shape)

    def scaled_batch(self, actions: Array) -> Array:
        """Return actions [B, act] in the environment's own units and shape: [B, *shape]."""
        scaled = np.asarray(self._center + self._scale * actions, dtype=np.float32)
        return scaled.reshape(len(actions), *self.action_shape)

    def unscaled_batch(self, actions: Array) -> Array:
        """Return actions [B, act] of the environment's own units in [-1, 1]; outside of that it does not take them.

        A dimension with one possible value is 0.
        """
        scale = np.where(self._scale > 0, self._scale, np.inf)
        return np.asarray((actions - self._center) / scale, dtype=np.float32)

    def render(self) -> NDArray[np.uint8]:
        """Return the current image for a film (environments made with render_mode="rgb_array")."""
        try:
            if draw := getattr(self.env.unwrapped, "film_frame", None):
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
        """Return a copy, as many environments return a buffer of their own that the next step overwrites."""
        if np.shape(obs) != self.space.shape:
            there, said = np.shape(obs), f"its observation_space has {self.space.shape}"
            raise EnvironmentFault(f"the environment returned an observation of shape {there} {when}: {said}")
        if len(self.obs_shape) > 1:
            return np.array(obs, dtype=np.uint8)
        if (kind := np.asarray(obs).dtype).kind not in "biuf":
            raise EnvironmentFault(f"the environment returned an observation of {kind} {when}: numbers are needed")
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which is refused
            flat = np.array(obs, dtype=np.float32).reshape(-1)
        if not np.isfinite(flat).all():
            index = int(np.flatnonzero(~np.isfinite(flat))[0])
            raise EnvironmentFault(f"the environment returned an observation with {flat[index]} at {index} {when}")
        return flat


EnvFactory = Callable[[], ControlEnv]


def is_image(space: spaces.Space[Any]) -> bool:
    """Return whether observations are images, or stacks of them."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3, 4)


def _checked_space(space: spaces.Space[Any], name: str, images: bool) -> spaces.Box:
    if not isinstance(space, spaces.Box):
        kind = type(space).__name__
        hint = "gymnasium.wrappers.FlattenObservation makes it a vector" if kind == "Dict" else "a Box is needed"
        raise UserError(f"{name} has {kind} observations, which an agent cannot read: {hint}")
    if math.prod(space.shape) == 0:
        raise UserError(f"{name} has empty observations: its observation_space has the shape {space.shape}")
    if not images and is_image(space):
        raise UserError(
            f"{name} has image observations {space.shape}: take an algorithm for pixels, such as drqv2 or gpl-drq"
        )
    return space


def _checked_action(space: spaces.Space[Any], name: str) -> tuple[Array, Array]:
    if not isinstance(space, spaces.Box):
        raise UserError(f"{name} has {type(space).__name__} actions: these agents need continuous ones (Box)")
    if not np.issubdtype(space.dtype, np.floating):
        raise UserError(f"{name} has actions of {space.dtype}: these agents need continuous ones (float32)")
    if math.prod(space.shape) == 0:
        raise UserError(f"{name} has no actions: its action_space has the shape {space.shape}")
    low, high = (np.asarray(bound, dtype=np.float64).reshape(-1) for bound in (space.low, space.high))
    if not max(np.abs(low).max(), np.abs(high).max()) < UNBOUNDED:
        raise UserError(
            f"{name} has unbounded actions: wrap it in gymnasium.wrappers.RescaleAction or give finite bounds"
        )
    return low.astype(np.float32), high.astype(np.float32)


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes each action several times; rewards are summed, and an episode's end stops the repeating."""

    def __init__(self, env: AnyEnv, times: int) -> None:
        super().__init__(env)
        self.times = times
        self.metadata = {**env.metadata, "render_fps": env.metadata.get("render_fps", 30) / times}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:  # noqa: ANN401
        """Return the last step with the sum of the rewards."""
        total = 0.0
        for _ in range(self.times):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += checked_reward(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


@contextmanager
def no_traceback(doing: str) -> Iterator[None]:
    """Turn whatever an environment raises into one line that names the place in its source."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvironmentFault(f"{doing}: {described(error)}") from error


def described(error: BaseException) -> str:
    """Return an error as one line, with the place in the source where it was raised."""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{said[:300]}{place}"


def checked_reward(reward: Any) -> float:  # noqa: ANN401
    """Return the reward as a number; an array with axes, or no number at all, is refused."""
    if np.ndim(reward) != 0:
        shape = np.shape(reward)
        raise EnvironmentFault(f"the environment returned a reward of shape {shape}: a number is needed")
    try:
        number = float(reward)
    except (TypeError, ValueError):
        raise EnvironmentFault(f"the environment returned the reward {reward!r}: a number is needed") from None
    if not math.isfinite(number):
        raise EnvironmentFault(f"the environment returned the reward {number}")
    return number


def check_stateless(env: AnyEnv) -> None:
    """Refuse wrappers that learn from what they see: their state is not saved, nor shared with evaluation."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, NormalizeObservation | NormalizeReward) and env.update_running_mean:
            name = type(env).__name__
            raise UserError(
                f"{name} learns statistics that evaluation and a resumed run would not share: leave it out, "
                "set update_running_mean = False once they are learned, or take pessimism.sb3 with VecNormalize"
            )
        env = env.env


def enlarged(image: NDArray[np.uint8], height: int) -> NDArray[np.uint8]:
    """Return a small image in whole multiples of its size, about `height` high."""
    times = max(1, round(height / image.shape[0]))
    return image.repeat(times, axis=0).repeat(times, axis=1)
