"""Atoms with weights: the same arithmetic on a categorical critic's estimates, on literals worked by hand."""

import math

import pytest
import torch
from torch.nn import functional

from pessimism.strategies import ClippedMinimum, FixedPenalty, LearnedPenalty, SquaredBiasPenalty, SubsetMinimum
from pessimism.values import (
    Atoms,
    average,
    cross_entropy_loss,
    ensemble_spread,
    expectation,
    lowest,
    moved,
    pairwise_distance,
    projected,
    td_error,
)

SUPPORT = torch.tensor([-1.0, 0.0, 1.0])


def on_support(weights, support=SUPPORT):
    weight = torch.tensor(weights)
    return Atoms(support.expand_as(weight), weight.log())


# N = 2, B = 2: the means are 0.5 and -0.25 for the first critic, 0 and 0.5 for the second
PAIR = on_support([[[0.25, 0.0, 0.75], [0.5, 0.25, 0.25]], [[0.25, 0.5, 0.25], [0.0, 0.5, 0.5]]])


def test_expectation_weighs_the_atoms():
    assert expectation(PAIR).flatten().tolist() == pytest.approx([0.5, -0.25, 0.0, 0.5])


def test_distance_is_the_area_between_the_distribution_functions():
    # F at -1 and 0: (0.25, 0.25) and (0.25, 0.75); (0.5, 0.75) and (0, 0.5)
    assert pairwise_distance(PAIR).flatten().tolist() == pytest.approx([0.5, 0.75])


def test_distance_is_that_of_as_many_equally_likely_atoms():
    """Weights that are multiples of 1/8 are the same distributions as eight equally likely atoms."""
    generator = torch.Generator().manual_seed(0)
    support = torch.linspace(-3.0, 2.0, 6, dtype=torch.float64)
    index = torch.randint(6, (5, 4, 8), generator=generator)  # N, B, 8
    weight = functional.one_hot(index, 6).double().mean(dim=2)
    atoms, equal = Atoms(support.expand_as(weight), weight.log()), support[index]
    torch.testing.assert_close(pairwise_distance(atoms), pairwise_distance(equal))
    torch.testing.assert_close(expectation(atoms), expectation(equal))
    torch.testing.assert_close(expectation(average(atoms)), expectation(average(equal)))


def test_average_is_the_mixture():
    assert average(PAIR).weight.tolist() == [
        pytest.approx([0.25, 0.25, 0.5]),
        pytest.approx([0.25, 0.375, 0.375]),
    ]


def test_spread_is_that_of_the_means():
    assert ensemble_spread(PAIR).flatten().tolist() == pytest.approx([0.25, 0.375])


def test_lowest_keeps_a_whole_distribution():
    assert lowest(PAIR).weight.tolist() == [pytest.approx([0.25, 0.5, 0.25]), pytest.approx([0.5, 0.25, 0.25])]


def test_lowest_of_those_that_count():
    left_out = torch.tensor([False, True]).view(2, 1, 1)
    assert torch.equal(lowest(PAIR, left_out).weight, PAIR.weight[0])


def test_projection_shares_weight_between_neighbours_and_keeps_it_at_the_ends():
    target = Atoms(torch.tensor([[-1.75, 0.25, 3.0]]), torch.tensor([[0.5, 0.4, 0.1]]).log())
    # all of 0.5 at -1; of 0.4 three quarters at 0 and one at 1; all of 0.1 at 1
    assert projected(target, SUPPORT).tolist() == [pytest.approx([0.5, 0.3, 0.2])]


def test_projection_on_atoms_of_the_support_changes_nothing():
    target = Atoms(SUPPORT.expand(1, 3), torch.tensor([[0.5, 0.4, 0.1]]).log())
    assert projected(target, SUPPORT).tolist() == [pytest.approx([0.5, 0.4, 0.1])]


