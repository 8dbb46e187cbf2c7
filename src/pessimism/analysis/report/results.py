"""Returns at milestones beside the paper's."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from pessimism.analysis import statistics
from pessimism.analysis.reference import (
    PAPER_SEEDS,
    PaperScore,
    paper_average,
    paper_score,
    paper_scores,
    paper_top_scores,
    task_key,
)
from pessimism.analysis.report.document import Block, Table
from pessimism.analysis.report.runs import changes, learns_otherwise
from pessimism.analysis.report.scales import normaliser
from pessimism.analysis.report.series import Cell, cell
from pessimism.analysis.report.study import Study
from pessimism.analysis.report.wording import DASH, PLUS_MINUS, difference_text, mean_and_std, or_dash
from pessimism.analysis.statistics import Array, Sample


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
                ("task", "algorithm", "here", "seeds", "failed", "paper", "here \u2212 paper", "paper's task"),
                rows,
                _protocol(study, milestone, episodes, changed),
                words=2,
            )
            yield from _averages(study, milestone)


def published(study: Study, label: str, task: str, milestone: int) -> PaperScore | None:
    """Return the paper's number beside a series at a milestone, which the paper may count in frames."""
    runs = study.of(label, task)
    frames = runs[0].setting("action_repeat", 1) if runs else 1
    return paper_score(task, label, milestone * frames, study.table)


def _row(study: Study, label: str, task: str, milestone: int, found: Cell) -> tuple[tuple[str, ...], bool]:
    """Return the line of a series on a task, and whether its settings are not those of the preset."""
    paper = published(study, label, task, milestone)
    runs = study.of(label, task)
    changed = bool(paper) and any(learns_otherwise(name) for run in runs for name in changes(run.settings))
    row = (
        task,
        label + (" \u2020" if changed else ""),
        mean_and_std(found.scores),
        str(len(found.scores)),
        str(found.failed or DASH),
        f"{paper.mean:.0f} {PLUS_MINUS} {paper.std:.0f}" if paper else DASH,
        _against(found.scores, paper),
        paper.task if paper else DASH,
    )
    return row, changed


def _against(scores: Array, paper: PaperScore | None) -> str:
    if paper is None or not len(scores):
        return DASH
    theirs = Sample(paper.mean, paper.std, PAPER_SEEDS)
    return difference_text(statistics.difference([Sample.of(scores)], [theirs]), ".0f")


def _protocol(study: Study, milestone: int, episodes: int, changed: bool) -> str:
    text = (
        f"Mean and population standard deviation over seeds; each run is the mean of its evaluation episodes "
        f"in the {study.window(milestone):,} steps before (up to {episodes}). Failed: runs that are broken, "
        "missing, not that far, or not a number there; they are in no mean. The paper's numbers are of 5 seeds, on "
        "the version of the task in the last column. Here minus paper: with a 95 % interval (Welch's t) from two "
        "seeds on."
    )
    return text + (" \u2020 Settings differ from the preset: see Deviations." if changed else "")


class _Average(NamedTuple):
    """A series over tasks."""

    label: str
    here: float
    tops: int  # tasks on which it has a top score


def _averages(study: Study, milestone: int) -> Iterator[Table]:
    """Yield averages over tasks and top-score counts, with the paper's beside them."""
    scores = {
        label: {task: cell(study, label, task, milestone).scores for task in study.tasks} for label in study.labels
    }
    labels = [label for label, own in scores.items() if any(map(len, own.values()))]
    common = [task for task in study.tasks if all(len(scores[label][task]) for label in labels)]
    scaled = {task: scale for task in common if (scale := normaliser(task))}
    if len(scaled) < 2 or not labels:
        return
    frames = max(run.setting("action_repeat", 1) for run in study.readable)
    tops = top_scores({label: {task: scores[label][task] for task in scaled} for label in labels})
    rows = []
    for label in labels:
        here = float(np.mean([scores[label][task].mean() / scale for task, scale in scaled.items()]))
        table = study.table or _table_of(next(iter(scaled)), label, milestone * frames)
        paper = paper_average(table, label, milestone * frames) if table else None
        theirs = paper_top_scores(label, milestone * frames) if table == "dmc_pixels" else None
        size = statistics.CONTROL_SUITE if table.startswith("dmc") else 1.0
        printed = DASH if paper is None else f"{paper[0] / size:.2f}"
        rows.append((label, f"{here:.2f}", printed, f"{tops[label]}/{len(scaled)}", _of_twelve(theirs)))
    head = ("algorithm", "average here", "average in the paper", "top scores here", "top scores in the paper")
    yield Table(
        f"Over {len(scaled)} tasks at {milestone:,} steps",
        head,
        rows,
        "Averages of normalised returns over the tasks that all series have; the paper's are over all its tasks. "
        "A top score is within half a standard deviation, that of the best, of the highest mean (paper, Table 1).",
    )


def _of_twelve(count: int | None) -> str:
    return or_dash(None if count is None else f"{count}/12")


def _table_of(task: str, label: str, milestone: int) -> str:
    score = paper_score(task, label, milestone)
    if score is not None:
        return score.table
    return next((one.table for one in paper_scores() if task_key(one.task) == task_key(task)), "")


def top_scores(scores: Mapping[str, Mapping[str, Array]]) -> dict[str, int]:
    """Count the tasks on which each series is within half the best one's standard deviation of the best mean."""
    counts = dict.fromkeys(scores, 0)
    for task in next(iter(scores.values())):
        means = {label: float(own[task].mean()) for label, own in scores.items()}
        best = max(means, key=lambda label: means[label])
        bound = means[best] - float(scores[best][task].std()) / 2
        for label, mean in means.items():
            counts[label] += mean >= bound
    return counts
