"""Rules that move beta by the bias of training episodes, on literals worked out by hand."""

import math

import pytest
import torch

from pessimism.strategies import ACCPenalty, CalibratedPenalty, ValidationPenalty
from pessimism.strategies.base import Estimate, RecentEpisodes
from pessimism.strategies.calibrated import settled_sensitivity, wanted_change
from pessimism.types import Hindsight


def seen(bias, *, steps=10, spread=1.0):
    """An episode whose returns are 0, predicted by two critics at distance `spread` around `bias`."""
    values = torch.tensor([bias - spread / 2, bias + spread / 2]).view(2, 1, 1).expand(2, steps, 1)
    counted = torch.ones(steps, dtype=torch.bool)
    return None, Hindsight(values, torch.zeros(steps, dtype=torch.float64), counted)


# --- the newest episodes -------------------------------------------------------------------------------------


def test_bias_is_a_mean_over_states_and_its_error_one_over_episodes():
    recent = RecentEpisodes(4)
    for bias, steps in ((9.0, 5), (1.0, 1), (4.0, 3)):
        recent.add(seen(bias, steps=steps)[1])
    now = recent.newest(2)
    # The newest two: 1 state with bias 1, 3 with bias 4. Mean 13/4; sums deviate by 1 - 13/4 and 12 - 39/4.
    assert (now.bias, now.steps) == (3.25, 4)
    assert now.standard_error == pytest.approx(math.sqrt(2 * (2.25**2 + 2.25**2)) / 4)
    assert recent.newest(1).standard_error == math.inf


def test_standard_error_is_that_of_whole_episodes():
    generator = torch.Generator().manual_seed(0)
    luck = torch.randn(400, 8, generator=generator, dtype=torch.float64)  # of 400 windows of 8 episodes
    estimates = []
    for window in luck.tolist():
        recent = RecentEpisodes(8)
        for bias in window:
            recent.add(seen(bias, steps=20)[1])  # 20 states that share it
        estimates.append(recent.newest(8))
    spread = torch.tensor([one.bias for one in estimates]).std()
    typical = torch.tensor([one.standard_error for one in estimates]).square().mean().sqrt()
    assert typical == pytest.approx(spread.item(), rel=0.1)


def test_states_that_do_not_count_are_left_out():
    hindsight = seen(1.0, steps=4)[1]
    returns = torch.tensor([0.0, 0.0, -7.0, -7.0], dtype=torch.float64)
    counted = torch.tensor([True, True, False, False])
    recent = RecentEpisodes(2)
    recent.add(hindsight._replace(returns=returns, counted=counted), torch.tensor([1.0, 3.0, 100.0, 100.0]))
    assert recent.newest(1)[::2] == (1.0, 2.0)


def test_only_so_many_episodes_are_kept():
    recent = RecentEpisodes(3)
    for bias in range(5):
        recent.add(seen(float(bias), steps=2)[1])
    assert recent.count == 3
    assert recent.newest(10).bias == 3.0
    assert [recent.reaching(steps) for steps in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 3]
    assert recent.reaching(1, fewest=2) == 2


# --- calibrated ----------------------------------------------------------------------------------------------


def test_sensitivity_sums_the_penalties_that_follow():
    # gamma 1/2, W = 1, 2, 4: D_2 = 0, D_1 = (4 + 0) / 2, D_0 = (2 + 2) / 2.
    assert settled_sensitivity(torch.tensor([1.0, 2.0, 4.0]), 0.5).tolist() == [2.0, 2.0, 0.0]
    # Two steps at a time: D_1 and D_2 reach past the end, D_0 = 4 / 4.
    assert settled_sensitivity(torch.tensor([1.0, 2.0, 4.0]), 0.5, n_step=2).tolist() == [1.0, 0.0, 0.0]


