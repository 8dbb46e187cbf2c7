"""Seeds together: curves with their spread, and scores at milestones."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pessimism.analysis.report.runs import Run
from pessimism.analysis.report.study import Study

MOST_POINTS = 240  # more than a figure can show


class Curve(NamedTuple):
    """A metric over steps: mean and population standard deviation over seeds, and each seed by itself."""

    steps: list[int]
    mean: list[float]
    std: list[float]
    seeds: list[int]  # how many stand behind each point
    single: Mapping[str, tuple[list[int], list[float]]]  # by name of the run


class Cell(NamedTuple):
    """Scores of a series on a task at a milestone."""

    scores: NDArray[np.float64]  # one for each run that has one
    failed: int  # runs without: broken, missing, stopped before, or not a number
    episodes: int  # evaluation episodes behind each score, at most

    @property
    def seeds(self) -> int:
        """All runs that there should be."""
        return len(self.scores) + self.failed


def curve(runs: Sequence[Run], metric: str) -> Curve | None:
    """Return a metric of several seeds; a step counts if all seeds that reached it have a value there."""
    single = {run.name: _finite(*_metric(run, metric)) for run in runs}
    single = {name: points for name, points in single.items() if points[0]}
    if not single:
        return None
    values = {name: dict(zip(*points, strict=True)) for name, points in single.items()}
    last = {name: points[0][-1] for name, points in single.items()}
    steps = [
        step
        for step in sorted({step for points in single.values() for step in points[0]})
        if all(step in values[name] for name in single if last[name] >= step)
    ]
    steps = thinned(steps)
    columns = [[values[name][step] for name in single if last[name] >= step] for step in steps]
    return Curve(
        steps,
        [float(np.mean(column)) for column in columns],
        [float(np.std(column)) for column in columns],
        [len(column) for column in columns],
        {name: _thin_points(points) for name, points in single.items()},
    )


def cell(study: Study, label: str, task: str, milestone: int) -> Cell:
    """Return the scores of a series on a task at a milestone."""
    runs, window = study.of(label, task), study.window(milestone)
    found = [score(run, milestone, window) for run in runs]
    scores = [value for value, _ in found if value is not None]
    episodes = max((count for _, count in found), default=0)
    return Cell(np.array(scores), len(found) - len(scores) + study.lost(label, task), episodes)


def score(run: Run, milestone: int, window: int) -> tuple[float | None, int]:
    """Return the mean of the evaluation episodes in the window before a milestone, and how many they are.

    There is none for a run without the last evaluation due by the milestone, or with one that is not a number.
    """
    every = max(run.setting("evaluation.every", 1), 1)
    due = milestone // every * every
    pairs = zip(run.evaluations.steps, run.evaluations.returns, strict=True)
    episodes = [returns for step, returns in pairs if min(milestone - window, due - 1) < step <= milestone]
    if due not in run.evaluations.steps or not episodes:
        return None, 0
    together = np.concatenate([np.atleast_1d(returns) for returns in episodes])
    return (float(together.mean()), len(together)) if np.isfinite(together).all() else (None, 0)


def seconds_per_thousand(run: Run) -> tuple[float, float] | None:
    """Return a run's hours, and seconds per 1000 steps of learning.

    The clock starts again when a run is resumed: the spans between restarts are added up.
    """
    steps, elapsed = run.timing.get("time/elapsed", ([], []))
    total, seconds, learned = 0.0, 0.0, 0
    random_steps = run.setting("random_steps", 0)
    for index, (step, now) in enumerate(zip(steps, elapsed, strict=True)):
        going_on = index > 0 and now >= elapsed[index - 1]
        before = elapsed[index - 1] if going_on else 0.0
        total += now - before
        if going_on and steps[index - 1] >= random_steps:
            seconds, learned = seconds + now - before, learned + step - steps[index - 1]
    return (total / 3600, 1000 * seconds / learned) if learned else None


def elapsed_seconds(run: Run) -> tuple[list[int], list[float]]:
    """Return steps and the seconds of training by then."""
    steps, elapsed = run.timing.get("time/elapsed", ([], []))
    return list(steps), added_up(elapsed)


def added_up(clock: Sequence[float]) -> list[float]:
    """Return the readings of a clock that starts again whenever a run is resumed, added up over the restarts."""
    total, sums = 0.0, []
    for index, now in enumerate(clock):
        resumed = index > 0 and now < clock[index - 1]
        total += now if index == 0 or resumed else now - clock[index - 1]
        sums.append(total)
    return sums


def thinned(items: list[int], most: int = MOST_POINTS) -> list[int]:
    """Return evenly chosen items, the first and the last among them, if there are too many to draw."""
    if len(items) <= most:
        return items
    return [items[index] for index in np.linspace(0, len(items) - 1, most).astype(int)]


def _thin_points(points: tuple[list[int], list[float]]) -> tuple[list[int], list[float]]:
    kept = set(thinned(points[0]))
    pairs = [(step, value) for step, value in zip(*points, strict=True) if step in kept]
    return [step for step, _ in pairs], [value for _, value in pairs]


def _metric(run: Run, metric: str) -> tuple[Sequence[int], Sequence[float]]:
    if metric == "eval/mean_reward":
        return run.evaluations.steps, [float(np.mean(returns)) for returns in run.evaluations.returns]
    return run.series.get(metric, ([], []))


def _finite(steps: Sequence[int], values: Sequence[float]) -> tuple[list[int], list[float]]:
    pairs = [(step, value) for step, value in zip(steps, values, strict=True) if np.isfinite(value)]
    return [step for step, _ in pairs], [value for _, value in pairs]
