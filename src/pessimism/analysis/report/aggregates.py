"""Statistics over tasks by Rliable's protocol: at milestones, and over the steps of training."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from pessimism.analysis import statistics
from pessimism.analysis.report.charts import IntervalChart, Line, LineChart
from pessimism.analysis.report.document import Block, Bullets, Figure, Gallery, Table, Text
from pessimism.analysis.report.scales import normaliser
from pessimism.analysis.report.series import cell, thinned
from pessimism.analysis.report.study import Study
from pessimism.analysis.report.wording import counted, interval_text
from pessimism.analysis.statistics import Array, Tasks

THRESHOLDS = np.linspace(0, 1.2, 49)
FEW = 4  # algorithms of which all pairs are compared; of more, the first with each other
ENOUGH_SEEDS = 5
RESAMPLES_OF_CURVES = 2_000  # at each of its points
MOST_POINTS = 60
MEASURES = {
    "interquartile mean": statistics.interquartile_mean,
    "optimality gap": statistics.optimality_gap,
    "mean": statistics.mean,
    "median": statistics.median,
}
Scores = Mapping[str, Mapping[str, Array]]
"""label -> task -> [seeds]"""


def aggregates(study: Study) -> Iterator[Block]:
    """Yield interquartile mean, optimality gap, mean, median, profiles and probability of improvement."""
    yield from _over_steps(study)
    for milestone in study.milestones:
        cells = {
            label: {task: cell(study, label, task, milestone).scores for task in study.tasks}
            for label in study.labels
        }
        cells = {label: tasks for label, tasks in cells.items() if any(map(len, tasks.values()))}
        if sum(len(scores) for tasks in cells.values() for scores in tasks.values()) > 1:
            yield from _at_milestone(study, milestone, cells)


def _at_milestone(study: Study, milestone: int, cells: Scores) -> Iterator[Block]:
    common = [task for task in study.tasks if all(len(tasks[task]) for tasks in cells.values())]
    notes = []
    for task in study.tasks:
        if without := [label for label in cells if not len(cells[label][task])]:
            notes.append(f"{task} at {milestone:,} steps is left out, without a score of {', '.join(without)}")
    scaled = {task: scale for task in common if (scale := normaliser(task))}
    notes += [
        f"{task} has no published scale: only in the probability of improvement"
        for task in common
        if task not in scaled
    ]
    if common:
        yield from _few_seeds(cells, common, milestone)
    where = f"at {milestone:,} steps"
    figures: list[Figure] = []
    if scaled:
        tasks = {label: [cells[label][task] / scale for task, scale in scaled.items()] for label in cells}
        table, charts = _measures(study, tasks, where, milestone)
        yield table
        figures += [*charts, _profiles(study, tasks, where, milestone)]
    if common and len(cells) > 1:
        raw = {label: [cells[label][task] for task in common] for label in cells}
        figures.append(_improvements(study, raw, where, milestone))
    if figures:
        yield Gallery(figures)
    if notes:
        yield Bullets(notes)


def _few_seeds(cells: Scores, tasks: Sequence[str], milestone: int) -> Iterator[Text]:
    """Warn of intervals that few seeds stand behind."""
    seeds = {label: min(len(own[task]) for task in tasks) for label, own in cells.items()}
    few = [f"{label} {counted(number, 'seed')}" for label, number in seeds.items() if number < ENOUGH_SEEDS]
    if few:
        yield Text(
            f"Intervals at {milestone:,} steps rest on fewer than five seeds: {', '.join(few)} per task. They are "
            "too narrow then, and have no width with one seed.",
            "warning",
        )


def _measures(study: Study, tasks: Mapping[str, Tasks], where: str, milestone: int) -> tuple[Table, list[Figure]]:
    found = {
        label: {name: statistics.interval(measure, own) for name, measure in MEASURES.items()}
        for label, own in tasks.items()
    }
    rows = [(label, *(interval_text(value) for value in values.values())) for label, values in found.items()]
    count = counted(len(next(iter(tasks.values()))), "task")
    note = (
        f"Over {count}, returns divided by the paper's normalisers. In "
        f"brackets: 95 % stratified bootstrap intervals, {statistics.RESAMPLES:,} resamples. Less is better for "
        "the optimality gap only."
    )
    table = Table(f"Normalised return {where}", ("algorithm", *MEASURES), rows, note)
    figures = [
        Figure(
            f"{name.replace(' ', '-')}-{milestone}",
            "Less is better." if name == "optimality gap" else "More is better.",
            IntervalChart(
                f"{name.capitalize()} {where}",
                name,
                [(label, study.labels.index(label), values[name]) for label, values in found.items()],
            ),
        )
        for name in ("interquartile mean", "optimality gap")
    ]
    return table, figures


def _profiles(study: Study, tasks: Mapping[str, Tasks], where: str, milestone: int) -> Figure:
    lines = []
    for label, own in tasks.items():
        shares, low, high = (part.tolist() for part in statistics.profile_interval(own, THRESHOLDS))
        line = Line(label, study.labels.index(label), THRESHOLDS.tolist(), shares, low, high, stepped=True)
        lines.append(line)
    chart = LineChart(f"Performance profile {where}", "normalised return", "share of runs above", lines)
    return Figure(f"profile-{milestone}", "Higher is better everywhere.", chart)


def _improvements(study: Study, tasks: Mapping[str, Tasks], where: str, milestone: int) -> Figure:
    labels = list(tasks)
    pairs = list(combinations(labels, 2)) if len(labels) <= FEW else [(labels[0], other) for other in labels[1:]]
    rows = [
        (
            f"{first} > {second}",
            study.labels.index(first),
            statistics.improvement_interval(tasks[first], tasks[second]),
        )
        for first, second in pairs
    ]
    chart = IntervalChart(f"Probability of improvement {where}", "probability", rows, 0.5, (0.0, 1.0))
    texts = "; ".join(f"{name}: {interval_text(value)}" for name, _, value in rows)
    caption = (
        "How likely a run of the first beats one of the second on a random task; "
        f"{statistics.RESAMPLES_OF_PAIRS:,} resamples. {texts}."
    )
    return Figure(f"improvement-{milestone}", caption, chart)


def _over_steps(study: Study) -> Iterator[Block]:
    """Yield the interquartile mean over steps: how much is learned from how many samples."""
    lines = []
    scaled = {task: scale for task in study.tasks if (scale := normaliser(task))}
    labels = [label for label in study.labels if any(study.of(label, task) for task in scaled)]
    tasks = {task: scale for task, scale in scaled.items() if all(study.of(label, task) for label in labels)}
    for label in labels if tasks else ():
        line = _efficiency(study, label, tasks)
        if line is not None:
            lines.append(line)
    if any(len(line.x) > 1 for line in lines):
        several = f"over {counted(len(tasks), 'task')}"
        chart = LineChart("Sample efficiency", "environment steps", "interquartile mean", lines)
        caption = (
            f"Interquartile mean of the normalised return {several}, with pointwise 95 % bootstrap intervals "
            f"({RESAMPLES_OF_CURVES:,} resamples), up to where every run has an evaluation."
        )
        yield Gallery([Figure("sample-efficiency", caption, chart)])


def _efficiency(study: Study, label: str, tasks: Mapping[str, float]) -> Line | None:
    """Return a series' curve over the steps at which all its runs were evaluated."""
    runs = {task: study.of(label, task) for task in tasks}
    curves = {
        task: [
            {
                step: float(np.mean(one))
                for step, one in zip(run.evaluations.steps, run.evaluations.returns, strict=True)
            }
            for run in own
        ]
        for task, own in runs.items()
    }
    steps = set.intersection(*(set(curve) for own in curves.values() for curve in own))
    chosen = thinned(sorted(steps), MOST_POINTS)
    if not chosen:
        return None
    found = [
        statistics.interval(
            statistics.interquartile_mean,
            [np.array([curve[step] for curve in own]) / tasks[task] for task, own in curves.items()],
            resamples=RESAMPLES_OF_CURVES,
        )
        for step in chosen
    ]
    finite = [(step, one) for step, one in zip(chosen, found, strict=True) if np.isfinite(one).all()]
    if not finite:
        return None
    x, values = zip(*finite, strict=True)
    point, low, high = zip(*values, strict=True)
    seeds = min(len(own) for own in runs.values())
    return Line(label, study.labels.index(label), x, point, low, high, [seeds] * len(x))
