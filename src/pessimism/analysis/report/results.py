"""Returns at milestones beside the paper's, and aggregate statistics over tasks."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from pessimism.analysis import statistics
from pessimism.analysis.report.charts import IntervalChart, Line, LineChart
from pessimism.analysis.report.document import Block, Bullets, Figure, Gallery, Table, Text, counted
from pessimism.analysis.report.runs import changes, learns_otherwise
from pessimism.analysis.report.series import Cell, cell
from pessimism.analysis.report.study import Study
from pessimism.analysis.statistics import Interval, Tasks
from pessimism.reference import paper_score, paper_scores, task_key
from pessimism.tasks import task_name

THRESHOLDS = np.linspace(0, 1.2, 49)
FEW = 4  # algorithms of which all pairs are compared; of more, the first with each other
MEASURES = {
    "interquartile mean": statistics.interquartile_mean,
    "optimality gap": statistics.optimality_gap,
    "mean": statistics.mean,
    "median": statistics.median,
}


def returns(study: Study) -> Iterator[Block]:
    """Yield a table per milestone: mean and standard deviation over seeds, beside the paper's."""
    for milestone in study.milestones:
        rows, episodes, changed = [], 0, False
        for task in study.tasks:
            for label in study.labels:
                found = cell(study, label, task, milestone)
                if found.seeds:
                    own, note = _row(study, label, task, milestone, found)
                    rows.append(own)
                    changed |= note
                    episodes = max(episodes, found.episodes)
        if rows:
            yield Table(
                f"Return at {milestone:,} steps",
                ("task", "algorithm", "here", "seeds", "failed", "paper", "paper's task"),
                rows,
                _protocol(study, milestone, episodes, changed),
                words=2,
            )


def _row(study: Study, label: str, task: str, milestone: int, found: Cell) -> tuple[tuple[str, ...], bool]:
    """Return the line of a series on a task, and whether its settings are not those of the preset."""
    runs = study.of(label, task)
    frames = runs[0].setting("action_repeat", 1) if runs else 1
    paper = paper_score(task, label, milestone * frames)
    changed = bool(paper) and any(learns_otherwise(name) for run in runs for name in changes(run.settings))
    row = (
        task,
        label + (" \u2020" if changed else ""),
        mean_and_std(found.scores),
        str(len(found.scores)),
        str(found.failed or "\u2013"),
        f"{paper.mean:.0f} \u00b1 {paper.std:.0f}" if paper else "\u2013",
        paper.task if paper else "\u2013",
    )
    return row, changed


def _protocol(study: Study, milestone: int, episodes: int, changed: bool) -> str:
    text = (
        f"Mean and population standard deviation over seeds; each run is the mean of its evaluation episodes "
        f"in the {study.window(milestone):,} steps before (up to {episodes}). Failed: runs that are broken, "
        "missing, not that far, or not a number there; they are in no mean. The paper's numbers are of 5 seeds, on "
        "the version of the task in the last column."
    )
    return text + (" \u2020 Settings differ from the preset: see Deviations." if changed else "")


def mean_and_std(values: Sequence[float] | np.ndarray[Any, np.dtype[np.float64]], form: str = ".0f") -> str:
    """Return a mean and, from two values on, their population standard deviation."""
    if len(values) == 0:
        return "\u2013"
    mean, std = float(np.mean(values)), float(np.std(values))
    if form == ".0f" and abs(mean) < 100:
        form = ".3g" if abs(mean) < 1 else ".1f"
    return f"{mean:{form}} \u00b1 {std:{form}}" if len(values) > 1 else f"{mean:{form}}"


def normaliser(task: str) -> float | None:
    """Return what the paper divides a task's return by."""
    env = task.partition(" (")[0]
    if task_name(env) in statistics.SAC_AT_3M:
        return statistics.SAC_AT_3M[task_name(env)]
    suite = {task_key(score.task) for score in paper_scores() if score.table != "gym_100k"}
    return statistics.CONTROL_SUITE if task_key(env) in suite else None


