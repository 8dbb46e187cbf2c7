"""Appendix A: what the expected size of a measure of disagreement depends on."""

import math

import pytest
import torch

from pessimism.values import ensemble_spread, pairwise_distance

SAMPLES = 40_000


def gaussian_ensemble(members):
    return torch.randn(members, SAMPLES, 1, generator=torch.Generator().manual_seed(members))


def expected_spread(members):
    """Return E[s] of N standard normal values, s their population standard deviation: chi with N - 1 degrees."""
    return math.sqrt(2 / members) * math.exp(math.lgamma(members / 2) - math.lgamma((members - 1) / 2))


@pytest.mark.parametrize("members", [2, 3, 5, 10, 20])
def test_expected_pairwise_distance_does_not_depend_on_the_number_of_critics(members):
    distance = pairwise_distance(gaussian_ensemble(members))
    assert distance.mean().item() == pytest.approx(2 / math.sqrt(math.pi), abs=0.015)


@pytest.mark.parametrize("members", [2, 3, 5, 10, 20])
def test_expected_spread_depends_on_the_number_of_critics(members):
    spread = ensemble_spread(gaussian_ensemble(members))
    assert spread.mean().item() == pytest.approx(expected_spread(members), abs=0.01)


def test_expected_spreads_differ_by_two_thirds():
    assert expected_spread(2) == pytest.approx(1 / math.sqrt(math.pi))  # half the pairwise distance
    assert expected_spread(20) > 1.65 * expected_spread(2)


def test_pairwise_distance_varies_less_with_more_critics():
    stds = [pairwise_distance(gaussian_ensemble(members)).std().item() for members in (2, 5, 20)]
    assert stds[0] == pytest.approx(math.sqrt(2 - 4 / math.pi), abs=0.02)
    assert stds[0] > stds[1] > stds[2]


def test_spread_on_literals():
    values = torch.tensor([[[1.0, 0.0]], [[3.0, 6.0]]])
    assert ensemble_spread(values).tolist() == [[pytest.approx(1.5), pytest.approx(2.5)]]  # sorted: (0, 1), (3, 6)


def test_gradient_of_spread_is_finite_where_critics_agree():
    values = torch.ones(4, 2, 1, requires_grad=True)
    (gradient,) = torch.autograd.grad(ensemble_spread(values).sum(), values)
    assert gradient.isfinite().all()
