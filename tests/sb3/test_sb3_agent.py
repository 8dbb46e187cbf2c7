"""GPLSAC as a subclass of the real SB3's SAC: the same steps, any strategy, SB3's own features."""

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import VecNormalize

from pessimism import UserError
from pessimism.sb3 import GPLSAC, PAPER
from pessimism.strategies import FixedPenalty, LearnedPenalty

SMALL = {
    "learning_starts": 20,
    "batch_size": 16,
    "buffer_size": 500,
    "policy_kwargs": {"net_arch": [16, 16]},
    "seed": 0,
    "device": "cpu",
}


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.policy.parameters()])


def trained(cls, steps=60, env="Pendulum-v1", **changed):
    return cls("MlpPolicy", env, **{**SMALL, **changed}).learn(steps)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"ent_coef": 0.1},
        {"gradient_steps": 3, "target_update_interval": 2},
        {"use_sde": True},
        {"env": "InvertedPendulum-v4"},  # episodes terminate
        {"n_steps": 3},
        {"learning_rate": lambda left: 1e-3 * left},
        {"pessimism": {"name": "minimum"}},
    ],
    ids=lambda changed: ",".join(changed) or "defaults",
)
def test_two_critics_and_beta_one_half_are_sb3s_sac(changed):
    common = {name: value for name, value in changed.items() if name != "pessimism"}
    theirs, first = trained(SAC, **common), trained(SAC, steps=0, **common)
    ours = trained(GPLSAC, **{"pessimism": {"name": "fixed", "beta": 0.5}} | changed)
    assert ours._n_updates == theirs._n_updates >= 38
    assert (weights(theirs) - weights(first)).abs().max() > 1e-3  # there was something to reproduce
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=0, atol=2e-6)
    if "ent_coef" not in changed:
        assert ours.log_ent_coef.item() == pytest.approx(theirs.log_ent_coef.item(), rel=1e-5)


def test_each_step_is_sb3s_step():
    """The weights agree after every update, and the logged losses with them."""

    class Trace:
        def __init__(self):
            self.weights, self.losses = [], []

        def __call__(self, local, _):
            model = local["self"]
            self.weights.append(weights(model))
            self.losses.append(model.logger.name_to_value.get("train/critic_loss", 0.0))
            return True

    traces = Trace(), Trace()
    for cls, trace, more in zip((SAC, GPLSAC), traces, ({}, {"pessimism": {"name": "fixed"}}), strict=True):
        cls("MlpPolicy", "Pendulum-v1", **SMALL, **more).learn(60, callback=trace, log_interval=1000)
    theirs, ours = traces
    assert len(theirs.weights) == 60
    for step in range(60):
        torch.testing.assert_close(ours.weights[step], theirs.weights[step], rtol=0, atol=2e-6)
        assert ours.losses[step] == pytest.approx(theirs.losses[step], rel=1e-4)


def test_pessimism_is_learned_by_default():
    model = trained(GPLSAC, n_critics=5)
    assert isinstance(model.pessimism, LearnedPenalty)
    assert model.pessimism.beta.item() != 0.5
    assert model.pessimism.step == model._n_updates
    assert model.logger.name_to_value["train/beta"] == pytest.approx(0.5, abs=0.01)
    assert (weights(model) - weights(trained(GPLSAC, n_critics=5, pessimism={"name": "fixed"}))).abs().max() > 1e-5


@pytest.mark.parametrize("name", ["minimum", "subset-minimum", "squared-bias", "acc"])
def test_other_strategies_run(name):
    model = trained(GPLSAC, n_critics=3, pessimism={"name": name})
    assert torch.isfinite(weights(model)).all()


