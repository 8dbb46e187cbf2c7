"""How an ensemble is read: each strategy drops into any agent that has several critics."""

from pessimism.strategies.base import Pessimism
from pessimism.strategies.minimum import ClippedMinimum
from pessimism.strategies.penalty import FixedPenalty, LearnedPenalty

__all__ = ["ClippedMinimum", "FixedPenalty", "LearnedPenalty", "Pessimism"]
