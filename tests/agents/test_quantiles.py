"""Quantile critics: loss, distances and rules on literals."""

import pytest
import torch

from pessimism.config.resolve import merge, preset_values, validated
from pessimism.errors import UserError
from pessimism.strategies import FixedPenalty, LearnedPenalty
from pessimism.values import average, pairwise_distance, pairwise_distance_w2, quantile_huber_loss


def test_loss_on_literals():
    """One critic, quantiles (0, 3) at tau (1/4, 3/4), target atoms (1, 2.5).

    Errors 1 and 2.5 of the first, -2 and -0.5 of the second; Huber 0.5, 2, 1.5, 0.125; weights 1/4, 1/4
    and |3/4 - 1| = 1/4 twice: the sum is 4.125 / 4, the mean over two target atoms half of it.
    """
    loss = quantile_huber_loss(torch.tensor([[[0.0, 3.0]]]), torch.tensor([[1.0, 2.5]]))
    assert loss.item() == pytest.approx(4.125 / 4 / 2)


def test_loss_weighs_both_sides_by_their_quantile():
    values = torch.tensor([[[0.0, 0.0]]])
    above = quantile_huber_loss(values, torch.tensor([[1.0]]))  # weights 1/4 + 3/4
    assert above.item() == pytest.approx(0.5)
    values.requires_grad_(True)
    (gradient,) = torch.autograd.grad(quantile_huber_loss(values, torch.tensor([[1.0]])), values)
    assert gradient.flatten().tolist() == pytest.approx([-0.25, -0.75])
    (gradient,) = torch.autograd.grad(quantile_huber_loss(values, torch.tensor([[-1.0]])), values)
    assert gradient.flatten().tolist() == pytest.approx([0.75, 0.25])


def test_loss_sums_over_critics_and_averages_over_the_batch():
    generator = torch.Generator().manual_seed(0)
    values, target = torch.randn(3, 5, 4, generator=generator), torch.randn(5, 4, generator=generator)
    parts = [
        [quantile_huber_loss(values[n : n + 1, b : b + 1], target[b : b + 1]) for b in range(5)] for n in range(3)
    ]
    expected = torch.tensor(parts).mean(1).sum()
    torch.testing.assert_close(quantile_huber_loss(values, target), expected)


def test_kappa_is_where_the_loss_turns_linear():
    values, target = torch.zeros(1, 1, 1), torch.tensor([[3.0]])  # tau 1/2
    assert quantile_huber_loss(values, target, kappa=1.0).item() == pytest.approx(0.5 * (3.0 - 0.5))
    assert quantile_huber_loss(values, target, kappa=2.0).item() == pytest.approx(0.5 * 2.0 * (3.0 - 1.0))
    assert quantile_huber_loss(values, target, kappa=5.0).item() == pytest.approx(0.5 * 4.5)


def test_the_loss_is_least_at_the_quantiles_of_the_target():
    """A thousand descents from zero end at the midpoints' quantiles of a uniform sample."""
    target = torch.linspace(0, 1, 1001).view(1, -1)
    values = torch.zeros(1, 1, 4, requires_grad=True)
    for _ in range(2000):
        (gradient,) = torch.autograd.grad(quantile_huber_loss(values, target, kappa=1e-3), values)
        values.data.sub_(10.0 * gradient)
    assert values.flatten().tolist() == pytest.approx([0.125, 0.375, 0.625, 0.875], abs=5e-3)


VALUES = torch.tensor([[[3.0, 1.0]], [[2.0, 6.0]], [[1.0, 3.0]]])  # sorted: (1, 3), (2, 6), (1, 3)


def test_distances_sort_the_quantiles_first():
    """Pairs of sorted atoms: (1, 3)-(2, 6) twice, with differences (1, 3), and (1, 3)-(1, 3)."""
    assert pairwise_distance(VALUES).item() == pytest.approx((2.0 + 2.0 + 0.0) / 3)
    assert pairwise_distance_w2(VALUES).item() == pytest.approx((5.0**0.5 + 5.0**0.5 + 0.0) / 3)
    assert average(VALUES).tolist() == [[pytest.approx(4 / 3), pytest.approx(4.0)]]


def test_penalty_is_subtracted_from_every_quantile():
    rule = FixedPenalty(0.5)
    shift = average(VALUES) - rule.target_value(VALUES)
    assert shift.tolist() == [[pytest.approx(2 / 3), pytest.approx(2 / 3)]]
    assert torch.equal(rule.actor_value(VALUES), rule.target_value(VALUES))


def test_distances_agree_for_one_atom():
    values = torch.randn(6, 7, 1, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(pairwise_distance_w2(values), pairwise_distance(values))


def test_gradient_of_w2_is_finite_where_critics_agree():
    values = torch.zeros(3, 2, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(pairwise_distance_w2(values).sum(), values)
    assert gradient.isfinite().all()


def test_dual_step_takes_the_mean_of_all_quantile_errors():
    generator = torch.Generator().manual_seed(0)
    values, target = torch.randn(3, 5, 4, generator=generator), torch.randn(5, 4, generator=generator)
    every_pair = target[None, :, None, :] - values[..., None]  # [N, B, K, K]
    rule = LearnedPenalty()
    (gradient,) = torch.autograd.grad(rule.penalty_loss(values, target), [rule.beta])
    torch.testing.assert_close(gradient, -every_pair.mean())


def test_presets_have_the_paper_settings():
    for name, measure in (("gpl-qr-sac", "wasserstein1"), ("gpl-qr-sac-w2", "wasserstein2")):
        config = validated(preset_values(name) | {"env": "any"})
        assert (config.critic.atoms, config.critic.kappa, config.pessimism.measure) == (10, 1.0, measure)


def test_negative_quantile_counts_are_refused():
    values = merge(preset_values("gpl-qr-sac"), {"env": "any", "critic": {"atoms": -10}})
    with pytest.raises(UserError, match=r"^critic.atoms: .*greater than or equal to 1, not -10$"):
        validated(values)
