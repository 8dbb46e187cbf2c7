"""Strategies that take the smallest estimate."""

import math

import torch
from torch import Tensor

from pessimism.strategies.base import OrderedSum, Pessimism
from pessimism.values import Values, average, lowest


class ClippedMinimum(Pessimism):
    """Clipped double Q-learning (Fujimoto et al., 2018; Eqn. 3): the lowest critic, everywhere."""

    def target_value(self, values: Values) -> Values:
        """Return the lowest critic's estimate."""
        return lowest(values)

    def target_order(self, count: int) -> OrderedSum:
        """Return a weight of 1 for the lowest."""
        return OrderedSum(range(count), [1.0, *[0.0] * (count - 1)])

    def actor_value(self, values: Values) -> Values:
        """Return the lowest critic's estimate."""
        return lowest(values)


class SubsetMinimum(Pessimism):
    """REDQ (Chen et al., 2021): the lowest of M random critics for the target, the mean for the actor.

    The subset is a mask over the members: the update's graph has one shape for all subsets. A
    fractional M draws one critic more as often as the fraction says.
    """

    left_out: Tensor

    def __init__(self, members: int, subset: float = 2.0, *, generator: torch.Generator | None = None) -> None:
        super().__init__(generator)
        self.subset = subset
        self.register_buffer("left_out", torch.ones(members, 1, 1, dtype=torch.bool))
        self.redraw()

    def redraw(self) -> None:
        """Draw the critics of the next update, without replacement."""
        extra = torch.rand((), generator=self.generator, device="cpu") < self.subset % 1
        order = torch.randperm(len(self.left_out), generator=self.generator, device="cpu")
        self.left_out.copy_((order >= math.floor(self.subset) + extra).view(-1, 1, 1), non_blocking=True)

    def target_value(self, values: Values) -> Values:
        """Return the estimate of the lowest critic in the subset."""
        return lowest(values, self.left_out)

    def target_order(self, count: int) -> OrderedSum:
        """Return a weight of 1 for the lowest in the subset."""
        subset = [index for index, absent in enumerate(self.left_out.flatten().tolist()) if not absent]
        return OrderedSum(subset, [1.0, *[0.0] * (len(subset) - 1)])

    def actor_value(self, values: Values) -> Values:
        """Return the mean of all critics."""
        return average(values)
