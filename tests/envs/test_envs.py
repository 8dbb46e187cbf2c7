"""Environments as the loop sees them, and the ones that it cannot use."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from pessimism.envs.control import ControlEnv, PolicyFault
from pessimism.envs.frames import PixelView
from pessimism.envs.make import adapt, known, make
from pessimism.errors import EnvironmentFault, UserError


class Probe(gymnasium.Env):
    """Returns whatever it was told to, and remembers the last action."""

    def __init__(self, observation_space=None, action_space=None, obs=0.0, reward=0.0):
        self.observation_space = observation_space or spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = action_space or spaces.Box(
            np.array([-2.0, 0.0]), np.array([2.0, 10.0]), dtype=np.float64
        )
        self.obs, self.reward = obs, reward

    def reset(self, *, seed=None, options=None):
        return np.zeros(2), {}

    def step(self, action):
        self.action = action
        return np.full(2, self.obs), self.reward, False, False, {}


def test_actions_are_mapped_to_the_bounds():
    probe = Probe()
    env = ControlEnv(probe, "probe")
    for action, expected in (([-1, -1], [-2, 0]), ([1, 1], [2, 10]), ([0, 0], [0, 5]), ([0.5, -0.5], [1, 2.5])):
        env.step(np.array(action, np.float32))
        assert probe.action.tolist() == pytest.approx(expected)


def test_observations_are_float32_vectors():
    env = ControlEnv(Probe(), "probe")
    obs = env.reset(0)
    assert (obs.dtype, obs.shape) == (np.float32, (2,))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Dict({"a": spaces.Box(-1, 1, (2,))}), "Dict observations.*FlattenObservation"),
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), "image observations"),
        (spaces.Discrete(3), "Discrete observations"),
    ],
)
def test_observations_that_are_no_vector_are_refused(space, message):
    with pytest.raises(UserError, match=message):
        ControlEnv(Probe(observation_space=space), "probe")


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Discrete(2), "Discrete actions"),
        (spaces.Box(-np.inf, np.inf, (1,)), "unbounded actions.*finite bounds"),
    ],
)
def test_actions_that_are_not_bounded_and_continuous_are_refused(space, message):
    with pytest.raises(UserError, match=message):
        ControlEnv(Probe(action_space=space), "probe")


@pytest.mark.parametrize(
    ("changes", "message"), [({"reward": np.nan}, "reward nan"), ({"obs": np.inf}, "inf at 0")]
)
def test_numbers_that_nothing_can_be_learned_from_stop_the_run(changes, message):
    with pytest.raises(EnvironmentFault, match=message):
        ControlEnv(Probe(**changes), "probe").step(np.zeros(2, np.float32))


def test_an_unknown_environment_is_answered_with_the_nearest():
    with pytest.raises(UserError, match="unknown environment Hoper-v4; did you mean Hopper-v"):
        make("Hoper-v4")


def test_wrong_arguments_of_an_environment_are_one_line():
    with pytest.raises(UserError, match="Hopper-v4 cannot be made: .*no_such_argument") as caught:
        make("Hopper-v4", no_such_argument=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("task", ["Hopper", "HalfCheetah", "Walker2d", "Ant", "Humanoid"])
def test_the_papers_tasks_repeat_from_their_seed_and_leave_no_log_behind(task, tmp_path):
    env = make(f"{task}-v4")
    action = np.full(env.action_size, 0.1, np.float32)
    traces = []
    for _ in range(2):
        start = env.reset(7)
        traces.append([start, *(env.step(action).obs for _ in range(5))])
    assert np.array_equal(traces[0], traces[1])
    assert not list(tmp_path.iterdir())


class Reused(gymnasium.Env):
    """Returns the same array each time, as many simulators do: a vector, an image, or a drawing of it."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    render_mode = "rgb_array"

    def __init__(self, space):
        self.observation_space = space
        self._buffer, self._drawing = np.zeros(space.shape, space.dtype), np.zeros((24, 24, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        self._buffer[:] = self._drawing[:] = 0
        return self._buffer, {}

    def step(self, action):
        self._buffer += 1
        self._drawing += 1
        return self._buffer, 0.0, False, False, {}

    def render(self):
        return self._drawing


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_an_environment_hands_out_is_copied(dtype):
    env = adapt(Reused(spaces.Box(-1, 9, (2,), dtype)), "reused")
    seen = [env.reset(0), *(env.step(np.zeros(1, np.float32)).obs for _ in range(3))]
    assert [obs.tolist() for obs in seen] == [[0, 0], [1, 1], [2, 2], [3, 3]]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (24, 24, 3), np.uint8),
        spaces.Box(0, 255, (3, 24, 24), np.uint8),
        spaces.Box(0, 255, (24, 24), np.uint8),
        spaces.Box(-1, 9, (2,), np.float32),
    ],
    ids=["own images", "channels first", "grey", "drawn"],
)
def test_the_images_of_a_stack_are_copies_too(space):
    env = adapt(Reused(space), "reused", PixelView(stack=3))
    seen = [env.reset(0), *(env.step(np.zeros(1, np.float32)).obs for _ in range(3))]
    assert [obs[:, 0, 0, 0].tolist() for obs in seen] == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]


def test_an_action_that_is_not_a_number_is_the_policys_fault():
    probe = Probe()
    with pytest.raises(PolicyFault, match="the policy's action became nan"):
        ControlEnv(probe, "probe").step(np.array([0.0, np.nan], np.float32))
    assert not hasattr(probe, "action")


def test_a_camera_that_a_task_does_not_have_is_refused_before_anything_is_drawn(monkeypatch):
    monkeypatch.setattr("pessimism.envs.make.check_rendering", lambda: None)
    monkeypatch.setattr("pessimism.envs.make.adapt", lambda *arguments: "adapted")
    assert make("Hopper-v4", view=PixelView(camera=0)) == "adapted"
    with pytest.raises(UserError, match="Hopper-v4 has no camera 99: --pixels.camera goes up to 0"):
        make("Hopper-v4", view=PixelView(camera=99))


def test_vector_environments_are_refused():
    several = gymnasium.make_vec("Hopper-v5", num_envs=2, vectorization_mode="sync")
    with pytest.raises(UserError, match="SyncVectorEnv: a single gymnasium.Env is needed"):
        adapt(several, "several")
    several.close()


def test_a_name_from_a_file_imports_nothing_but_this_library():
    assert known("Hopper-v4") == "Hopper-v4"
    assert known("elsewhere:Hopper-v4") == "Hopper-v4"  # registered already: its module is not needed
    assert known("pessimism.envs.toys:pessimism-toys/Line-v0") == "pessimism.envs.toys:pessimism-toys/Line-v0"
    for name in ("evil:X-v0", "pessimism.envs.toysX:X-v0", "os:", ":"):
        with pytest.raises(UserError, match="if you trust it give --trust-env"):
            known(name)
