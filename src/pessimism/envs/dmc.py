"""DeepMind Control behind Gymnasium's interface: vectors as observations, images on demand.

dm_control is an extra and loads the renderer at its import: import this module late.
"""

import math
from typing import Any, Literal

import gymnasium
import numpy as np
from dm_control import manipulation, suite
from dm_control.rl.control import PhysicsError
from gymnasium import spaces
from numpy.typing import NDArray

from pessimism.envs.control import FILM
from pessimism.envs.rendering import rendering_error, silence_mujoco
from pessimism.errors import EnvironmentFault, UserError, nearest

Vector = NDArray[np.float32]
Image = NDArray[np.uint8]
Quality = Literal["standard", "fast"]
# Shadow map and samples per pixel. dm_control's 4096 gives the same image as 1024 (mean difference below
# 0.1 of 255) at two thirds of the speed; `fast` doubles the speed again and differs by about 1.
QUALITY: dict[str, tuple[int, int | None]] = {"standard": (1024, None), "fast": (512, 0)}
CAMERA = {"quadruped": 2}  # else 0, after DrQ-v2
MANIPULATION_CAMERA = "front_close"


class ControlSuiteEnv(gymnasium.Env[Vector, NDArray[Any]]):
    """A task of dm_control's suite or of its manipulation tasks.

    An episode is a function of the seed given to `reset`. `render` draws size x size with the task's camera;
    `film_frame` draws larger. `quality="fast"` draws coarser shadows and edges, about twice as fast.
    """

    def __init__(
        self,
        name: str,
        *,
        size: int = 84,
        camera: int | None = None,
        quality: Quality = "standard",
        render_mode: Literal["rgb_array"] = "rgb_array",
    ) -> None:
        if quality not in QUALITY:
            raise TypeError(f"quality is {' or '.join(QUALITY)}, not {quality}")
        self.render_mode = render_mode
        self.size = size
        self._env, self._random, visual, usual_camera = _load(name)
        _set_drawing(visual, quality, size)
        self._camera = usual_camera if camera is None else camera
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / self._env.control_timestep())}
        spec = self._env.action_spec()
        self.action_space = spaces.Box(spec.minimum, spec.maximum, spec.shape, np.float64)
        entries = sum(math.prod(part.shape) for part in self._env.observation_spec().values())
        self.observation_space = spaces.Box(-np.inf, np.inf, (entries,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Start an episode; without a seed it follows from the ones before."""
        super().reset(seed=seed)
        self._random.seed(int(self.np_random.integers(2**32)) if seed is None else seed % 2**32)
        return _vector(self._env.reset().observation), {}

    def step(self, action: NDArray[Any]) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Take one control step. Only a discount of 0 is a termination; a time limit truncates."""
        try:
            step = self._env.step(np.asarray(action, dtype=np.float64))
        except PhysicsError as error:
            raise EnvironmentFault(
                f"the physics of the environment diverged: {' '.join(str(error).split())}"
            ) from None
        over = step.discount == 0.0
        return _vector(step.observation), float(step.reward), step.last() and over, step.last() and not over, {}

    def render(self) -> Image:
        """Return what the agent's camera sees."""
        return self._image(self.size, self.size)

    def film_frame(self) -> Image:
        """Return what the agent's camera sees, in the size of a film."""
        return self._image(*FILM)

    def _image(self, height: int, width: int) -> Image:
        try:
            return self._env.physics.render(height, width, camera_id=self._camera)
        except Exception as error:  # each GL platform fails in a way of its own
            raise rendering_error(error) from None

    def close(self) -> None:
        """Free the physics and the GL context."""
        if self._env.physics is not None:
            self._env.physics.free()


def _vector(observation: dict[str, Any]) -> Vector:
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float32)


def _load(name: str) -> tuple[Any, Any, Any, int | str]:
    """Return the dm_control environment of a canonical name, its random state, visual settings and camera."""
    silence_mujoco()  # importing dm_control has set its own handler for MuJoCo's warnings
    plain = name.removeprefix("dmc/")
    tasks = {f"{domain}-{task}".replace("_", "-"): (domain, task) for domain, task in suite.ALL_TASKS}
    arms = {arm.removesuffix("_features").replace("_", "-"): arm for arm in manipulation.ALL if "_features" in arm}
    if plain in tasks:
        domain, task = tasks[plain]
        env = suite.load(domain, task)
        return env, env.task.random, env.physics.model.vis, CAMERA.get(domain, 0)
    if plain in arms:
        env = manipulation.load(arms[plain])
        # The model is compiled again for each episode: its source has to change.
        return env, env.random_state, env.task.root_entity.mjcf_model.visual, MANIPULATION_CAMERA
    hint = nearest(name, [f"dmc/{known}" for known in (*tasks, *arms)])
    raise UserError(f"unknown task {name} of DeepMind Control{hint}")


def _set_drawing(visual: Any, quality: str, size: int) -> None:  # noqa: ANN401
    """Set how the model is drawn, and the largest image: 640 x 480 would take 13 MB more in each environment."""
    shadows, samples = QUALITY[quality]
    visual.quality.shadowsize = shadows
    if samples is not None:
        visual.quality.offsamples = samples
    buffer = getattr(visual, "global_", None) or getattr(visual, "global")  # the latter in a model's source
    buffer.offheight, buffer.offwidth = (max(size, side) for side in FILM)