@pytest.mark.parametrize("normalized", [False, True])
def test_strategies_are_given_whole_episodes(normalized):
    episodes = []

    class Listener(FixedPenalty):
        def episode_finished(self, episode, hindsight):
            episodes.append((episode, hindsight))
            return {"rollout/episodes": torch.tensor(1.0)}

    env = make_vec_env("Pendulum-v1", n_envs=2, seed=0, env_kwargs={"max_episode_steps": 20})
    env = VecNormalize(env, norm_reward=False) if normalized else env
    changed = SMALL | {"learning_starts": 60}
    model = GPLSAC("MlpPolicy", env, **changed, pessimism=Listener(0.5)).learn(170, log_interval=1000)
    assert [hindsight is None for _, hindsight in episodes] == [True] * 4 + [False] * 4
    buffer = model.replay_buffer
    for number, (episode, hindsight) in enumerate(episodes):
        rows, index = slice(number // 2 * 20, number // 2 * 20 + 20), number % 2
        for ours, theirs in (
            (episode.obs, "observations"),
            (episode.action, "actions"),
            (episode.reward, "rewards"),
        ):
            np.testing.assert_allclose(ours, getattr(buffer, theirs)[rows, index], rtol=1e-6)
        np.testing.assert_allclose(episode.last_obs, buffer.next_observations[rows, index][-1], atol=1e-5)
        assert not episode.terminated
        if hindsight:
            assert hindsight.values.shape == (2, 20, 1)
    assert model.logger.name_to_value["rollout/episodes"] == 1


def test_the_calibrated_rule_moves_beta():
    settings = {"name": "calibrated", "wait": 0.0, "fewest": 2}
    env = make_vec_env("Pendulum-v1", env_kwargs={"max_episode_steps": 20})
    model = GPLSAC("MlpPolicy", env, **SMALL, pessimism=settings).learn(110)
    assert model.pessimism.beta.item() != 0.5


def test_a_strategy_of_ones_own():
    class Optimist(FixedPenalty):
        pass

    strategy = Optimist(-1.0)
    model = trained(GPLSAC, pessimism=strategy)
    assert isinstance(model.pessimism, Optimist)
    assert model.pessimism is not strategy


def test_the_policy_is_updated_every_policy_delay_critic_updates():
    model = GPLSAC("MlpPolicy", "Pendulum-v1", **SMALL, gradient_steps=4, policy_delay=4)
    counts = {"actor": 0, "critic": 0}
    for name in counts:
        optimizer = getattr(model, name).optimizer

        def counted(closure=None, *, name=name, step=optimizer.step):
            counts[name] += 1
            return step(closure)

        optimizer.step = counted
    model.learn(40)
    updates = model._n_updates
    assert counts == {"actor": updates // 4, "critic": updates}
    assert model.pessimism.step == updates // 4


def test_impossible_values_are_refused_in_one_line():
    for settings, message in (
        ({"pessimism": {"name": "nothing"}}, "pessimism: name: .*nothing"),
        ({"pessimism": {"name": "fixed", "betta": 1}}, "betta"),
        ({"pessimism": {"name": "validation"}}, "held-out transitions"),
        ({"n_critics": 1}, "n_critics = 1 has no disagreement"),
        ({"policy_delay": 0}, "policy_delay is 0"),
    ):
        with pytest.raises(UserError, match=message):
            GPLSAC("MlpPolicy", "Pendulum-v1", **SMALL, **settings)


def test_number_of_critics_in_either_place():
    assert GPLSAC("MlpPolicy", "Pendulum-v1", **SMALL, n_critics=4).critic.n_critics == 4
    changed = SMALL | {"policy_kwargs": {"n_critics": 3, "net_arch": [8]}}
    assert GPLSAC("MlpPolicy", "Pendulum-v1", **changed).critic.n_critics == 3
    assert GPLSAC("MlpPolicy", "Pendulum-v1", **SMALL | PAPER).critic.n_critics == 10


def test_a_strategy_continues_after_save_and_load(tmp_path):
    model = trained(GPLSAC, n_critics=3, policy_delay=2, pessimism={"name": "learned", "beta": 0.7, "lr": 0.01})
    model.save(tmp_path / "model")
    again = GPLSAC.load(tmp_path / "model", env=gymnasium.make("Pendulum-v1"))
    assert again.policy_delay == 2
    assert again.critic.n_critics == 3
    for name, tensor in model.pessimism.state_dict().items():
        assert torch.equal(again.pessimism.state_dict()[name], tensor), name
    assert again.pessimism.beta.item() != 0.7
    assert again.pessimism.optimizer.param_groups[0]["lr"] == 0.01
    before = again.pessimism.beta.item()
    again.learn(40, reset_num_timesteps=False)
    assert again.pessimism.beta.item() != before
    obs = np.zeros((1, 3), np.float32)
    alone = GPLSAC.load(tmp_path / "model")  # without an environment, for predictions only
    assert np.array_equal(alone.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])


def test_vector_environments_normalization_callbacks_and_tensorboard(tmp_path):
    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=2, seed=0))
    check = EvalCallback(
        VecNormalize(make_vec_env("Pendulum-v1"), training=False), eval_freq=100, n_eval_episodes=1
    )
    changed = SMALL | {"learning_starts": 100, "tensorboard_log": str(tmp_path)}
    model = GPLSAC("MlpPolicy", env, **changed, n_critics=3)
    model.learn(240, callback=check, log_interval=1)
    assert check.evaluations_timesteps == [] and check.last_mean_reward < 0
    assert model.num_timesteps == 240
    assert list(tmp_path.glob("GPLSAC_1/events*"))


@pytest.mark.filterwarnings("ignore:.*overflow.*:RuntimeWarning")
def test_hindsight_experience_replay():
    model = GPLSAC(
        "MultiInputPolicy",
        BitFlippingEnv(n_bits=4, continuous=True, max_steps=4),
        replay_buffer_class=HerReplayBuffer,
        **SMALL | {"learning_starts": 30},
    ).learn(60)
    assert torch.isfinite(weights(model)).all()
