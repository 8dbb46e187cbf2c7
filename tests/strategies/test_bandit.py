"""TOP's bandit on literals worked out by hand."""

import math

import pytest
import torch

from pessimism.config.resolve import merge, preset_values, validated
from pessimism.errors import UserError
from pessimism.strategies import BanditPenalty, ExponentialWeights
from pessimism.training.run import assemble
from pessimism.types import Episode


def earned(episode_return):
    """A finished episode of one step with this return."""
    one = torch.zeros(1, 1)
    return Episode(one, one, one[0], torch.tensor([episode_return], dtype=torch.float64), one[0], True), None


def play(bandit, arm, episode_return):
    bandit.arm.fill_(arm)
    bandit.learn(episode_return)


def test_first_episode_teaches_nothing():
    bandit = ExponentialWeights(2)
    play(bandit, 0, 123.0)
    assert bandit.weights.tolist() == [0.0, 0.0]


def test_two_episodes_on_literals():
    """Returns 10, 30: feedbacks 10, 20; mean 15, std 5; the second is (20 - 15) / 5 = 1."""
    bandit = ExponentialWeights(2)
    play(bandit, 0, 10.0)
    play(bandit, 1, 30.0)
    assert bandit.weights.tolist() == pytest.approx([0.0, 0.1])  # 0.9 * 0 + 0.1 * 1 / exp(0)
    # Return 0: feedback -30; of (10, 20, -30) the mean is 0 and the std sqrt(1400 / 3).
    play(bandit, 1, 0.0)
    scaled = -30 / math.sqrt(1400 / 3)
    assert bandit.weights.tolist() == pytest.approx([0.0, 0.09 + 0.1 * scaled / math.exp(0.09)])


def test_only_the_last_feedbacks_count():
    bandit = ExponentialWeights(1, window=2)
    for episode_return in (5.0, 100.0, 101.0, 104.0):  # feedbacks 5, 95, 1, 3
        play(bandit, 0, episode_return)
    assert bandit.history.tolist() == [1.0, 3.0]
    # Weights after each episode: 0, then +1, -1 and +1 standard deviations of two feedbacks.
    weight = 0.1
    for sign in (-1, 1):
        weight = 0.9 * weight + sign * 0.1 / math.exp(0.9 * weight)
    assert bandit.weights.tolist() == pytest.approx([weight])


def test_other_arms_do_not_decay():
    bandit = ExponentialWeights(3)
    bandit.weights.copy_(torch.tensor([1.0, 2.0, 3.0]))
    play(bandit, 1, 0.0)
    assert bandit.weights.tolist() == pytest.approx([1.0, 1.8, 3.0])


def test_equal_feedbacks_and_extreme_weights_stay_finite():
    """The original divides by a zero standard deviation here, and overflows exp(weight)."""
    bandit = ExponentialWeights(2)
    for episode in range(1, 8):
        play(bandit, 0, 0.1 * episode)
        assert bandit.weights.tolist() == pytest.approx([0.0, 0.0], abs=1e-9)
    bandit.weights.copy_(torch.tensor([-2000.0, 2000.0]))
    for arm, episode_return in ((0, 50.0), (1, -50.0), (0, 3e8)):
        play(bandit, arm, episode_return)
        assert bandit.weights.isfinite().all()
    bandit.draw(torch.Generator().manual_seed(0))


def test_arms_are_drawn_by_softmax():
    bandit, generator = ExponentialWeights(2), torch.Generator().manual_seed(0)
    bandit.weights.copy_(torch.tensor([0.0, math.log(3.0)]))
    draws = [bandit.draw(generator) for _ in range(4000)]
    assert sum(draws) / 4000 == pytest.approx(0.75, abs=0.02)


def test_beta_stays_within_an_episode_and_serves_target_and_actor():
    rule = BanditPenalty([0.0, 2.0], generator=torch.Generator().manual_seed(0))
    values = torch.tensor([[[1.0]], [[2.0]]])
    seen = set()
    for episode in range(20):
        beta = float(rule.beta)
        seen.add(beta)
        assert rule.target_value(values).item() == rule.actor_value(values).item() == 1.5 - beta
        rule.update(values, values[0])
        assert float(rule.beta) == beta
        assert float(rule.episode_finished(*earned(float(episode % 3)))["rollout/beta"]) == beta
    assert seen == {0.0, 2.0}


def test_state_dict_and_generator_are_the_whole_state():
    first = BanditPenalty([0.0, 1.0, 2.0], generator=torch.Generator().manual_seed(0))
    for episode_return in (1.0, 5.0, 2.0):
        first.episode_finished(*earned(episode_return))
    second = BanditPenalty([0.0, 1.0, 2.0], generator=torch.Generator().manual_seed(9))
    second.load_state_dict(first.state_dict())
    second.generator.set_state(first.generator.get_state())
    for episode_return in (7.0, -3.0, 4.0, 4.0):
        first.episode_finished(*earned(episode_return))
        second.episode_finished(*earned(episode_return))
    for name, tensor in first.state_dict().items():
        assert torch.equal(second.state_dict()[name], tensor), name


def top_config(env="InvertedPendulum-v4", **changes):
    return validated(merge(preset_values("gpl-sac-top", env), {"env": env, "compile": False, **changes}))


def test_paper_arms_by_default_and_others_by_one_setting():
    assert top_config().pessimism.arms == (0.0, math.sqrt(2))
    assert top_config(pessimism={"arms": [0, 1 / math.sqrt(2)]}).pessimism.arms == (0.0, 1 / math.sqrt(2))


def test_a_single_arm_is_refused():
    with pytest.raises(UserError, match=r"^pessimism.arms: .*at least 2"):
        top_config(pessimism={"arms": [0.5]})


def test_a_task_without_episodes_is_refused():
    with pytest.raises(
        UserError,
        match=r"^the strategy bandit learns from finished episodes and InvertedPendulum-v4 has no time limit",
    ):
        assemble(top_config(env_kwargs={"max_episode_steps": -1}))
