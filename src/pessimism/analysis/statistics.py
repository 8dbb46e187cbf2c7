"""Aggregate statistics over tasks and seeds, by the protocol of Agarwal et al., 2021 (Rliable).

An algorithm's scores are one array per task, [.., seeds]; the numbers of seeds may differ. Every statistic
works along the last axis of such arrays, so that the same function gives the point estimate and, for
leading axes of resamples, all of its bootstrap replicates at once.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Tasks = Sequence[Array]
"""One array [.., seeds] per task."""

RESAMPLES = 50_000  # paper, App. B: for all measures but the probability of improvement
RESAMPLES_OF_PAIRS = 2_000  # paper, App. B: for the probability of improvement
CONFIDENCE = 0.95

# SAC's return after 3M steps. The paper normalises by it and does not print it: these round numbers reproduce
# all four normalised averages of its 100K table.
SAC_AT_3M = {"Hopper": 3300.0, "HalfCheetah": 15000.0, "Walker2d": 5600.0, "Ant": 5800.0, "Humanoid": 6000.0}
CONTROL_SUITE = 1000.0  # largest return of a DeepMind Control task


class Interval(NamedTuple):
    """A point estimate and the bounds of its bootstrap interval."""

    point: float
    low: float
    high: float


def mean(tasks: Tasks) -> Array:
    """Return the mean over tasks of each task's mean."""
    return np.mean([task.mean(-1) for task in tasks], axis=0)


def median(tasks: Tasks) -> Array:
    """Return the median over tasks of each task's mean."""
    return np.median([task.mean(-1) for task in tasks], axis=0)


def interquartile_mean(tasks: Tasks) -> Array:
    """Return the mean of the middle half of all runs. With unequal numbers of seeds each run weighs the same."""
    runs = np.sort(np.concatenate(tasks, axis=-1), axis=-1)
    cut = runs.shape[-1] // 4
    return np.asarray(runs[..., cut : runs.shape[-1] - cut].mean(-1))


def optimality_gap(tasks: Tasks, goal: float = 1.0) -> Array:
    """Return by how much runs fall short of the goal; what exceeds it does not make up for it."""
    return goal - mean([np.minimum(task, goal) for task in tasks])


def improvement_probability(first: Tasks, second: Tasks) -> Array:
    """Return how likely a run of `first` beats one of `second` on a random task (Mann-Whitney U; ties: 1/2)."""
    wins = [np.sign(one[..., :, None] - other[..., None, :]) for one, other in zip(first, second, strict=True)]
    return np.mean([(1 + won.mean((-2, -1))) / 2 for won in wins], axis=0)


def performance_profile(tasks: Tasks, thresholds: Array) -> Array:
    """Return the share of runs above each threshold, tasks weighing the same: [thresholds]."""
    return np.mean([(task[:, None] > thresholds).mean(0) for task in tasks], axis=0)


def resampled(tasks: Tasks, resamples: int, generator: np.random.Generator) -> list[Array]:
    """Draw seeds with replacement within each task (stratified bootstrap): arrays [resamples, seeds]."""
    return [task[generator.integers(len(task), size=(resamples, len(task)))] for task in tasks]


def interval(
    statistic: Callable[[Tasks], Array], tasks: Tasks, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return a statistic with its stratified percentile bootstrap interval."""
    replicates = statistic(resampled(tasks, resamples, _generator(seed, tasks)))
    low, high = _percentiles(replicates)
    return Interval(float(statistic(tasks)), float(low), float(high))


def improvement_interval(
    first: Tasks, second: Tasks, *, resamples: int = RESAMPLES_OF_PAIRS, seed: int = 0
) -> Interval:
    """Return the probability of improvement with its interval; both sides are resampled."""
    generator = _generator(seed, [*first, *second])
    samples = [resampled(tasks, resamples, generator) for tasks in (first, second)]
    low, high = _percentiles(improvement_probability(*samples))
    return Interval(float(improvement_probability(first, second)), float(low), float(high))


def profile_interval(
    tasks: Tasks, thresholds: Array, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Array, Array, Array]:
    """Return the performance profile and its pointwise bounds, each [thresholds]."""
    generator, replicates = _generator(seed, tasks), np.zeros((resamples, len(thresholds)))
    for task in tasks:
        # A resample is how often each seed was drawn, so that all thresholds are one matrix product.
        drawn = generator.multinomial(len(task), np.full(len(task), 1 / len(task)), size=resamples)
        replicates += drawn.astype(np.float64) @ (task[:, None] > thresholds) / (len(task) * len(tasks))
    low, high = _percentiles(replicates)
    return performance_profile(tasks, thresholds), low, high


def _percentiles(replicates: Array) -> tuple[Array, Array]:
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(replicates, (tail, 100 - tail), axis=0)
    return low, high


def _generator(seed: int, tasks: Tasks) -> np.random.Generator:
    """Return a stream that the scores decide, so that an interval does not change with what stands beside it."""
    content = b"".join(np.ascontiguousarray(task).tobytes() for task in tasks)
    return np.random.default_rng([seed, zlib.crc32(content)])
