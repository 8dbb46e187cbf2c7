"""Measures of runs that a claim can be checked on."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from pessimism.analysis import statistics
from pessimism.analysis.report.runs import Run
from pessimism.analysis.report.scales import normaliser, scale_of
from pessimism.analysis.report.series import cell, score
from pessimism.analysis.report.study import Study
from pessimism.analysis.statistics import Array, Tasks


class Measure(NamedTuple):
    """A number of a run."""

    unit: str
    of: Callable[[Run, int, int], float | None]  # run, milestone, window
    scaled: bool = False  # divided by the task's scale


def measured(study: Study, label: str, task: str, measure: str, milestone: int) -> Array:
    """Return the measure of each run of a series on a task: [seeds]."""
    kind = MEASURES[measure]
    found = [kind.of(run, milestone, study.window(milestone)) for run in study.of(label, task)]
    values = np.array([value for value in found if value is not None and math.isfinite(value)])
    return values / scale_of(study, task, milestone) if kind.scaled else values


def scores_of(study: Study, label: str, milestone: int) -> dict[str, Array]:
    """Return the normalised scores of a series at a milestone, by task: {task: [seeds]}."""
    found = {task: cell(study, label, task, milestone).scores for task in study.tasks}
    return {task: own / scale for task, own in found.items() if len(own) and (scale := normaliser(task))}


def _bias(run: Run, summary: Callable[[Array], float]) -> float | None:
    steps, values = run.series.get("bias/normalized_mean", ([], []))
    learned = [
        value
        for step, value in zip(steps, values, strict=True)
        if step > run.setting("random_steps", 0) and math.isfinite(value)
    ]
    return summary(np.array(learned)) if len(learned) > 1 else None


def _change(values: Array) -> float:
    third = max(1, len(values) // 3)
    return float(values[-third:].mean() - values[:third].mean())


def _area(run: Run, milestone: int, window: int) -> float | None:
    means = [
        float(np.mean(returns))
        for step, returns in zip(run.evaluations.steps, run.evaluations.returns, strict=True)
        if step <= milestone
    ]
    return float(np.mean(means)) if means else None


def _last_beta(run: Run, milestone: int, window: int) -> float | None:
    steps, values = run.series.get("train/beta", ([], []))
    late = [value for step, value in zip(steps, values, strict=True) if milestone - window < step <= milestone]
    return float(np.mean(late)) if late else None


MEASURES: Mapping[str, Measure] = {
    "return": Measure("normalised return", lambda run, milestone, window: score(run, milestone, window)[0], True),
    "area": Measure("mean of the normalised curve", _area, True),
    "absolute bias": Measure(
        "absolute mean of the bias", lambda run, *_: _bias(run, lambda b: abs(float(b.mean())))
    ),
    "bias spread": Measure("spread of the bias", lambda run, *_: _bias(run, lambda b: float(b.std()))),
    "bias": Measure("mean of the bias", lambda run, *_: _bias(run, lambda b: float(b.mean()))),
    "bias change": Measure("bias of the last third minus that of the first", lambda run, *_: _bias(run, _change)),
    "beta": Measure("beta at the milestone", _last_beta),
}
AGGREGATES: Mapping[str, Callable[[Tasks], Array]] = {
    "interquartile mean": statistics.interquartile_mean,
    "optimality gap": statistics.optimality_gap,
}
