"""Aggregate statistics over tasks and seeds, by the protocol of Agarwal et al., 2021 (Rliable).

An algorithm's scores are one array per task, [.., seeds]; the numbers of seeds may differ. Every statistic
works along the last axis of such arrays, so that the same function gives the point estimate and, for
leading axes of resamples, all of its bootstrap replicates at once. A score that is NaN makes the statistic NaN.

Differences of means have Welch's t intervals: with three or five seeds a bootstrap interval is too narrow, and the
paper prints means and standard deviations only.
"""

import math
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

# SAC's return after 3M steps. The paper normalises by it and does not print it. These round numbers are a guess:
# they reproduce the four normalised averages of its 100K table, but five values do not follow from four means, and
# the printed standard deviations are missed by up to 0.02. The suite `sac-3m` would measure them.
SAC_AT_3M = {"Hopper": 3300.0, "HalfCheetah": 15000.0, "Walker2d": 5600.0, "Ant": 5800.0, "Humanoid": 6000.0}
CONTROL_SUITE = 1000.0  # largest return of a DeepMind Control task


class Interval(NamedTuple):
    """A point estimate and the bounds of its interval, NaN where there are too few seeds for one."""

    point: float
    low: float
    high: float


class Sample(NamedTuple):
    """What a difference of means needs to know of the runs on one task."""

    mean: float
    std: float  # of the sample (n - 1); NaN of a single run
    seeds: int

    @classmethod
    def of(cls, scores: Array) -> "Sample":
        """Return mean and standard deviation of scores [seeds]."""
        return cls(float(scores.mean()), float(scores.std(ddof=1)) if len(scores) > 1 else math.nan, len(scores))


def mean(tasks: Tasks) -> Array:
    """Return the mean over tasks of each task's mean."""
    return np.mean([task.mean(-1) for task in tasks], axis=0)


def median(tasks: Tasks) -> Array:
    """Return the median over tasks of each task's mean."""
    return np.median([task.mean(-1) for task in tasks], axis=0)


def interquartile_mean(tasks: Tasks) -> Array:
    """Return the mean of the middle half of all runs. With unequal numbers of seeds each run weighs the same."""
    runs = np.sort(np.concatenate(tasks, axis=-1), axis=-1)  # NaN is last
    cut = runs.shape[-1] // 4
    return np.where(np.isnan(runs[..., -1]), np.nan, runs[..., cut : runs.shape[-1] - cut].mean(-1))


def optimality_gap(tasks: Tasks, goal: float = 1.0) -> Array:
    """Return by how much runs fall short of the goal; what exceeds it does not make up for it."""
    return goal - mean([np.minimum(task, goal) for task in tasks])


def improvement_probability(first: Tasks, second: Tasks) -> Array:
    """Return how likely a run of `first` beats one of `second` on a random task (Mann-Whitney U; ties: 1/2)."""
    wins = [np.sign(one[..., :, None] - other[..., None, :]) for one, other in zip(first, second, strict=True)]
    return np.mean([(1 + won.mean((-2, -1))) / 2 for won in wins], axis=0)


def performance_profile(tasks: Tasks, thresholds: Array) -> Array:
    """Return the share of runs above each threshold, tasks weighing the same: [thresholds]."""
    return np.mean([_above(task, thresholds).mean(0) for task in tasks], axis=0)


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


def difference_interval(
    statistic: Callable[[Tasks], Array], first: Tasks, second: Tasks, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the difference of a statistic with its bootstrap interval; both sides are resampled."""
    generator = _generator(seed, [*first, *second])
    samples = [statistic(resampled(tasks, resamples, generator)) for tasks in (first, second)]
    low, high = _percentiles(samples[0] - samples[1])
    return Interval(float(statistic(first)) - float(statistic(second)), float(low), float(high))


def profile_interval(
    tasks: Tasks, thresholds: Array, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Array, Array, Array]:
    """Return the performance profile and its pointwise bounds, each [thresholds]."""
    generator, replicates = _generator(seed, tasks), np.zeros((resamples, len(thresholds)))
    for task in tasks:
        # A resample is how often each seed was drawn, so that all thresholds are one matrix product.
        drawn = generator.multinomial(len(task), np.full(len(task), 1 / len(task)), size=resamples)
        replicates += drawn.astype(np.float64) @ _above(task, thresholds) / (len(task) * len(tasks))
    low, high = _percentiles(replicates)
    return performance_profile(tasks, thresholds), low, high


def difference(first: Sequence[Sample], second: Sequence[Sample]) -> Interval:
    """Return the mean over tasks of the difference of means, with Welch's t interval over all tasks together."""
    pairs = list(zip(first, second, strict=True))
    point = sum(one.mean - other.mean for one, other in pairs) / len(pairs)
    parts = [(side.std**2 / side.seeds / len(pairs) ** 2, side.seeds - 1) for pair in pairs for side in pair]
    variance = sum(part for part, _ in parts)
    if math.isnan(variance):  # a single run somewhere
        return Interval(point, math.nan, math.nan)
    if variance == 0:
        return Interval(point, point, point)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)  # Welch and Satterthwaite
    reach = t_quantile((1 + CONFIDENCE) / 2, freedom) * math.sqrt(variance)
    return Interval(point, point - reach, point + reach)


def t_quantile(level: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution for a level above one half.

    With x = sqrt(freedom) tan(angle) the density becomes cos(angle)**(freedom - 1), a smooth function on a bounded
    range, whose sum by the trapezoidal rule is read backwards.
    """
    angles = np.linspace(0, math.pi / 2, 20_001)
    density = np.exp((freedom - 1) * np.log(np.cos(angles)))
    share = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = np.interp(2 * level - 1, share / share[-1], angles)
    return float(math.sqrt(freedom) * math.tan(angle))


def _above(task: Array, thresholds: Array) -> Array:
    """Return whether each run is above each threshold, NaN where its score is: [seeds, thresholds]."""
    above = (task[:, None] > thresholds).astype(np.float64)
    return np.where(np.isnan(task)[:, None], np.nan, above)


def _percentiles(replicates: Array) -> tuple[Array, Array]:
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(replicates, (tail, 100 - tail), axis=0)
    return low, high


def _generator(seed: int, tasks: Tasks) -> np.random.Generator:
    """Return a random stream seeded by the scores: the same scores have the same interval in every report."""
    content = b"".join(np.ascontiguousarray(task).tobytes() for task in tasks)
    return np.random.default_rng([seed, zlib.crc32(content)])
