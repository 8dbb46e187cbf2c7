"""What users of SB3 and Gymnasium type: it works, or one line says what to type instead."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from pessimism import GPLSAC, REDQ, SAC, Algorithm, Callback, DrQv2, UserError
from pessimism.config import foreign
from pessimism.config.resolve import option_names

FAST = {
    "random_steps": 20,
    "updates_per_step": 2,
    "batch_size": 8,
    "hidden": 16,
    "critic": {"hidden": 16, "members": 2},
    "compile": False,
    "threads": 1,
    "evaluation": {"every": 0},
    "bias": {"every": 0},
    "log": {"tensorboard": False},
}
PENDULUM = "InvertedPendulum-v4"
OBS = np.array([0.1, 0.0, -0.1, 0.2], np.float32)


def weights(agent):
    return torch.cat([tensor.flatten().double() for tensor in agent.agent.state_dict().values()])


class Matrix(gymnasium.Env):
    """Observations [2, 3] and actions [2, 2]; the reward is `self.bonus`, and episodes have ten steps."""

    observation_space = spaces.Box(-1, 1, (2, 3), np.float32)
    action_space = spaces.Box(-2, 4, (2, 2), np.float32)
    bonus = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros((2, 3), np.float32), {}

    def step(self, action):
        assert action.shape == (2, 2)
        self.time += 1
        return self.np_random.uniform(-1, 1, (2, 3)).astype(np.float32), self.bonus, False, self.time == 10, {}


# predict


def test_a_batch_of_one_keeps_its_axis():
    agent = SAC(PENDULUM, **FAST)
    single, batch = (agent.predict(obs, deterministic=True)[0] for obs in (OBS, OBS[None]))
    assert (single.shape, batch.shape) == ((1,), (1, 1))
    assert np.array_equal(single, batch[0])
    assert agent.predict(np.stack([OBS] * 3))[0].shape == (3, 1)
    assert agent.predict(np.empty((0, 4), np.float32), deterministic=True)[0].shape == (0, 1)


def test_shapes_of_more_axes_are_kept():
    agent = SAC(Matrix, **FAST)
    assert agent.predict(np.zeros((2, 3)))[0].shape == (2, 2)
    actions = agent.predict(np.zeros((5, 2, 3)))[0]
    assert actions.shape == (5, 2, 2)
    assert (actions > -2).all() and (actions < 4).all()


@pytest.mark.parametrize("shape", [(4, 1), (3,), (8,), (2, 2), (1, 1, 4), (), (2, 3, 4)])
def test_observations_of_another_shape_are_refused(shape):
    with pytest.raises(UserError, match=r"has the shape \(4,\), and a batch of them .* this one has"):
        SAC(PENDULUM, **FAST).predict(np.zeros(shape))


def test_observations_that_are_not_numbers_are_refused():
    agent = SAC(PENDULUM, **FAST)
    for obs, message in (
        ({"a": 1}, "not a dict"),
        (["a"] * 4, "array of numbers"),
        ([[1], [2, 3]], "array of numbers"),
        (OBS * 1j, "array of numbers"),
        (OBS * np.nan, "not finite"),
        (np.full(4, 1e300), "not finite in float32"),
    ):
        with pytest.raises(UserError, match=message):
            agent.predict(obs)
    assert agent.predict(torch.zeros(4, requires_grad=True))[0].shape == (1,)


def test_images_that_are_not_bytes_are_refused():
    line = "pessimism.envs.toys:pessimism-toys/DrawnLine-v0"
    agent = DrQv2(line, **FAST, replay_capacity=64, pixels={"filters": 4, "features": 8})
    image = np.full(agent.get_env().observation_space.shape, 7)
    assert agent.predict(image)[0].shape == (1,)
    for obs in (image / 255, image + 256, -image):
        with pytest.raises(UserError, match="whole numbers from 0 to 255"):
            agent.predict(obs)


def test_sb3s_evaluate_policy():
    agent = SAC(PENDULUM, **FAST)
    for env in (make_vec_env(PENDULUM, n_envs=2, seed=0), make_vec_env(PENDULUM, n_envs=1, seed=0)):
        mean, _ = evaluate_policy(agent, env, n_eval_episodes=2)
        assert mean >= 1
    assert evaluate_policy(agent, gymnasium.make(PENDULUM), n_eval_episodes=1, warn=False)[0] >= 1


def test_gymnasiums_vector_environments_in_predict():
    envs = gymnasium.make_vec(PENDULUM, num_envs=3)
    obs, _ = envs.reset(seed=0)
    action, _ = SAC(PENDULUM, **FAST).predict(obs)
    assert envs.step(action)[0].shape == (3, 4)


# learn


@pytest.mark.parametrize("steps", [0, -1, 60.5, "60", None, float("nan"), float("inf"), True, [60]])
@pytest.mark.parametrize("out", [None, "run"])
def test_steps_are_a_whole_number(steps, out, tmp_path):
    with pytest.raises(UserError, match="^total_timesteps is .*: a whole number from 1 on is needed$"):
        SAC(PENDULUM, **FAST).learn(steps, out=out)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("steps", [np.int64(30), 3e1, np.float32(30)])
def test_whole_numbers_of_any_kind(steps, tmp_path):
    agent = SAC(PENDULUM, **FAST).learn(steps, out="run")
    assert agent.num_timesteps == 30
    assert SAC(PENDULUM, **FAST).learn(40, out="run").num_timesteps == 40


def test_no_callback_is_a_callback():
    assert SAC(PENDULUM, **FAST).learn(5, None).num_timesteps == 5


def test_callbacks_of_sb3_and_things_that_are_none_are_refused():
    agent = SAC(PENDULUM, **FAST)
    with pytest.raises(UserError, match="derive from pessimism.Callback"):
        agent.learn(5, CheckpointCallback(1, "here"))
    with pytest.raises(UserError, match="3 is not a callback"):
        agent.learn(5, [3])


def test_nothing_to_do_is_said():
    agent = SAC(PENDULUM, **FAST).learn(25)
    with pytest.warns(UserWarning, match=r"learn\(25\) has nothing to do: 25 steps are done"):
        agent.learn(25)


def test_a_run_beside_what_was_learned_elsewhere_is_refused():
    SAC(PENDULUM, **FAST).learn(30, out="run")
    agent = SAC(PENDULUM, **FAST).learn(60)
    with pytest.raises(UserError, match="run holds a run, and this agent has learned elsewhere"):
        agent.learn(80, out="run")
    assert agent.num_timesteps == 60  # and nothing was lost
    agent.learn(80, out="other")
    assert agent.learn(90, out="other").num_timesteps == 90
    agent.learn(100)
    with pytest.raises(UserError, match="learned elsewhere"):
        agent.learn(120, out="other")


def test_learning_on_in_the_same_directory_is_exact():
    once = SAC(PENDULUM, **FAST).learn(60, out="once")
    twice = SAC(PENDULUM, **FAST).learn(35, out="twice").learn(60, out="twice")
    assert torch.equal(weights(once), weights(twice))


# load


def test_a_directory_is_loaded_with_its_replay():
    SAC(PENDULUM, **FAST).learn(40, out="run")
    once, loaded = SAC(PENDULUM, **FAST).learn(60), SAC.load("run")
    assert loaded.num_timesteps == 40
    assert torch.equal(weights(loaded.learn(60)), weights(once))
    assert torch.equal(weights(Algorithm.load("run").learn(60, out="run")), weights(once))
    with pytest.raises(UserError, match="holds an agent of sac, not of redq"):
        REDQ.load("run")


def test_loading_a_file_warns_that_it_has_no_replay():
    agent = SAC.load(SAC(PENDULUM, **FAST).learn(40).save("agent.safetensors"))
    with pytest.warns(UserWarning, match="the file had no replay: training starts with 20 random steps"):
        agent.learn(30)
    SAC(PENDULUM, **FAST).learn(30, out="run")
    with pytest.raises(UserError, match="learned elsewhere"):
        SAC.load("agent.safetensors").learn(40, out="run")


def test_saving_makes_the_directory():
    path = SAC(PENDULUM, **FAST).save("new/place/agent.safetensors")
    assert path.exists()
    with pytest.raises(UserError, match="cannot write"):
        SAC(PENDULUM, **FAST).save(path / "below" / "a.safetensors")


# evaluate


@pytest.mark.parametrize("episodes", [0, -1, 1.5, "2"])
def test_episodes_are_a_whole_number(episodes):
    agent = SAC(PENDULUM, **FAST)
    for measure in (agent.evaluate, agent.measure_bias):
        with pytest.raises(UserError, match="^episodes is"):
            measure(episodes)


# environments


def test_an_environment_keeps_what_was_changed_on_it():
    env = Matrix()
    env.bonus = 2.0
    agent = SAC(env, **FAST)
    assert agent.get_env() is env
    assert agent.evaluate(2).returns == [20.0, 20.0]
    assert agent.learn(15).num_timesteps == 15
    assert env.time == 5  # the environment itself was trained in
    assert agent.evaluate(1).returns == [20.0]
    physical = gymnasium.make("Pendulum-v1", g=1.0)
    physical.unwrapped.max_torque = 0.5
    copies = SAC(physical, **FAST).assembly.make_env().env.unwrapped
    assert (copies.g, copies.max_torque) == (1.0, 0.5)


def test_an_environment_that_cannot_be_copied_trains_without_evaluation():
    env = Matrix()
    env.socket = open(__file__)  # noqa: PTH123, SIM115 (stands for a robot)
    agent = SAC(env, **FAST).learn(30, out="run").learn(40, out="run")
    assert agent.num_timesteps == 40
    with pytest.raises(UserError, match="cannot be copied .TypeError.* function that makes it, or switch"):
        agent.evaluate(1)
    env.socket.close()


def test_wrappers_without_a_spec():
    env = gymnasium.wrappers.RescaleObservation(Matrix(), np.float32(-1), np.float32(1))
    assert env.spec is None
    agent = SAC(env, **FAST).learn(5)
    assert agent.config.env == "Matrix"
    assert len(agent.evaluate(1).returns) == 1


@pytest.mark.parametrize("wrapper", [gymnasium.wrappers.NormalizeObservation, gymnasium.wrappers.NormalizeReward])
def test_wrappers_that_learn_are_refused_until_they_are_frozen(wrapper):
    env = wrapper(gymnasium.make("Pendulum-v1"))
    for one in (env, lambda: gymnasium.wrappers.TimeLimit(env, 10)):
        with pytest.raises(UserError, match=f"{wrapper.__name__} learns statistics"):
            SAC(one, **FAST)
    env.update_running_mean = False
    SAC(env, **FAST).learn(5)


def numbered(number):
    """Return a function that makes an environment whose reward is its number."""

    def make():
        env = Matrix()
        env.bonus = float(number)
        return env

    return make


@pytest.mark.parametrize(
    "several",
    [
        lambda: [numbered(n) for n in range(3)],
        lambda: gymnasium.vector.SyncVectorEnv([numbered(n) for n in range(3)]),
        lambda: DummyVecEnv([numbered(n) for n in range(3)]),
    ],
    ids=["list", "Gymnasium", "SB3"],
)
def test_several_environments_are_trained_in_and_resumed_exactly(several):
    scores = []

    class Scores(Callback):
        def on_metrics(self, step, metrics):
            scores.append(metrics.get("rollout/ep_rew_mean"))

    settings = FAST | {"log": {"every": 10, "tensorboard": False}, "checkpoint": {"every": 25}}
    once = SAC(several(), **settings).learn(120, Scores(), out="once")
    assert set(scores) == {0.0, 10.0, 20.0}  # every environment had an episode
    SAC(several(), **settings).learn(65, out="cut")
    resumed = SAC(several(), **settings).learn(120, out="cut")
    assert torch.equal(weights(once), weights(resumed))
    assert set(once.evaluate(8).returns) == {0.0, 10.0, 20.0}


def test_environments_of_a_list_must_be_alike():
    agent = SAC([Matrix, lambda: gymnasium.make("Pendulum-v1")], **FAST)
    with pytest.raises(UserError, match="the environments of a list differ"):
        agent.learn(100)


def test_wrappers_that_learn_are_found_in_a_list():
    with pytest.raises(UserError, match="NormalizeReward learns statistics"):
        SAC([lambda: gymnasium.wrappers.NormalizeReward(Matrix())] * 2, **FAST)


def test_values_that_are_not_environments_are_refused():
    for env, message in (
        (3, "3 is not an environment"),
        ([], "a list of environments"),
        (VecNormalize(make_vec_env("Pendulum-v1")), "VecNormalize changes what its environments return"),
    ):
        with pytest.raises(UserError, match=message):
            SAC(env, **FAST)


# SB3's names


@pytest.mark.parametrize("name", foreign.SETTINGS)
def test_sb3s_settings_are_answered(name):
    with pytest.raises(UserError, match=f"^{name} is SB3's name: here it is "):
        GPLSAC(PENDULUM, **{name: 1})
    assert name not in option_names()


def test_the_names_here_exist():
    for name in ("lr", "replay_capacity", "random_steps", "discount", "update_every", "updates_per_step", "n_step"):
        assert name in foreign.SETTINGS.values()
        assert name in option_names()


def test_sb3s_policy_argument():
    with pytest.raises(UserError, match=r"SAC\(env, name=value, ...\) takes no policy"):
        SAC("MlpPolicy", PENDULUM)


@pytest.mark.parametrize("name", [*foreign.LEARN, "nonsense"])
def test_arguments_of_sb3s_learn_are_answered(name):
    with pytest.raises(UserError, match="here it is|learn has no argument nonsense"):
        SAC(PENDULUM, **FAST).learn(5, **{name: 1})


@pytest.mark.parametrize("name", foreign.ATTRIBUTES)
def test_attributes_of_sb3_are_answered(name):
    agent = SAC(PENDULUM, **FAST)
    assert not hasattr(agent, name)
    with pytest.raises(AttributeError, match=f"^{name} is SB3's name: here it is "):
        getattr(agent, name)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = agent.nonsense


@pytest.mark.parametrize("name", [*foreign.LOAD, "nonsense"])
def test_arguments_of_sb3s_load_are_answered(name):
    with pytest.raises(UserError, match="here it is|load has no argument nonsense"):
        SAC.load("agent.safetensors", **{name: 1})


def test_spaces_and_settings_of_an_agent():
    agent = SAC(Matrix, **FAST)
    assert agent.observation_space.contains(np.zeros((2, 3), np.float32))
    assert agent.action_space.contains(agent.predict(np.zeros((2, 3)))[0])
    with pytest.raises(AttributeError, match="^batch_size is a setting: it is config.batch_size$"):
        _ = agent.batch_size


def test_metrics_have_sb3s_names():
    seen = set()

    class Names(Callback):
        def on_metrics(self, step, metrics):
            seen.update(metrics)

    SAC(Matrix, **FAST | {"log": {"every": 10}, "evaluation": {"every": 20, "episodes": 1}}).learn(40, Names())
    assert seen >= {
        "rollout/ep_rew_mean",
        "rollout/ep_len_mean",
        "train/critic_loss",
        "eval/mean_reward",
        "time/fps",
    }
