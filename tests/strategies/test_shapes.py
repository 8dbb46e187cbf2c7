"""Strategies take [critics, batch, atoms] and nothing else."""

import pytest
import torch

from pessimism.strategies import BanditPenalty, ClippedMinimum, FixedPenalty, LearnedPenalty, SubsetMinimum
from pessimism.values import (
    Atoms,
    average,
    ensemble_spread,
    lowest,
    pairwise_distance,
    pairwise_distance_w2,
)

READERS = [average, lowest, pairwise_distance, pairwise_distance_w2, ensemble_spread]
STRATEGIES = [FixedPenalty(), LearnedPenalty(), ClippedMinimum(), SubsetMinimum(3), BanditPenalty([0.0, 1.0])]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: type(one).__name__)
def test_strategies_refuse_other_axes(strategy):
    for read in (strategy.target_value, strategy.actor_value):
        with pytest.raises(ValueError, match=r"shape \(3, 8\): .* values.unsqueeze\(-1\)$"):  # CleanRL's layout
            read(torch.randn(3, 8))
        assert read(torch.randn(3, 8, 1)).shape == (8, 1)


@pytest.mark.parametrize("read", READERS, ids=lambda one: one.__name__)
def test_each_reader_refuses_other_axes(read):
    for shape in ((4,), (3, 8), (2, 3, 8, 1)):
        with pytest.raises(ValueError, match="critics, batch, atoms"):
            read(torch.randn(shape))


def test_atoms_with_weights_too():
    flat = Atoms(torch.zeros(8, 5), torch.zeros(8, 5))
    for read in (average, lowest, pairwise_distance, ensemble_spread):
        with pytest.raises(ValueError, match="critics, batch, atoms"):
            read(flat)
