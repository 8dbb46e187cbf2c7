"""DeepMind Control and images: names, seeds, shapes, stacks, repeats, and machines that draw nothing."""

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from pessimism.config.tasks import DMC_EASY, DMC_HARD, DMC_MEDIUM, canonical
from pessimism.envs import make as making
from pessimism.envs.control import ActionRepeat, enlarged
from pessimism.envs.frames import PixelView
from pessimism.envs.rendering import BACKENDS, Backend, choose
from pessimism.errors import UserError

EVERY_TASK = (*DMC_EASY, *DMC_MEDIUM, *DMC_HARD)
SMALL = PixelView(size=32)


class Film(gymnasium.Env):
    """Shows its time in every pixel and pays it; ends after `length` steps."""

    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, shape=(40, 48, 3), length=5, terminates=True):
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.length, self.terminates = length, terminates

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self._image(), {}

    def step(self, action):
        self.time += 1
        over = self.time >= self.length
        return self._image(), float(self.time), over and self.terminates, over and not self.terminates, {}

    def _image(self):
        return np.full(self.observation_space.shape, self.time, np.uint8)


gymnasium.register("pessimism-film/Film-v0", entry_point=Film)


def steps(env, seed, count=4):
    """Return the first observation, and the observations and rewards of some fixed actions after it."""
    first, phase = env.reset(seed), np.arange(env.action_size)
    after = [env.step(np.sin(phase + k).astype(np.float32)) for k in range(count)]
    return [first, *(step.obs for step in after)], [step.reward for step in after]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("dmc/cheetah-run", "dmc/cheetah-run"),
        ("dmc/cheetah_run", "dmc/cheetah-run"),
        ("cheetah_run", "dmc/cheetah-run"),
        ("dm_control/cheetah-run-v0", "dmc/cheetah-run"),
        ("dmc/cup-catch", "dmc/ball-in-cup-catch"),
        ("cup_catch", "dmc/ball-in-cup-catch"),
        ("dmc/ball_in_cup-catch", "dmc/ball-in-cup-catch"),
        ("dmc/cartpole-swingup_sparse", "dmc/cartpole-swingup-sparse"),
        ("reach_duplo", "dmc/reach-duplo"),
        ("dmc/dog-fetch", "dmc/dog-fetch"),
        ("Hopper-v4", "Hopper-v4"),
        ("dog-fetch", "dog-fetch"),
        ("pessimism.envs.toys:pessimism-toys/Line-v0", "pessimism.envs.toys:pessimism-toys/Line-v0"),
    ],
)
def test_a_task_has_one_name_and_many_spellings(spelling, name):
    assert canonical(spelling) == name


def test_the_sets_are_drqv2s_and_their_names_are_canonical():
    assert [len(tasks) for tasks in (DMC_EASY, DMC_MEDIUM, DMC_HARD)] == [9, 12, 3]
    assert len(set(EVERY_TASK)) == 24
    assert [canonical(task) for task in EVERY_TASK] == list(EVERY_TASK)


# Sizes as dm_control's paper gives them (Tassa et al., 2018, table 1), where it has the task.
@pytest.mark.parametrize(
    ("task", "obs_size", "action_size"),
    [
        ("acrobot-swingup", 6, 1),
        ("cartpole-swingup-sparse", 5, 1),
        ("ball-in-cup-catch", 8, 2),
        ("cheetah-run", 17, 6),
        ("finger-turn-hard", 12, 2),
        ("hopper-hop", 15, 4),
        ("humanoid-run", 67, 21),
        ("pendulum-swingup", 3, 1),
        ("quadruped-walk", 78, 12),
        ("reacher-easy", 6, 2),
        ("walker-run", 24, 6),
        ("reach-duplo", 55, 9),
    ],
)
def test_a_task_from_states(task, obs_size, action_size):
    env = making.make(f"dmc/{task}")
    obs = env.reset(0)
    assert (env.obs_shape, obs.shape, obs.dtype) == ((obs_size,), (obs_size,), np.float32)
    assert env.action_size == action_size
    assert 0 <= env.step(np.zeros(action_size, np.float32)).reward <= 1
    env.close()


def test_every_task_is_one_that_dm_control_has():
    making.prepare_rendering()
    from dm_control import manipulation, suite

    known = {f"dmc/{domain}-{task}".replace("_", "-") for domain, task in suite.ALL_TASKS}
    known |= {"dmc/" + name.removesuffix("_features").replace("_", "-") for name in manipulation.ALL}
    assert set(EVERY_TASK) <= known


def test_an_unknown_task_is_answered_with_the_nearest():
    with pytest.raises(UserError, match="unknown task dmc/cheetah-rum .*; did you mean dmc/cheetah-run"):
        making.make("dmc/cheetah-rum")


def test_wrong_arguments_of_a_task_are_one_line():
    with pytest.raises(UserError, match="quality is standard or fast, not best"):
        making.make("dmc/cheetah-run", quality="best")
    with pytest.raises(UserError, match="cannot be made: .*no_such_argument"):
        making.make("dmc/cheetah-run", no_such_argument=1)


