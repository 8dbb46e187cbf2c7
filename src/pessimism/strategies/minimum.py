"""Rules that take a smallest estimate."""

from torch import Tensor

from pessimism.strategies.base import Pessimism
from pessimism.values import lowest


class ClippedMinimum(Pessimism):
    """Clipped double Q-learning (Fujimoto et al., 2018; Eqn. 3): the lowest critic, everywhere."""

    def target_value(self, values: Tensor) -> Tensor:
        """Return the lowest critic's estimate."""
        return lowest(values)

    def actor_value(self, values: Tensor) -> Tensor:
        """Return the lowest critic's estimate."""
        return lowest(values)
