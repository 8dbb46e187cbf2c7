"""All that a report is about: runs, what they were planned as, and the protocol by which they are compared."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pessimism import records
from pessimism.analysis.reference import paper_scores, task_key
from pessimism.analysis.report.runs import (
    Run,
    checked,
    labelled,
    last_output,
    one_line,
    read_run,
    run_directories,
    without_repeats,
)

TRAINING_TIME = "training_time.json"
WINDOW_SHARE = 20  # the paper averages the evaluations of the last 5,000 of 100,000 steps


@dataclass(frozen=True)
class Check:
    """Something that a claim says of the data: a measure of one series is more, less, ... than that of others."""

    statement: str
    measure: str  # a name among `verdicts.MEASURES` or `verdicts.AGGREGATES`
    first: str
    second: tuple[str, ...]
    relation: Literal["more", "less", "similar", "different"]
    scope: Literal["average", "every"] = "average"  # over tasks, or on each of them
    tasks: tuple[str, ...] = ()  # all by default
    milestone: int = -1  # its place among the suite's; the last by default


@dataclass(frozen=True)
class Suite:
    """An experiment of the paper as it was planned here."""

    path: Path  # its directory
    name: str = ""
    title: str = ""
    paper: str = ""
    claim: str = ""
    scale: tuple[str, ...] = ()
    milestones: tuple[int, ...] = ()
    window: int | None = None
    planned: Mapping[Path, Mapping[str, Any]] = field(default_factory=dict)  # by directory
    training_time: Mapping[str, Any] | None = None
    checks: tuple[Check, ...] = ()
    unchecked: str = ""  # what the claim says beside its checks
    table: str = ""  # of the paper, where several print the same column
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """What was found below the directories."""

    directories: Sequence[Path]
    runs: Sequence[Run]
    suites: Sequence[Suite]

    @cached_property
    def readable(self) -> list[Run]:
        """Runs whose numbers have a place."""
        return [run for run in self.runs if run.readable]

    @cached_property
    def tasks(self) -> list[str]:
        """Tasks, in the order in which they were found."""
        return list(dict.fromkeys(run.task for run in self.runs if run.task))

    @cached_property
    def labels(self) -> list[str]:
        """Names of the series."""
        return list(dict.fromkeys(run.label for run in self.runs if run.label))

    @property
    def table(self) -> str:
        """The paper's table that the first suite reproduces, if it names one."""
        return next((suite.table for suite in self.suites if suite.table), "")

    def of(self, label: str, task: str) -> list[Run]:
        """Return the runs of a series on a task."""
        return [run for run in self.readable if (run.label, run.task) == (label, task)]

    def lost(self, label: str, task: str) -> int:
        """Return how many runs of a series on a task are broken or missing."""
        return sum(
            (run.label, run.task) == (label, task) and run.state in ("broken", "missing") for run in self.runs
        )

    @cached_property
    def milestones(self) -> list[int]:
        """Steps at which runs are compared: the suite's, else the paper's and the end of the longest run."""
        ends = sorted(
            run.setting("steps", 0) if run.state == "done" else run.evaluations.steps[-1]
            for run in self.readable
            if run.evaluations.steps
        )
        asked = sorted({step for suite in self.suites for step in suite.milestones})
        if not ends or (asked and asked[0] <= ends[-1]):
            return asked
        longest = max(run.setting("steps", 0) for run in self.readable)
        if longest > ends[-1]:  # none is at its end: where half of them are
            longest = ends[len(ends) // 2]
        paper: dict[str, set[int]] = {}
        for score in paper_scores():
            paper.setdefault(task_key(score.task), set()).add(score.milestone)
        found = {
            frames // run.setting("action_repeat", 1)
            for run in self.readable
            for frames in paper.get(task_key(run.task), ())
        }
        return sorted({step for step in found if step < longest} | {longest})

    def window(self, milestone: int) -> int:
        """Return over how many steps before a milestone the evaluations are averaged."""
        asked = [suite.window for suite in self.suites if suite.window and milestone in suite.milestones]
        return asked[0] if asked else max(milestone // WINDOW_SHARE, 1)


def read_study(directories: Sequence[Path]) -> Study:
    """Read everything below the directories."""
    places = list(dict.fromkeys(place.resolve() for place in checked(directories)))
    suites = [read_suite(file) for file in _suite_files(places)]
    found: dict[Path, Run] = {}
    for place in places:
        for path in run_directories(place):
            found.setdefault(path, read_run(path, _name(path, place)))
    owned: dict[Path, Run] = {}
    for suite in suites:
        for path, plan in suite.planned.items():
            if path not in owned and (run := _planned_run(found.get(path), path, plan, suite, places)):
                owned[path] = run
    free = labelled([run for path, run in found.items() if path not in owned])
    return Study(places, without_repeats([*owned.values(), *free]), suites)


def read_suite(file: Path) -> Suite:
    """Return a suite from its file; what is wrong with it is one of its problems."""
    try:
        values = json.loads(file.read_text())
        protocol = values.get("protocol") or {}
        window = protocol.get("window")
        suite = Suite(
            file.parent,
            name=str(values.get("name") or file.parent.name),
            title=str(values.get("title") or values.get("name") or file.parent.name),
            paper=str(values.get("paper") or ""),
            claim=str(values.get("claim") or ""),
            scale=tuple(str(line) for line in values.get("scale") or ()),
            milestones=tuple(int(step) for step in protocol.get("milestones") or ()),
            window=None if window is None else int(window),
            checks=tuple(_check(check) for check in values.get("checks") or ()),
            unchecked=str(values.get("unchecked") or ""),
            table=str(values.get("table") or ""),
            planned={(file.parent / plan["directory"]).resolve(): plan for plan in values.get("runs") or ()},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"{file.name} cannot be read: {one_line(error)}; its runs are shown without their plan"
        return Suite(file.parent, title=file.parent.name, problems=(problem,))
    return _with_times(suite)


def _check(values: Mapping[str, Any]) -> Check:
    lists = {name: tuple(map(str, values.get(name) or ())) for name in ("second", "tasks")}
    return Check(**{**values, **lists})


def _with_times(suite: Suite) -> Suite:
    file = suite.path / TRAINING_TIME
    if not file.exists():
        return suite
    try:
        return replace(suite, training_time=dict(json.loads(file.read_text())))
    except (OSError, ValueError, TypeError) as error:
        return replace(suite, problems=(f"{file.name} cannot be read: {one_line(error)}",))


def _suite_files(places: Sequence[Path]) -> list[Path]:
    """Return the suites of the directories, of their parents, and of the directories below."""
    files = [
        file for place in places for file in (place.parent / records.SUITE, *sorted(place.rglob(records.SUITE)))
    ]
    return [file for file in dict.fromkeys(files) if file.is_file()]


def _planned_run(
    run: Run | None, path: Path, plan: Mapping[str, Any], suite: Suite, places: Sequence[Path]
) -> Run | None:
    """Return a run under the name that its suite gave it; one that was never started is missing.

    A suite may show runs of another one's directory. Where only a part of a suite was asked for, its runs
    elsewhere are left alone.
    """
    label, task = str(plan.get("label", "")), str(plan.get("env", ""))
    seed = plan["seed"] if type(plan.get("seed")) is int else None
    asked = any(own.is_relative_to(place) for own in (path, suite.path) for place in places)
    if run is None and asked and next(run_directories(path), None) == path:
        run = read_run(path, str(plan["directory"]))
    if run is not None:
        seed = run.seed if seed is None else seed
        return replace(run, label=label or run.label, task=run.task or task, seed=seed)
    if path.exists() and not asked:
        return None
    problem = "planned, and nothing recorded yet" if path.exists() else "planned and not there"
    if last := last_output(path):
        problem = f"{problem}; its {records.OUTPUT} ends with: {last}"
    return Run(path, str(plan["directory"]), "missing", label=label, task=task, seed=seed, problems=(problem,))


def _name(path: Path, place: Path) -> str:
    """Return a run's path as a report shows it."""
    return str(path.relative_to(place.parent))
