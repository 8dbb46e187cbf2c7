"""The bias meter on SB3's agents: right numbers, every family, and training untouched."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import QRDQN, TQC
from stable_baselines3 import DDPG, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import VecNormalize

from pessimism import UserError
from pessimism.sb3 import GPLSAC, BiasCallback
from pessimism.sb3.view import AgentView

SMALL = {"learning_starts": 20, "batch_size": 16, "buffer_size": 500, "seed": 0, "device": "cpu"}
NETWORK = {"policy_kwargs": {"net_arch": [16, 16]}}


class Countdown(gymnasium.Env):
    """Three steps with reward 1 each; the observation is the step. The action has no effect."""

    def __init__(self, discrete=False, limit=None):
        self.observation_space = spaces.Box(-10, 10, (1,), np.float32)
        self.action_space = spaces.Discrete(3) if discrete else spaces.Box(-2, 2, (1,), np.float32)
        self.limit = limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.array([self.time], np.float32), {}

    def step(self, action):
        self.time += 1
        cut = self.limit is not None and self.time >= self.limit
        return np.array([self.time], np.float32), 1.0, self.time == 3 and not cut, cut, {}


def constant(model, value):
    """Let all critics predict `value` everywhere."""
    policy = model.policy
    for net in (getattr(policy, name) for name in ("critic", "q_net", "quantile_net") if hasattr(policy, name)):
        for parameter in net.parameters():
            parameter.data.zero_()
        for layers in net.modules():
            if isinstance(layers, torch.nn.Sequential) and isinstance(layers[-1], torch.nn.Linear):
                layers[-1].bias.data.fill_(value)


def measured(model, env, **settings):
    callback = BiasCallback(env, episodes=2, **settings)
    callback.init_callback(model)
    model.set_logger(Logger(None, []))
    return callback.measure()


class Lines(KVWriter):
    """Keeps at which steps each name is logged."""

    def __init__(self):
        self.steps = {}

    def write(self, values, excluded, step=0):
        for name in values:
            self.steps.setdefault(name, []).append(step)

    def close(self):
        pass


@pytest.mark.parametrize("algorithm", [SAC, GPLSAC, TD3, DDPG, TQC, DQN, QRDQN])
def test_bias_is_prediction_minus_what_happened(algorithm):
    discrete = algorithm in (DQN, QRDQN)
    more = {} if discrete or algorithm in (TD3, DDPG) else {"ent_coef": 0.0}
    model = algorithm("MlpPolicy", Countdown(discrete), **SMALL, gamma=0.5, **more)
    constant(model, 3.0)
    bias = measured(model, Countdown(discrete))
    expected = [1 + 0.5 + 0.25, 1 + 0.5, 1.0]  # discounted returns of the three states
    assert bias.states == 6
    assert bias.soft_return == pytest.approx(np.mean(expected))
    assert bias.mean == pytest.approx(3 - np.mean(expected))
    assert bias.bootstrapped == 0


@pytest.mark.parametrize("algorithm", [SAC, TQC])
def test_every_critic_is_read(algorithm):
    model = algorithm("MlpPolicy", Countdown(), **SMALL)
    values = AgentView(model, model.get_env()).values(torch.ones(4, 1).double(), torch.zeros(4, 1))
    assert values.shape == (2, 4, 1)
    assert not torch.equal(values[0], values[1])


def test_entropy_is_part_of_the_return():
    model = SAC("MlpPolicy", Countdown(), **SMALL, **NETWORK, gamma=0.5, ent_coef=0.3)
    constant(model, 3.0)
    plain, soft = 0.5, 0.3
    assert measured(model, Countdown()).soft_return != pytest.approx((1.75 + 1.5 + 1) / 3, abs=1e-3)
    torch.manual_seed(1)
    draws = model.actor.action_log_prob(torch.tensor([[1.0]] * 20_000))[1].mean().item()
    bias = BiasCallback(Countdown(), episodes=400)
    bias.init_callback(model)
    model.set_logger(Logger(None, []))
    found = bias.measure().soft_return  # entropies enter once in the second and twice in the first state
    assert found == pytest.approx(1.75 / 3 + 1.5 / 3 + 1 / 3 - plain * soft * draws * (2.5 / 3), abs=0.02)


def test_the_entropy_weight_is_the_learned_one():
    model = SAC("MlpPolicy", Countdown(), **SMALL, **NETWORK, ent_coef="auto_0.3")
    assert AgentView(model, model.get_env()).alpha.item() == pytest.approx(0.3)


def test_a_time_limit_ends_in_the_critics_own_estimate():
    model = SAC("MlpPolicy", Countdown(), **SMALL, **NETWORK, gamma=0.5, ent_coef=0.0)
    constant(model, 3.0)
    bias = measured(model, Countdown(limit=2))
    assert bias.bootstrapped == 1
    assert bias.soft_return == pytest.approx(np.mean([1 + 0.5 * (1 + 0.5 * 3), 1 + 0.5 * 3]))


def test_without_a_time_limit_episodes_are_cut():
    class Endless(Countdown):
        def step(self, action):
            return np.zeros(1, np.float32), 0.0, False, False, {}

    model = SAC("MlpPolicy", Endless(), **SMALL, **NETWORK, ent_coef=0.0)
    assert measured(model, Endless(), longest=7).states == 14


def test_training_is_the_same_with_and_without_it():
    def trained(callback):
        model = SAC("MlpPolicy", "Pendulum-v1", **SMALL, **NETWORK).learn(60, callback=callback)
        return torch.cat([p.detach().flatten() for p in model.policy.parameters()])

    callback = BiasCallback("Pendulum-v1", every=25, episodes=1)
    assert torch.equal(trained(callback), trained(None))
    assert [step for step, _ in callback.history] == [25, 50]


def test_it_repeats_itself_and_logs():
    model = SAC("MlpPolicy", "Pendulum-v1", **SMALL, **NETWORK)
    torch.manual_seed(1)
    first = measured(model, make_vec_env("Pendulum-v1", n_envs=2))
    torch.manual_seed(2)
    assert measured(model, make_vec_env("Pendulum-v1", n_envs=2)) == first
    other = measured(model, make_vec_env("Pendulum-v1", n_envs=2), seed=1)
    assert other != first
    output = Lines()
    model.set_logger(Logger(None, [output]))
    model.learn(40, callback=BiasCallback("Pendulum-v1", every=30, episodes=1))
    assert output.steps["bias/normalized_mean"] == [30]


def test_normalization_is_that_of_the_agent():
    env = VecNormalize(make_vec_env(Countdown, n_envs=1))
    env.ret_rms.var, env.obs_rms.mean = np.array(4.0), np.array([1.0])
    model = SAC("MlpPolicy", env, **SMALL, **NETWORK, gamma=0.5, ent_coef=0.0)
    constant(model, 3.0)
    bias = measured(model, VecNormalize(make_vec_env(Countdown, n_envs=1)))
    assert bias.soft_return == pytest.approx(np.mean([1.75, 1.5, 1.0]) / 2, rel=1e-4)
    view = AgentView(model, make_vec_env(Countdown, n_envs=1))
    model.critic.qf0[0].weight.data.fill_(1.0)  # now the prediction depends on the observation
    model.critic.qf0[-1].weight.data.fill_(1.0)
    model.critic.qf0[2].weight.data.fill_(1.0)
    seen = torch.stack(model.critic(torch.tensor(env.normalize_obs(np.array([[2.0]]))).float(), torch.zeros(1, 1)))
    assert torch.equal(view.values(torch.tensor([[2.0]]).double(), torch.zeros(1, 1)), seen)


@pytest.mark.filterwarnings("ignore:.*overflow.*:RuntimeWarning")
def test_goals_and_dict_observations():
    def make():
        return BitFlippingEnv(n_bits=4, continuous=True, max_steps=4)

    model = GPLSAC("MultiInputPolicy", make(), replay_buffer_class=HerReplayBuffer, **SMALL, **NETWORK)
    callback = BiasCallback(make, every=30, episodes=2)
    model.learn(40, callback=callback)
    assert callback.history[0][1].states == 8


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(UserError, match="PPO has no critics"):
        PPO("MlpPolicy", "Pendulum-v1", n_steps=8, batch_size=8, device="cpu").learn(8, BiasCallback("Pendulum-v1"))
    env = make_vec_env("Pendulum-v1")
    with pytest.raises(UserError, match="environment of its own"):
        SAC("MlpPolicy", env, **SMALL).learn(8, BiasCallback(env))
    with pytest.raises(UserError, match="episodes is 0"):
        BiasCallback("Pendulum-v1", episodes=0)
