"""`pessimism compare RUN RUN`: curves as sparklines and a table, in a terminal."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pessimism.analysis.report.measures import MEASURES
from pessimism.analysis.report.runs import Run, checked, read_run, run_directories
from pessimism.analysis.report.series import elapsed_seconds
from pessimism.analysis.report.wording import duration
from pessimism.errors import UserError
from pessimism.terminal import new_table

BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
WIDTH = 40  # columns of a sparkline
CURVES = {
    "return": "eval/mean_reward",
    "normalised bias": "bias/normalized_mean",
    "beta": "train/beta",
}
ABSENT = "\u2013"


def compare(paths: Sequence[Path]) -> Group:
    """Return what a terminal shows of several runs."""
    runs = list(_runs(paths))
    parts: list[Text | Table] = []
    for title, metric in CURVES.items():
        parts += _curves(runs, title, metric)
    parts.append(_table(runs))
    if apart := _settings(runs):
        parts.append(apart)
    return Group(*parts)


def _runs(paths: Sequence[Path]) -> Iterator[Run]:
    for place in checked(paths):
        found = list(run_directories(place))
        if not found:
            raise UserError(f"{place} holds no run: give the directory of a run or of several")
        for path in found:
            run = read_run(path, str(path))
            if not run.readable:
                raise UserError(f"{path} cannot be compared: {run.problems[0]}")
            yield run


def sparkline(steps: Sequence[float], values: Sequence[float], end: float, low: float, high: float) -> str:
    """Return a curve as blocks: each column is the mean of the values whose steps fall into it."""
    columns: list[list[float]] = [[] for _ in range(WIDTH)]
    for step, value in zip(steps, values, strict=True):
        if math.isfinite(value):
            columns[min(int(step / end * WIDTH), WIDTH - 1)].append(value)
    filled = [index for index, column in enumerate(columns) if column]
    if not filled:
        return ""
    known = [float(np.mean(columns[index])) for index in filled]
    line = np.interp(range(filled[0], filled[-1] + 1), filled, known)  # gaps between two values are bridged
    span = (high - low) or 1.0
    blocks = [BLOCKS[min(int((value - low) / span * len(BLOCKS)), len(BLOCKS) - 1)] for value in line]
    return " " * filled[0] + "".join(blocks)


def _curves(runs: Sequence[Run], title: str, metric: str) -> Iterator[Text]:
    """Yield a metric's curve of every run, on the same axes."""
    found = {run.name: _series(run, metric) for run in runs}
    every = [value for _, values in found.values() for value in values if math.isfinite(value)]
    if not every:
        return
    low, high = min(every), max(every)
    end = max(steps[-1] for steps, _ in found.values() if steps)
    yield Text(f"{title}, from {low:.4g} to {high:.4g}, over {end:,} steps", style="bold")
    names = [f"{number} {name}" for number, name in zip(_numbers(runs), _short_names(runs), strict=True)]
    width = max(map(len, names))
    for run, name in zip(runs, names, strict=True):
        steps, values = found[run.name]
        line = sparkline(steps, values, end, low, high)
        finite = [value for value in values if math.isfinite(value)]
        last = f"{finite[-1]:.4g}" if finite else "none"
        yield Text(f"  {name:{width}}  {line:{WIDTH}}  {last}", no_wrap=True)
    yield Text("")


def _table(runs: Sequence[Run]) -> Table:
    """Return the numbers of the runs: a column for each, by its number in the lists of curves."""
    table = new_table("", ("",), _numbers(runs))
    table.caption = "bias: normalised, over all measurements after the random steps"
    for name, of in ROWS.items():
        table.add_row(name, *(of(run) for run in runs))
    return table


def _number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4g}"


def _returns(run: Run, summary: Callable[[list[float]], float]) -> str:
    finite = [value for value in _series(run, "eval/mean_reward")[1] if math.isfinite(value)]
    return _number(summary(finite) if finite else None)


def _time(run: Run) -> str:
    _, seconds = elapsed_seconds(run)
    return duration(seconds[-1]) if seconds else ABSENT


ROWS: dict[str, Callable[[Run], str]] = {
    "algorithm": lambda run: run.label,
    "task": lambda run: run.task,
    "seed": lambda run: str(run.seed),
    "state": lambda run: run.state,
    "steps": lambda run: f"{run.reached:,}",
    "last return": lambda run: _returns(run, lambda values: values[-1]),
    "best return": lambda run: _returns(run, max),
    "mean of all evaluations": lambda run: _returns(run, lambda values: float(np.mean(values))),
    "absolute mean of the bias": lambda run: _number(MEASURES["absolute bias"].of(run, 0, 0)),
    "spread of the bias": lambda run: _number(MEASURES["bias spread"].of(run, 0, 0)),
    "time": _time,
}


def _settings(runs: Sequence[Run]) -> Table | None:
    """Return the settings in which the runs differ."""
    names = dict.fromkeys(name for run in runs for name in run.settings if name not in ("seed", "algorithm", "env"))
    rows = [(name, *(str(run.settings.get(name, ABSENT)) for run in runs)) for name in names]
    apart = [row for row in rows if len(set(row[1:])) > 1]
    if not apart:
        return None
    table = new_table("Settings that differ", ("",), _numbers(runs))
    for row in apart:
        table.add_row(*row)
    return table


def _numbers(runs: Sequence[Run]) -> list[str]:
    return [str(index + 1) for index in range(len(runs))]


def _series(run: Run, metric: str) -> tuple[Sequence[int], Sequence[float]]:
    if metric == "eval/mean_reward":
        return run.evaluations.steps, [float(np.mean(returns)) for returns in run.evaluations.returns]
    return run.series.get(metric, ([], []))


def _short_names(runs: Sequence[Run]) -> list[str]:
    """Return the parts of the paths in which the runs differ."""
    parts = [Path(run.name).parts for run in runs]
    if len(runs) == 1:
        return ["/".join(parts[0][-3:])]
    shared = 0
    while all(len(own) > shared + 1 for own in parts) and len({own[shared] for own in parts}) == 1:
        shared += 1
    return ["/".join(own[shared:]) for own in parts]
