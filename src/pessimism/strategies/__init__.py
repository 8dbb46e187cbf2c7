"""How an ensemble is read: each strategy works with any agent that has several critics."""

from pessimism.strategies.bandit import BanditPenalty, ExponentialWeights
from pessimism.strategies.base import OrderedSum, Pessimism
from pessimism.strategies.calibrated import ACCPenalty, CalibratedPenalty
from pessimism.strategies.minimum import ClippedMinimum, SubsetMinimum
from pessimism.strategies.penalty import FixedPenalty, LearnedPenalty, SquaredBiasPenalty, ValidationPenalty

__all__ = [
    "ACCPenalty",
    "BanditPenalty",
    "CalibratedPenalty",
    "ClippedMinimum",
    "ExponentialWeights",
    "FixedPenalty",
    "LearnedPenalty",
    "OrderedSum",
    "Pessimism",
    "SquaredBiasPenalty",
    "SubsetMinimum",
    "ValidationPenalty",
]