@pytest.mark.parametrize(("repeat", "length"), [(1, 1000), (2, 500), (3, 334)])
def test_an_episode_of_the_suite_is_a_thousand_control_steps_and_is_cut_not_ended(repeat, length):
    env = making.make("dmc/cartpole-balance", action_repeat=repeat)
    env.reset(0)
    rest, ends = np.zeros(1, np.float32), []
    while not ends or ends[-1] == (False, False):
        step = env.step(rest)
        ends.append((step.terminated, step.truncated))
    assert (len(ends), ends[-1]) == (length, (False, True))


def test_a_task_from_pixels():
    env = making.make("dmc/cheetah-run", view=PixelView(), action_repeat=2)
    assert (env.obs_shape, env.obs_size, env.action_size) == ((3, 84, 84, 3), 63504, 6)
    (first, second, third, *_), _ = steps(env, 0)
    assert (first.shape, first.dtype) == ((3, 84, 84, 3), np.uint8)
    assert np.array_equal(first[0], first[2])
    assert np.array_equal(second[:2], first[1:])
    assert np.array_equal(third[:2], second[1:])
    assert not np.array_equal(third[2], first[2])
    assert env.render().shape == (240, 320, 3)
    assert env.env.metadata["render_fps"] == 50
    env.close()


def test_states_and_pixels_are_the_same_task():
    seen = [steps(making.make("dmc/walker-run", view=view, action_repeat=2), 3)[1] for view in (None, SMALL)]
    assert seen[0] == seen[1]


def test_a_repeated_action_is_that_many_steps():
    once, thrice = making.make("dmc/walker-run"), making.make("dmc/walker-run", action_repeat=3)
    action = np.full(6, 0.3, np.float32)
    once.reset(1), thrice.reset(1)
    single = [once.step(action) for _ in range(3)]
    together = thrice.step(action)
    assert together.reward == sum(step.reward for step in single)
    assert np.array_equal(together.obs, single[-1].obs)


