"""Measure the processor time of all aggregate statistics for 5 algorithms x 5 tasks x 5 seeds."""

import time
from itertools import combinations

import numpy as np

from pessimism.analysis import statistics
from pessimism.tools.script import Parser, start

MEASURES = (statistics.interquartile_mean, statistics.optimality_gap, statistics.mean, statistics.median)


def seconds(name: str, started: float) -> None:
    """Print the processor time since `started`."""
    print(f"{name}: {time.process_time() - started:.2f} s")


def main() -> None:
    """Time measures, profiles and improvements."""
    Parser(__doc__).parse_args()
    draw = np.random.default_rng(0)
    algorithms = [[draw.uniform(size=5) for _ in range(5)] for _ in range(5)]
    started = time.process_time()
    for measure in MEASURES:
        for tasks in algorithms:
            statistics.interval(measure, tasks)
    seconds(f"4 measures, {statistics.RESAMPLES:,} resamples", started)

    started = time.process_time()
    for tasks in algorithms:
        statistics.profile_interval(tasks, np.linspace(0, 1.2, 49))
    seconds(f"performance profiles, {statistics.RESAMPLES:,} resamples", started)

    started = time.process_time()
    for first, second in combinations(algorithms, 2):
        statistics.improvement_interval(first, second)
    seconds(f"probability of improvement, all 10 pairs, {statistics.RESAMPLES_OF_PAIRS:,} resamples", started)


if __name__ == "__main__":
    start(main)