def aggregates(study: Study) -> Iterator[Block]:
    """Yield interquartile mean, optimality gap, mean, median, profiles and probability of improvement."""
    for milestone in study.milestones:
        cells = {
            label: {task: cell(study, label, task, milestone).scores for task in study.tasks}
            for label in study.labels
        }
        cells = {label: tasks for label, tasks in cells.items() if any(map(len, tasks.values()))}
        if sum(len(scores) for tasks in cells.values() for scores in tasks.values()) > 1:
            yield from _aggregates(study, milestone, cells)


def _aggregates(
    study: Study, milestone: int, cells: Mapping[str, Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]]
) -> Iterator[Block]:
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
    thin = [label for label in cells if common and max(len(cells[label][task]) for task in common) < 2]
    if thin:
        notes.append(f"one seed per task, hence no interval: {', '.join(thin)}")
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


def _measures(study: Study, tasks: Mapping[str, Tasks], where: str, milestone: int) -> tuple[Table, list[Figure]]:
    found = {
        label: {name: statistics.interval(measure, own) for name, measure in MEASURES.items()}
        for label, own in tasks.items()
    }
    rows = [(label, *(_interval(value) for value in values.values())) for label, values in found.items()]
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
        lines.append(Line(label, study.labels.index(label), THRESHOLDS.tolist(), shares, low, high))
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
    texts = "; ".join(f"{name}: {_interval(value)}" for name, _, value in rows)
    caption = (
        "How likely a run of the first beats one of the second on a random task; "
        f"{statistics.RESAMPLES_OF_PAIRS:,} resamples. {texts}."
    )
    return Figure(f"improvement-{milestone}", caption, chart)


def _interval(value: Interval) -> str:
    if value.low == value.high:
        return f"{value.point:.3f}"
    return f"{value.point:.3f} [{value.low:.3f}, {value.high:.3f}]"


def bench_table(bench: Mapping[str, Any]) -> Table:
    """Return the table of `pessimism bench --paper --json FILE`."""
    rows = [
        (
            str(row.get("name")),
            _number(row.get("seconds_per_1000_steps"), ".1f") if not row.get("missing") else str(row["missing"]),
            _number(row.get("ratio"), ".2f"),
            _number(row.get("paper_ratio"), ".2f"),
            _number(row.get("paper_seconds_per_1000_steps"), ".1f"),
        )
        for row in bench.get("rows") or ()
    ]
    setting = ", ".join(f"{name} {value}" for name, value in (bench.get("setting") or {}).items())
    return Table(
        "The paper's table of training times",
        ("algorithm", "seconds per 1000 steps", "ratio to GPL-SAC", "paper's ratio", "paper's seconds"),
        rows,
        f"Here: sampling and updates alone ({setting}). The paper's: whole runs on one RTX 3090.",
    )


def _number(value: object, form: str) -> str:
    return f"{value:{form}}" if isinstance(value, int | float) else "\u2013"


def method(study: Study) -> Iterator[Block]:
    """Yield the protocol and the sources."""
    yield Text(
        "Statistics follow Agarwal et al., 2021 (Rliable): interquartile mean, optimality gap, performance "
        "profiles and probability of improvement, with stratified percentile bootstrap intervals of 95 %. The "
        "random stream of an interval is decided by the scores, so that the same runs always give the same page."
    )
    yield Text(
        "Gym returns are divided by SAC's after 3M steps (Hopper 3300, HalfCheetah 15000, Walker2d 5600, Ant 5800, "
        "Humanoid 6000), Control Suite returns by 1000. The paper does not print the former; these values "
        "reproduce its normalised averages. They were of -v2 tasks."
    )
    yield Text(
        "The paper: Cetin and Celiktutan, Learning Pessimism for Reinforcement Learning, AAAI 2023. Its numbers "
        "are of Gym -v2 tasks and of Control Suite tasks from pixels."
    )
