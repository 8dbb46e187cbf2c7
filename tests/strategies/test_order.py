"""Targets as weighted sums of ordered estimates, which C++ computes, against `target_value`."""

import pytest
import torch

from pessimism.strategies import (
    ACCPenalty,
    BanditPenalty,
    CalibratedPenalty,
    ClippedMinimum,
    FixedPenalty,
    LearnedPenalty,
    Pessimism,
    SubsetMinimum,
)
from pessimism.values import average, ensemble_spread, pairwise_distance_w2

STRATEGIES = [
    FixedPenalty(0.7),
    LearnedPenalty(-0.3),
    BanditPenalty([0.4, 1.0]),
    CalibratedPenalty(0.9),
    ACCPenalty(),
    ClippedMinimum(),
]


def in_order(order, values):
    """Return the weighted sum, written out: [N, B, 1] -> [B, 1]."""
    assert len(order.members) == len(order.weights)
    ascending = values[list(order.members)].sort(dim=0).values
    return sum(weight * line for weight, line in zip(order.weights, ascending, strict=True))


@pytest.mark.parametrize("count", [1, 2, 3, 10])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: type(one).__name__)
def test_weighted_sums_are_target_values(strategy, count):
    values = torch.randn(count, 50, 1, generator=torch.Generator().manual_seed(count))
    torch.testing.assert_close(in_order(strategy.target_order(count), values), strategy.target_value(values))


@pytest.mark.parametrize("subset", [1.0, 2.0, 2.5, 7.0])
def test_the_subset_in_the_sum_is_the_one_that_was_drawn(subset):
    strategy, values = SubsetMinimum(7, subset), torch.randn(7, 50, 1)
    for _ in range(10):
        strategy.redraw()
        torch.testing.assert_close(in_order(strategy.target_order(7), values), strategy.target_value(values))


@pytest.mark.parametrize("disagreement", [ensemble_spread, pairwise_distance_w2])
def test_other_measures_of_disagreement_have_no_order(disagreement):
    assert FixedPenalty(disagreement=disagreement).target_order(5) is None


def test_a_target_of_its_own_does_not_inherit_an_order():
    class Mean(FixedPenalty):
        def target_value(self, values):
            return average(values)

    class MeanInOrder(Mean):
        def target_order(self, count):
            return FixedPenalty(0.0).target_order(count)

    class Child(MeanInOrder):
        pass

    assert Pessimism().target_order(3) is None
    assert Mean().target_order(3) is None
    assert MeanInOrder().target_order(3) is not None
    assert Child().target_order(3) is not None