TRACE = """
import hashlib, sys
import numpy as np
from pessimism.envs import make as making
env = making.make(sys.argv[1], view=making.PixelView(size=32), action_repeat=2)
digest = hashlib.sha256(env.reset(11).tobytes())
for k in range(4):
    step = env.step(np.sin(np.arange(env.action_size) + k).astype(np.float32))
    digest.update(step.obs.tobytes() + np.float64(step.reward).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.parametrize("task", ["dmc/finger-turn-easy", "dmc/reach-duplo"])
def test_an_episode_is_a_function_of_its_seed(task):
    env, other = (making.make(task, view=SMALL) for _ in range(2))
    first, different = steps(env, 11), steps(env, 12)
    for repeated in (steps(env, 11), steps(other, 11)):
        assert np.array_equal(repeated[0], first[0])
        assert repeated[1] == first[1]
    assert not np.array_equal(different[0], first[0])
    env.close(), other.close()


def test_an_episode_is_the_same_in_every_process():
    command = [sys.executable, "-c", TRACE, "dmc/reacher-easy"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert len(first.strip()) == 64
    assert first == second


def test_reach_duplo_shows_what_its_own_vision_task_shows():
    env = making.make("dmc/reach-duplo", view=PixelView(stack=1))
    from dm_control import manipulation

    vision = manipulation.load("reach_duplo_vision")
    vision.random_state.seed(5)
    image = vision.reset().observation["front_close"]
    assert image.shape == (1, 84, 84, 3)
    # A shadow map of 1024 instead of 4096 may move a shadow's edge.
    assert np.abs(env.reset(5).astype(int) - image).mean() < 0.1
    vision.close(), env.close()


def test_quadruped_is_seen_from_camera_2_unless_another_is_asked_for():
    images = [making.make("dmc/quadruped-walk", view=PixelView(32, 1, camera)).reset(0) for camera in (None, 2, 0)]
    assert np.array_equal(images[0], images[1])
    assert not np.array_equal(images[0], images[2])


def test_the_fast_quality_is_nearly_the_same_image():
    standard, fast = (
        making.make("dmc/cartpole-swingup", view=PixelView(stack=1), **extra).reset(0).astype(int)
        for extra in ({}, {"quality": "fast"})
    )
    assert 0 < np.abs(standard - fast).mean() < 2


@pytest.mark.parametrize("task", ["dmc/pendulum-swingup", "Hopper-v4"])
def test_environments_live_beside_each_other_and_outlive_each_other(task):
    envs = [making.make(task, view=SMALL) for _ in range(4)]
    images = [env.reset(3) for env in envs]
    assert all(np.array_equal(image, images[0]) for image in images)
    for env in envs[1:]:
        env.close()
    assert np.array_equal(envs[0].reset(3), images[0])
    envs[0].close()


def test_repeated_actions_sum_rewards_and_stop_at_the_end():
    env = ActionRepeat(Film(length=5), 2)
    env.reset()
    outcomes = [env.step(None)[1:4] for _ in range(3)]
    assert outcomes == [(3.0, False, False), (7.0, False, False), (5.0, True, False)]


def test_frames_are_stacked_from_the_oldest_and_the_first_is_repeated():
    env = making.adapt(Film(), "film", PixelView(stack=3), action_repeat=2)

    def times(obs):
        return obs[:, 0, 0, 0].tolist()

    action = np.zeros(1, np.float32)
    assert times(env.reset(0)) == [0, 0, 0]
    assert [times(env.step(action).obs) for _ in range(3)] == [[0, 0, 2], [0, 2, 4], [2, 4, 5]]
    assert times(env.reset(0)) == [0, 0, 0]


@pytest.mark.parametrize(
    ("shape", "seen"),
    [
        ((40, 48, 3), (3, 40, 48, 3)),
        ((40, 48, 1), (3, 40, 48, 1)),
        ((40, 48), (3, 40, 48, 1)),
        ((3, 40, 48), (3, 40, 48, 3)),
        ((1, 40, 48), (3, 40, 48, 1)),
    ],
)
def test_images_of_any_gymnasium_environment(shape, seen):
    env = making.make("pessimism-film/Film-v0", view=PixelView(), shape=shape)
    assert env.obs_shape == env.reset(0).shape == seen


def test_channels_first_are_moved_not_reread():
    class Ramp(Film):
        def _image(self):
            return np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)

    image = making.adapt(Ramp((3, 4, 5)), "ramp", PixelView(stack=1)).reset(0)[0]
    assert image[0, 0].tolist() == [0, 20, 40]
    assert image[3, 4].tolist() == [19, 39, 59]


def test_images_that_cannot_be_read_are_refused_in_one_line():
    with pytest.raises(UserError, match=r"image observations \(40, 48, 4\): 1 or 3 colours"):
        making.adapt(Film((40, 48, 4)), "film", PixelView())
    with pytest.raises(UserError, match="image observations .*drqv2 or gpl-drq"):
        making.make("pessimism-film/Film-v0")
    with pytest.raises(UserError, match="Pendulum-v1 has no image observations and cannot be drawn at 84 x 84"):
        making.make("Pendulum-v1", view=PixelView())


def test_a_task_of_gymnasium_is_drawn():
    env = making.make("Hopper-v4", view=SMALL)
    obs = env.reset(0)
    assert (env.obs_shape, obs.dtype) == ((3, 32, 32, 3), np.uint8)
    assert obs.std() > 10
    assert env.render().shape == (256, 256, 3)
    env.close()


def test_small_images_are_enlarged_by_whole_multiples():
    image = np.array([[[1], [2]]], np.uint8)
    assert enlarged(image, 2)[..., 0].tolist() == [[1, 1, 2, 2], [1, 1, 2, 2]]
    assert enlarged(np.zeros((480, 480, 3), np.uint8), 240).shape == (480, 480, 3)


def test_the_renderer_is_the_users_or_the_first_that_loads(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert choose().backend == "osmesa"
    monkeypatch.delenv("MUJOCO_GL")
    there, absent = Backend((("libc.so.6",),), "libc6"), Backend((("libc.so.6",), ("no-such.so",)), "none")
    for egl, osmesa, chosen in ((there, there, "egl"), (absent, there, "osmesa"), (absent, absent, "disabled")):
        monkeypatch.setitem(BACKENDS, "egl", egl)
        monkeypatch.setitem(BACKENDS, "osmesa", osmesa)
        assert choose().backend == chosen
    assert absent.missing == "no-such.so"


@pytest.mark.slow
@pytest.mark.parametrize("task", ["dmc/hopper-hop", "Hopper-v4"])
def test_a_run_on_rendered_images_ends_without_messages_of_the_renderer(task, tmp_path):
    words = (
        f"train gpl-drq --env {task} --steps 8 --random-steps 8 --compile false --evaluation.every 0 --bias.every 0"
    )
    command = [sys.executable, "-m", "pessimism", *words.split(), "--out", str(tmp_path / "run")]
    attempt = subprocess.run(command, capture_output=True, text=True, check=True)
    assert attempt.stderr == ""
    assert attempt.stdout.endswith(f"done: 8 steps, in {tmp_path / 'run'}\n")


def without_renderer(code):
    environment = {**os.environ, "MUJOCO_GL": "disabled"}
    command = [sys.executable, "-c", f"from pessimism.envs import make as making\n{code}"]
    attempt = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert attempt.stderr == ""
    return attempt.stdout


@pytest.mark.parametrize("task", ["dmc/cartpole-balance", "Hopper-v4"])
def test_without_a_renderer_images_are_refused_in_one_line_with_the_fix(task):
    line = without_renderer(
        f"try:\n    making.make({task!r}, view=making.PixelView())\n"
        "except making.UserError as error:\n    print(error)"
    )
    assert line.count("\n") == 1
    assert "nothing can be rendered here" in line
    assert "apt-get install --no-install-recommends libegl1 libgl1" in line


def test_without_a_renderer_states_are_there():
    assert without_renderer("print(making.make('dmc/cartpole-balance').reset(0).shape)") == "(5,)\n"
