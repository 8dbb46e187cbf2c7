"""The agent: an update against the algorithm's box written out by hand, and what it may change."""

import copy

import pytest
import torch

from pessimism.agents.critic_learner import critic_learner
from pessimism.agents.sac import SACAgent
from pessimism.nn.actor import SquashedGaussianActor
from pessimism.nn.compilation import compiler
from pessimism.nn.critic import plain_critic, residual_critic
from pessimism.strategies import ClippedMinimum, FixedPenalty, LearnedPenalty
from pessimism.types import Batch

OBS, ACT = 5, 2


def agent(pessimism=None, critic=plain_critic, members=3, seed=0, compile=False, **options):
    torch.manual_seed(seed)
    actor = SquashedGaussianActor(OBS, ACT, hidden=16)
    critics = critic(OBS + ACT, members=members, hidden=16)
    return SACAgent(
        actor=actor,
        learner=critic_learner(critics, pessimism or LearnedPenalty(), compile=compile, **options),
        target_entropy=-2.0,
        generator=torch.Generator().manual_seed(1),
        compile=compile,
    )


def batch(updates=3, size=8, seed=2):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda n: torch.randn(updates, size, n, generator=generator)  # noqa: E731
    discount = torch.full((updates, size, 1), 0.99)
    discount[:, 0] = 0.0  # terminated
    return Batch(draw(OBS), draw(ACT).tanh(), draw(1), discount, draw(OBS))


def test_target_and_loss_are_those_of_the_algorithm_box():
    """y = r + gamma (mean - beta W - alpha log pi), the same for all critics; J = half the squared errors."""
    one = agent(FixedPenalty(0.7), members=3)
    now = batch(1).at(0)
    noise = torch.randn(8, ACT)
    with torch.no_grad():
        action, log_prob = one.actor.sample(now.next_obs, noise)
        next_values = one.target_critic(now.next_obs, action)
        first, second, third = next_values
        distance = ((first - second).abs() + (first - third).abs() + (second - third).abs()) / 3
        soft = next_values.mean(0) - 0.7 * distance - one.alpha * log_prob
        target = now.reward + now.discount * soft
        values = one.critic(now.obs, now.action)
        loss = sum(0.5 * (value - target).square().mean() for value in values)
    step = one.learner.update(now, action, -one.alpha * log_prob)
    torch.testing.assert_close(step.loss, loss)
    torch.testing.assert_close(step.values, values)
    assert target[0].item() == now.reward[0].item()  # nothing is bootstrapped where the episode terminated


@pytest.mark.parametrize("critic", [plain_critic, residual_critic])
@pytest.mark.parametrize("pessimism", [LearnedPenalty, FixedPenalty, ClippedMinimum])
def test_an_update_moves_what_learns_and_nothing_else(critic, pessimism):
    one = agent(pessimism(), critic)
    before = copy.deepcopy(one.state_dict())
    metrics = one.update(batch(), step=1)
    after = one.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    for part in ("actor", "critic", "target_critic"):
        names = {name for name, _ in getattr(one, part).named_parameters(prefix=part)}
        assert names <= moved, names - moved
    assert "log_alpha" in moved
    assert ("pessimism.beta" in moved) == (pessimism is LearnedPenalty)
    assert all(value.dim() == 0 and value.isfinite() for value in metrics.values())


def test_target_critics_follow_by_one_share_per_critic_update():
    one = agent(tau=0.25)
    before = copy.deepcopy(one.target_critic.state_dict())
    one.update(batch(updates=1), step=1)
    for name, parameter in one.target_critic.named_parameters():
        expected = 0.75 * before[name] + 0.25 * dict(one.critic.named_parameters())[name]
        torch.testing.assert_close(parameter, expected)


def test_beta_moves_once_per_environment_step_whatever_the_number_of_critic_updates():
    for updates in (1, 7):
        one = agent(LearnedPenalty(0.5, lr=1e-3))
        one.update(batch(updates), step=1)
        assert abs(one.pessimism.beta.item() - 0.5) == pytest.approx(1e-3, rel=1e-3)


def test_alpha_rises_while_the_entropy_is_below_its_target():
    one = agent()
    one.target_entropy = 100.0
    one.update(batch(), step=1)
    assert one.alpha.item() > 1
    one.target_entropy = -100.0
    for step in range(3):
        one.update(batch(), step)
    assert one.alpha.item() < 1


def test_state_dict_is_the_whole_agent():
    one, two = agent(seed=0), agent(seed=9)
    for step in range(3):
        one.update(batch(seed=step), step)
    two.load_state_dict(one.state_dict())
    two.generator.set_state(one.generator.get_state())
    for step in range(3, 5):
        one.update(batch(seed=step), step)
        two.update(batch(seed=step), step)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("critic", [plain_critic, residual_critic])
def test_compiled_and_eager_updates_agree(critic):
    eager, fast = agent(critic=critic), agent(critic=critic, compile=True)
    for step in range(4):
        with torch._dynamo.config.patch(error_on_recompile=step > 0):  # what was compiled once serves the whole run
            one, two = eager.update(batch(seed=step), step), fast.update(batch(seed=step), step)
        for name, value in one.items():
            torch.testing.assert_close(two[name], value, atol=1e-4, rtol=1e-4)
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(fast.state_dict()[name], value, atol=1e-4, rtol=1e-4)
