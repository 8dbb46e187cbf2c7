"""From the name of a task, or a Gymnasium environment, to the environment that an agent trains in."""

import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from pessimism.config.tasks import FAMILIES, Family
from pessimism.envs.control import ActionRepeat, AnyEnv, ControlEnv, check_stateless, described, is_image
from pessimism.envs.frames import PixelView, viewed
from pessimism.envs.rendering import check_rendering, prepare_rendering, rendering_error, silence_mujoco
from pessimism.errors import UserError, nearest
from pessimism.extras import missing

TOYS = "pessimism.envs.toys"


def known(env_id: str) -> str:
    """Return an environment's id that was read from a file, in a form that imports no module but this library's.

    `module:Name-v0` makes Gymnasium import the module, and a file must not choose what is imported. Where the
    environment is registered already, its name alone is enough.
    """
    module, colon, name = env_id.partition(":")
    if not colon or module == TOYS:
        return env_id
    if name in gymnasium.registry:
        return name
    raise UserError(
        f"the file names the environment {env_id}, for which Python would run the module {module}: "
        "if you trust it give --trust-env (from Python: env=..., or import the module first)"
    )


def make(
    env_id: str,
    arguments: Mapping[str, Any] | None = None,
    /,
    *,
    entries: int | None = None,
    view: PixelView | None = None,
    action_repeat: int = 1,
    **kwargs: Any,  # noqa: ANN401
) -> ControlEnv:
    """Make an environment by its canonical name, or say in one line why it cannot be used.

    `arguments` and `kwargs` are the environment's own. `entries` keeps that many leading entries of its
    observations. With a `view` observations are stacked images: the environment's own, or rendered ones.
    """
    prepare_rendering()
    silence_mujoco()
    kwargs = {**(arguments or {}), **kwargs}
    try:
        with warnings.catch_warnings():
            # The -v4 tasks are the paper's: no warning that newer versions exist.
            warnings.filterwarnings("ignore", message=".*is out of date.*")
            family = next((entry for prefix, entry in FAMILIES.items() if env_id.startswith(prefix)), None)
            env = _registered(env_id, view, kwargs) if family is None else _of_family(env_id, family, view, kwargs)
            return adapt(env if entries is None else _leading(env, entries), env_id, view, action_repeat)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.NamespaceNotFound):
        hint = nearest(env_id, gymnasium.registry) or ": any Gymnasium id will do, also module:Name-v0"
        raise UserError(f"unknown environment {env_id}{hint}") from None
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # its constructor is the user's code
        raise UserError(f"environment {env_id} cannot be made: {described(error)}") from error


def adapt(env: AnyEnv, name: str, view: PixelView | None = None, action_repeat: int = 1) -> ControlEnv:
    """Return an environment with the interface that the loop uses."""
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"{name} is a {type(env).__name__}: a single gymnasium.Env is needed, not several at once")
    check_stateless(env)
    if action_repeat > 1:
        env = ActionRepeat(env, action_repeat)  # inside the view: only the last of the steps is drawn
    if view is None:
        return ControlEnv(env, name)
    return ControlEnv(viewed(env, view.stack, name), name, images=True)


def _of_family(task: str, family: Family, view: PixelView | None, kwargs: dict[str, Any]) -> AnyEnv:
    try:
        environment: Callable[..., AnyEnv] = resolve_name(family.implementation)
    except ModuleNotFoundError:
        raise missing(family.title, family.extra) from None
    except Exception as error:  # the backend that MUJOCO_GL names is loaded at import
        raise rendering_error(error) from None
    if view is not None:
        kwargs = {"size": view.size, "camera": view.camera} | kwargs
    return environment(task, **kwargs)


def _registered(env_id: str, view: PixelView | None, kwargs: dict[str, Any]) -> AnyEnv:
    module, colon, name = env_id.partition(":")
    if (colon and not (module and name)) or ":" in name:
        raise UserError(f"unknown environment {env_id}: write Name-v0, or module:Name-v0")
    if colon and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # module:Name-v0 may be a file of the user's; installed modules come first
    kwargs = {"disable_env_checker": True} | kwargs  # ControlEnv checks each step, and stops where it only warns
    env: AnyEnv = gymnasium.make(env_id, **kwargs)
    if view is None or is_image(env.observation_space):
        return env
    env.close()
    check_rendering()
    rendering = {"render_mode": "rgb_array", "width": view.size, "height": view.size}
    if view.camera is not None:
        rendering["camera_id"] = view.camera
    try:
        env = gymnasium.make(env_id, **kwargs | rendering)
    except TypeError:
        raise UserError(
            f"{env_id} has no image observations and cannot be drawn at {view.size} x {view.size}: "
            "learn from its states, or wrap it in one that observes images"
        ) from None
    _check_camera(env, env_id, view.camera)
    return env


def _check_camera(env: AnyEnv, env_id: str, camera: int | None) -> None:
    """Refuse a camera that a MuJoCo task does not have: MuJoCo itself would end the process."""
    count = getattr(getattr(env.unwrapped, "model", None), "ncam", None)
    if camera is not None and count is not None and camera >= count:
        raise UserError(f"{env_id} has no camera {camera}: --pixels.camera goes up to {count - 1}")


def _leading(env: AnyEnv, entries: int) -> AnyEnv:
    space = env.observation_space
    assert isinstance(space, spaces.Box)
    shorter = spaces.Box(space.low[:entries], space.high[:entries], dtype=np.float64)
    return gymnasium.wrappers.TransformObservation(env, lambda obs: obs[:entries], shorter)
