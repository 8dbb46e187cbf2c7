"""How many steps and minutes a return takes."""

from collections.abc import Iterator, Sequence

import numpy as np

from pessimism.analysis.reference import PublishedCurve, curves_of
from pessimism.analysis.report.charts import Line, LineChart, number
from pessimism.analysis.report.document import Block, Figure, Gallery, Table
from pessimism.analysis.report.runs import Run
from pessimism.analysis.report.scales import scale_of
from pessimism.analysis.report.series import curve, elapsed_seconds
from pessimism.analysis.report.study import Study
from pessimism.analysis.report.wording import DASH

SHARES = (0.25, 0.5, 0.75, 5 / 6)  # of the task's scale; the last is the paper's "score of 5000" on Humanoid
YARDSTICK = "SAC"  # whose published curve steps are compared with


def steps_to(steps: Sequence[int], means: Sequence[float], threshold: float) -> int | None:
    """Return the first step at which a curve reaches a threshold."""
    return next((step for step, mean in zip(steps, means, strict=True) if mean >= threshold), None)


def steps_to_thresholds(study: Study) -> Iterator[Block]:
    """Yield a table of the steps that each series takes to shares of a task's scale, beside published SAC."""
    rows: list[tuple[str, ...]] = []
    for task in study.tasks:
        scale = scale_of(study, task, study.milestones[-1]) if study.milestones else 1.0
        sac = next(iter(curves_of(task, YARDSTICK)), None)
        for share in SHARES:
            rows += _reached(study, task, share * scale, sac)
    if rows:
        yield Table(
            "Steps to a return",
            ("task", "algorithm", "return", "steps", "runs that reach it", "published SAC", "times fewer"),
            rows,
            "The first evaluation whose mean reaches the return: median over the runs that do. Returns are shares "
            "of the task's scale. Published SAC: one update per step, the first point of its mean curve; times "
            "fewer: its steps divided by ours.",
            words=2,
        )


def _reached(study: Study, task: str, threshold: float, sac: PublishedCurve | None) -> Iterator[tuple[str, ...]]:
    for label in study.labels:
        runs = [run for run in study.of(label, task) if run.evaluations.steps]
        found = [steps_to(run.evaluations.steps, _means(run), threshold) for run in runs]
        reached = [steps for steps in found if steps is not None]
        if not reached:
            continue
        here = float(np.median(reached))
        theirs = steps_to(sac.steps, sac.means, threshold) if sac else None
        yield (
            task,
            label,
            number(threshold),
            f"{here:,.0f}",
            f"{len(reached)} of {len(runs)}",
            f"{theirs:,}" if theirs else DASH,
            f"{theirs / here:.1f}" if theirs else DASH,
        )


def over_minutes(study: Study) -> Iterator[Block]:
    """Yield one figure per task: return over the minutes that the runs took."""
    figures = []
    for task in study.tasks:
        lines = [line for index, label in enumerate(study.labels) if (line := _timed(study, label, task, index))]
        if lines:
            chart = LineChart(f"Return over time on {task}", "minutes of training", "return", lines)
            name = "".join(letter if letter.isalnum() else "-" for letter in task.lower())
            caption = (
                "Mean over seeds, at the mean of their minutes, evaluation included. Compare on one machine only."
            )
            figures.append(Figure(f"minutes-{name}", caption, chart))
    if figures:
        yield Gallery(figures)


def _timed(study: Study, label: str, task: str, index: int) -> Line | None:
    runs = [run for run in study.of(label, task) if run.timing.get("time/elapsed")]
    found = curve(runs, "eval/mean_reward")
    if found is None or len(found.steps) < 2:
        return None
    minutes = np.mean([_minutes(run, found.steps) for run in runs], axis=0)
    pairs = list(zip(found.mean, found.std, strict=True))
    several = len(found.single) > 1
    return Line(
        label,
        index,
        minutes.tolist(),
        found.mean,
        [mean - std for mean, std in pairs] if several else (),
        [mean + std for mean, std in pairs] if several else (),
        found.seeds,
    )


def _minutes(run: Run, steps: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    known, seconds = elapsed_seconds(run)
    return np.interp(steps, known, seconds) / 60


def _means(run: Run) -> list[float]:
    return [float(np.mean(returns)) for returns in run.evaluations.returns]
