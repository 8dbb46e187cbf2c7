"""Image observations: one image per step, and the stack of the last few."""

import atexit
import weakref
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers
from numpy.typing import NDArray

from pessimism.envs.control import AnyEnv, is_image
from pessimism.envs.rendering import rendering_error
from pessimism.errors import EnvironmentFault, UserError


class PixelView(NamedTuple):
    """How an agent sees an environment.

    Observations that are images already are stacked as they are; `size` and `camera` have no effect.
    """

    size: int = 84  # height and width of an image
    stack: int = 3  # images in an observation, the oldest first
    camera: int | None = None  # None: the task's own (2 for quadruped, else 0)


class OwnContext(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws one of Gymnasium's MuJoCo tasks in its own GL context.

    Gymnasium draws in whichever context is current. Beside other environments that is another one's, and once
    that one is closed the image is wrong, without an error. So environments stay open until the process ends.
    """

    drawn = False

    def render(self) -> Any:  # noqa: ANN401
        """Return the image."""
        self.env.unwrapped.mujoco_renderer._get_viewer("rgb_array").make_context_current()  # type: ignore[attr-defined]
        if not self.drawn:  # mujoco is loaded by now and ends its display at exit: a context must be closed before
            atexit.register(_close, weakref.ref(self))
            self.drawn = True
        return self.env.render()


def _close(reference: "weakref.ref[OwnContext]") -> None:
    if (env := reference()) is not None:
        env.close()


def viewed(env: AnyEnv, stack: int, name: str) -> AnyEnv:
    """Return the environment with observations [stack, H, W, C]: of its own images, or of rendered ones."""
    own = is_image(env.observation_space)
    images = _channels_last(_copied(env), name) if own else _copied(_rendered(env, name))
    return wrappers.FrameStackObservation(images, stack, padding_type="reset")


def _copied(env: AnyEnv) -> AnyEnv:
    """Return the environment with its images checked and copied.

    The stack keeps what it is given, and that may be a buffer which the next step overwrites.
    """
    shape = env.observation_space.shape or ()

    def copied(image: Any) -> NDArray[np.uint8]:  # noqa: ANN401
        copy = np.array(image)
        if copy.shape != shape or copy.dtype != np.uint8:
            there, said = f"{copy.dtype} {copy.shape}", f"its observation_space has uint8 {shape}"
            raise EnvironmentFault(f"the environment returned an image of {there}: {said}")
        return copy

    return _transformed(env, shape, copied)


def _rendered(env: AnyEnv, name: str) -> AnyEnv:
    if env.render_mode != "rgb_array":
        raise UserError(f'{name} has no image observations: make it with render_mode="rgb_array" to draw them')
    if hasattr(env.unwrapped, "mujoco_renderer"):
        env = OwnContext(env)
    try:
        return wrappers.AddRenderObservation(env, render_only=True)
    except Exception as error:  # each GL platform fails in a way of its own
        raise rendering_error(error) from None


def _channels_last(env: AnyEnv, name: str) -> AnyEnv:
    """Return images [H, W, C] of 1 or 3 colours, from that, [H, W] or [C, H, W]."""
    shape = env.observation_space.shape or ()
    if len(shape) == 4:
        raise UserError(f"{name} has image observations {shape}: one image is needed, stacks are made here")
    if len(shape) == 2:
        return _transformed(env, (*shape, 1), lambda image: image[..., None])
    if shape[2] in (1, 3):
        return env
    if shape[0] in (1, 3):
        return _transformed(env, (*shape[1:], shape[0]), lambda image: np.moveaxis(image, 0, -1))
    raise UserError(f"{name} has image observations {shape}: 1 or 3 colours are needed, as first or last axis")


def _transformed(env: AnyEnv, shape: tuple[int, ...], change: Any) -> AnyEnv:  # noqa: ANN401
    return wrappers.TransformObservation(env, change, spaces.Box(0, 255, shape, np.uint8))