def test_sensitivity_is_the_slope_of_settled_predictions():
    """On a chain, the fixed point of Q_t = r + gamma (Q_{t+1} - beta W_{t+1}) falls by D_t for each beta."""
    distance = torch.rand(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def settled(beta):
        values = [0.0] * 31
        for t in range(28, -1, -1):
            values[t] = 1 + 0.9 * (values[t + 1] - beta * float(distance[t + 1]))
        return torch.tensor(values[:30], dtype=torch.float64)

    torch.testing.assert_close(settled(1.0) - settled(3.0), 2 * settled_sensitivity(distance, 0.9))


@pytest.mark.parametrize(
    ("bias", "error", "expected"),
    [(2.0, 0.0, 0.5), (-2.0, 0.0, -0.5), (2.0, 1.0, 0.375), (2.0, 2.0, 0.0), (2.0, 3.0, 0.0), (40.0, 0.0, 1.0)],
)
def test_wanted_change_is_shrunk_by_its_error_and_bounded(bias, error, expected):
    assert wanted_change(Estimate(bias, error, sensitivity=4.0, steps=1)) == pytest.approx(expected)


def test_critics_that_agree_move_nothing():
    assert wanted_change(Estimate(2.0, 0.0, sensitivity=0.0, steps=1)) == 0.0
    assert wanted_change(Estimate(2.0, math.inf, sensitivity=1.0, steps=1)) == 0.0


def test_a_step_of_beta_on_literals():
    rule = CalibratedPenalty(0.5, discount=0.5, follow_rate=0.01, wait=0.0, fewest=2, gain=0.5)
    rule.episode_finished(*seen(0.25, steps=2))
    assert rule.beta.item() == 0.5  # one episode has no standard error
    rule.episode_finished(*seen(0.25, steps=2))
    # T = 100, window of 4 steps. D = (1/2, 0), mean 1/4, so that b / D = 1.
    assert rule.beta.item() == pytest.approx(0.5 + 0.5 * 2 / (100 + 4))


@pytest.mark.parametrize(("bias", "limit"), [(100.0, 5.0), (-100.0, 0.0)])
def test_beta_goes_against_the_bias_and_stays_in_its_range(bias, limit):
    rule = CalibratedPenalty(0.5, discount=0.9, follow_rate=1.0, wait=0.0)
    betas = []
    for _ in range(60):
        rule.episode_finished(*seen(bias, steps=50))
        betas.append(rule.beta.item())
    assert betas[5] != 0.5
    assert betas[-1] == limit


def test_nothing_is_measured_before_the_critics_follow():
    rule = CalibratedPenalty(0.5, follow_rate=0.01, wait=1.0, fewest=2)
    for _ in range(9):
        rule.episode_finished(*seen(50.0, steps=11))
    assert rule.recent.count == 0  # 99 steps
    rule.episode_finished(*seen(50.0, steps=11))
    assert rule.recent.count == 1
    rule.episode_finished(None, None)  # of random actions
    assert rule.recent.count == 1


def test_the_window_is_short():
    rule = CalibratedPenalty(0.5, follow_rate=0.01, wait=0.0, fewest=2)
    for bias in (90.0, 80.0, 3.0, 2.0, 1.0):
        metrics = rule.episode_finished(*seen(bias, steps=10))
    assert metrics["calibration/bias"] == 2.0  # T / 4 = 25 steps: three episodes of 10


# --- ACC's rule ----------------------------------------------------------------------------------------------


def test_acc_on_literals():
    rule = ACCPenalty(1.0, start=100, every=20, window=40)
    rule.advance(99)
    rule.episode_finished(*seen(4.0, steps=30))
    assert rule.beta.item() == 1.0  # too early
    rule.advance(130)
    rule.episode_finished(*seen(2.0, steps=30))
    # Two episodes reach back 40 steps: d = 3, and |d| of the first step is its own scale.
    assert rule.beta.item() == pytest.approx(1.1)
    rule.episode_finished(*seen(0.0, steps=10))
    assert rule.beta.item() == pytest.approx(1.1)  # 10 steps since the last move
    rule.episode_finished(*seen(-6.0, steps=30))
    # The newest 40 steps: 30 of -6 and 10 of 0, d = -4.5; scale 0.95 * 3 + 0.05 * 4.5.
    assert rule.beta.item() == pytest.approx(1.1 - 0.1 * 4.5 / (0.95 * 3 + 0.05 * 4.5))
    rule.episode_finished(None, None)


# --- state ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: CalibratedPenalty(0.5, follow_rate=0.05, wait=0.5, fewest=2),
        lambda: ACCPenalty(0.5, start=0, every=15, window=30),
    ],
    ids=["calibrated", "acc"],
)
def test_state_dict_is_the_whole_state(make):
    biases = [1.0, 1.5, 3.0, 0.5, -1.0, 2.0, 2.5, -4.0]
    first, second = make(), make()
    for bias in biases[:5]:
        first.episode_finished(*seen(bias))
    second.load_state_dict(first.state_dict())
    for bias in biases[5:]:
        first.episode_finished(*seen(bias))
        second.episode_finished(*seen(bias))
    assert first.beta.item() != 0.5
    for name, tensor in first.state_dict().items():
        assert torch.equal(second.state_dict()[name], tensor), name


# --- validation ----------------------------------------------------------------------------------------------


def test_validation_learns_from_what_was_held_out_alone():
    rule, values = ValidationPenalty(0.5, lr=0.01), torch.zeros(2, 3, 1)
    metrics = rule.update(values, torch.ones(3, 1))
    assert (rule.beta.item(), metrics["train/td_error"].item()) == (0.5, 1.0)
    assert rule.validate(values, torch.full((3, 1), -2.0))["bias/validation_td"].item() == -2.0
    assert rule.beta.item() == pytest.approx(0.49)
