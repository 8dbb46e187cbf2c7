"""Arithmetic on literals worked by hand, and identities of the paper."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pessimism.values import lowest, pairwise_distance, squared_td_loss


def by_pairs(values):
    """Mean Wasserstein-1 distance from its definition: all pairs, sorted atoms."""
    atoms = values.sort(dim=-1).values
    pairs = [(i, j) for i in range(len(atoms)) for j in range(i)]
    return torch.stack([(atoms[i] - atoms[j]).abs().mean(-1, keepdim=True) for i, j in pairs]).mean(0)


def test_td_loss_sums_over_critics_and_averages_over_the_batch():
    values = torch.tensor([[[1.0], [2.0]], [[3.0], [5.0]]])  # N = 2, B = 2
    target = torch.tensor([[0.0], [1.0]])
    # errors 1, 1 and 3, 4: half of mean(1, 1) + mean(9, 16) = 0.5 * (1 + 12.5)
    assert squared_td_loss(values, target).item() == pytest.approx(6.75)


def test_distance_of_two_critics_is_the_distance_of_their_values():
    values = torch.tensor([[[1.0]], [[4.0]]])
    assert pairwise_distance(values).tolist() == [[3.0]]


def test_distance_of_three_critics():
    values = torch.tensor([[[7.0]], [[1.0]], [[3.0]]])
    # |7-1| = 6, |7-3| = 4, |1-3| = 2: mean 4
    assert pairwise_distance(values).item() == pytest.approx(4.0)


def test_distance_of_return_distributions_sorts_their_atoms():
    values = torch.tensor([[[3.0, 1.0]], [[2.0, 6.0]]])
    # sorted 1, 3 and 2, 6: (|1-2| + |3-6|) / 2 = 2
    assert pairwise_distance(values).item() == pytest.approx(2.0)


def test_distance_of_equal_critics_is_zero_with_a_finite_gradient():
    values = torch.full((5, 3, 1), 2.0, requires_grad=True)
    distance = pairwise_distance(values)
    distance.sum().backward()
    assert distance.abs().max() < 1e-6
    assert values.grad.isfinite().all()


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**31))
def test_sorted_form_equals_pairwise_form(members, batch, atoms, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(members, batch, atoms, generator=generator, dtype=torch.float64) * 10
    torch.testing.assert_close(pairwise_distance(values), by_pairs(values))


def test_gradient_of_the_distance_is_that_of_the_pairwise_form():
    values = torch.randn(7, 11, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one, two = values.clone().requires_grad_(), values.clone().requires_grad_()
    pairwise_distance(one).sum().backward()
    by_pairs(two).sum().backward()
    torch.testing.assert_close(one.grad, two.grad)


@pytest.mark.parametrize("members", [2, 3, 5, 10, 20])
def test_expected_distance_of_gaussian_critics_does_not_depend_on_their_number(members):
    """E|Qi - Qj| = 2 sigma / sqrt(pi) (the paper prints 2 sigma / pi: a root is missing)."""
    sigma, samples = 3.0, 200_000
    generator = torch.Generator().manual_seed(members)
    values = sigma * torch.randn(members, samples, 1, generator=generator, dtype=torch.float64)
    distances = pairwise_distance(values)
    error = distances.std().item() / math.sqrt(samples)
    assert distances.mean().item() == pytest.approx(2 * sigma / math.sqrt(math.pi), abs=4 * error)


def test_lowest_keeps_the_atoms_of_one_critic_whole():
    values = torch.tensor([[[0.0, 7.0], [1.0, 1.0]], [[4.0, 4.0], [-9.0, 15.0]]])
    # means 3.5 and 4 in the first state, 1 and 3 in the second: neither the largest nor the smallest atom decides
    assert lowest(values).tolist() == [[0.0, 7.0], [1.0, 1.0]]