def reference_projection(location, weight, low, high, count):
    """C51's Algorithm 1, atom by atom."""
    gap, result = (high - low) / (count - 1), [0.0] * count
    for place, share in zip(location, weight, strict=True):
        b = (min(max(place, low), high) - low) / gap
        down, up = math.floor(b), math.ceil(b)
        result[down] += share if down == up else share * (up - b)
        result[up] += 0.0 if down == up else share * (b - down)
    return result


def test_projection_is_that_of_c51():
    generator = torch.Generator().manual_seed(1)
    support = torch.linspace(-5.0, 5.0, 101, dtype=torch.float64)
    location = 0.5 + 0.99 * (support + 0.3 * torch.randn(4, 1, generator=generator, dtype=torch.float64))
    weight = torch.rand(4, 101, generator=generator, dtype=torch.float64).softmax(dim=-1)
    ours = projected(Atoms(location, weight.log()), support)
    for row in range(4):
        expected = reference_projection(location[row].tolist(), weight[row].tolist(), -5.0, 5.0, 101)
        assert ours[row].tolist() == pytest.approx(expected, abs=1e-9)


def test_loss_is_the_cross_entropy_summed_over_critics_and_averaged_over_the_batch():
    predicted = [[[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], [[0.25, 0.25, 0.5], [0.125, 0.5, 0.375]]]
    values = on_support(predicted)
    target = Atoms(torch.tensor([[-1.0, 0.0, 1.0], [-0.5, 0.0, 9.0]]), torch.tensor([[0.5, 0.25, 0.25]] * 2).log())
    labels = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]
    expected = -sum(
        label * math.log(predicted[member][row][k])
        for member in range(2)
        for row in range(2)
        for k, label in enumerate(labels[row])
    )
    assert cross_entropy_loss(values, target).item() == pytest.approx(expected / 2)


def test_td_error_is_that_of_the_means_with_the_target_inside_the_support():
    target = Atoms(torch.tensor([[-1.0, 0.5, 4.0]]), torch.tensor([[0.25, 0.5, 0.25]]).log())
    values = on_support([[[0.25, 0.5, 0.25]], [[0.0, 0.0, 1.0]]])
    # the target's mean is -0.25 + 0.25 + 0.25, as 4 counts as 1
    assert td_error(values, target).flatten().tolist() == pytest.approx([0.25, -0.75])


def test_penalty_moves_the_mixture_down():
    value = FixedPenalty(0.8).target_value(PAIR)
    assert expectation(value).flatten().tolist() == pytest.approx([0.25 - 0.8 * 0.5, 0.125 - 0.8 * 0.75])
    assert torch.equal(value.log_weight, average(PAIR).log_weight)
    actor = FixedPenalty(0.8, optimism=lambda step: 0.2).actor_value(PAIR)
    assert expectation(actor).flatten().tolist() == pytest.approx([0.25 - 0.6 * 0.5, 0.125 - 0.6 * 0.75])


def test_minimum_takes_the_distribution_of_the_lower_mean():
    assert torch.equal(ClippedMinimum().target_value(PAIR).weight, lowest(PAIR).weight)
    subset = SubsetMinimum(2, 2.0)
    assert torch.equal(subset.target_value(PAIR).weight, lowest(PAIR).weight)
    assert torch.equal(subset.actor_value(PAIR).weight, average(PAIR).weight)


@pytest.mark.parametrize("rule", [LearnedPenalty, SquaredBiasPenalty])
def test_beta_learns_from_the_means(rule):
    raised, lowered = rule(0.5, lr=0.01), rule(0.5, lr=0.01)
    raised.update(moved(PAIR, lambda location: location - 2), raised.target_value(PAIR))
    lowered.update(PAIR, lowered.target_value(moved(PAIR, lambda location: location - 0.9)))
    assert raised.beta.item() == pytest.approx(0.51, abs=1e-5)
    assert lowered.beta.item() == pytest.approx(0.49, abs=1e-5)
