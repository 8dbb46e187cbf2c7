"""A suite: variants of an algorithm on tasks, with seeds, and how their returns are compared."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from pessimism.config.presets import Changes
from pessimism.config.resolve import leaves, resolved, unfolded
from pessimism.config.schema import Config
from pessimism.config.tasks import task_folder
from pessimism.errors import UserError


class Protocol(NamedTuple):
    """How runs are evaluated and compared. Lengths are environment steps."""

    milestones: tuple[int, ...]  # where returns are compared
    window: int  # evaluations of so many steps before a milestone are averaged
    every: int = 1000  # between evaluations
    episodes: int = 5  # per evaluation
    frames_per_step: int = 1  # 2 where an action is repeated and the paper counts frames

    @property
    def averaged(self) -> int:
        """Episodes that a run's return at a milestone is the mean of."""
        return self.episodes * max(1, self.window // self.every)


class Check(NamedTuple):
    """Part of a claim as a comparison: a measure of one variant is more, less, ... than that of others."""

    statement: str
    measure: str  # a name in `analysis.report.measures`
    first: str  # label of a variant
    second: tuple[str, ...]  # labels of those that it is compared with
    relation: Literal["more", "less", "similar", "different"]
    scope: Literal["average", "every"] = "average"  # over tasks, or on each of them
    tasks: tuple[str, ...] = ()  # all by default
    milestone: int = -1  # its place among the protocol's; the last by default


@dataclass(frozen=True)
class Variant:
    """A line of the figure, or a column of the table."""

    name: str  # of its directory
    label: str  # in the paper
    preset: str
    changes: Changes = field(default_factory=dict)
    tasks: Mapping[str, Changes] = field(default_factory=dict)  # further changes by task
    home: str = ""  # the suite in whose directory these runs are, if several show them

    def settings(self, env: str) -> Changes:
        """Return what this variant changes of its preset on a task."""
        if self.tasks and env not in self.tasks:
            raise UserError(f"{self.label} has settings for {', '.join(self.tasks)} only, none for {env}")
        return self.changes | self.tasks.get(env, {})

    def varied(self) -> set[str]:
        """Return the settings that this variant has its own values of."""
        return {*self.changes, *(name for changes in self.tasks.values() for name in changes)}


@dataclass(frozen=True)
class Suite:
    """One experiment."""

    name: str
    title: str
    paper: str  # where the paper shows it; empty: an experiment of our own
    claim: str
    variants: Sequence[Variant]
    tasks: tuple[str, ...]
    steps: int
    protocol: Protocol
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    factor: float = 1.0  # phases and periods of all runs are multiplied by this
    changes: Changes = field(default_factory=dict)  # settings of all runs that the user asked for
    scale: tuple[str, ...] = ()  # how the experiment was made smaller, a line each
    suffix: str = ""  # of its directory: a smaller experiment is another one
    checks: tuple[Check, ...] = ()  # what the claim says of the data
    unchecked: str = ""  # what the claim says beside its checks
    table: str = ""  # of the paper's returns (`analysis.reference.TABLES`), where several print the same column

    @property
    def folder(self) -> str:
        """Name of its directory."""
        return self.name + self.suffix

    def settings(self, variant: Variant, env: str, seed: int) -> Changes:
        """Return what one run asks for beside its preset."""
        protocol = self.protocol
        evaluation = {"evaluation.every": protocol.every, "evaluation.episodes": protocol.episodes}
        return {"env": env, "seed": seed, "steps": self.steps} | evaluation | variant.settings(env)


@dataclass(frozen=True)
class Job:
    """One run of a suite or a grid: a `pessimism train` command and the directory it works in."""

    directory: str  # relative to the suite's
    label: str
    algorithm: str
    settings: Changes  # all that is asked for beside the preset, dotted names

    @property
    def env(self) -> str:
        """Its task."""
        return str(self.settings["env"])

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.settings.get("seed", 0))

    def config(self) -> Config:
        """Return the whole config."""
        return resolved(self.algorithm, unfolded(self.settings))

    def arguments(self) -> list[str]:
        """Return the words after `pessimism` that start this run, its directory left out."""
        words = ["train", self.algorithm]
        for name, value in self.settings.items():
            words += [f"--{name.replace('_', '-')}", value if isinstance(value, str) else json.dumps(value)]
        return words


def jobs(suite: Suite, *, shared: bool = True) -> list[Job]:
    """Return the suite's runs; a first seed of everything comes before the second of anything.

    Runs that several suites show are made once, in one of them; a smaller experiment has its own.
    """
    found = []
    for seed in suite.seeds:
        for variant in suite.variants:
            place = f"../{variant.home}/" if variant.home and shared and not suite.suffix else ""
            for env in suite.tasks:
                directory = f"{place}{variant.name}/{task_folder(env)}/seed_{seed}"
                settings = suite.settings(variant, env, seed)
                found.append(Job(directory, variant.label, variant.preset, settings))
    return [_adapted(job, suite) for job in found]


def _adapted(job: Job, suite: Suite) -> Job:
    """Return the run with what its length and the user ask for; the user has the last word."""
    return replace(job, settings=job.settings | fitted(job.config(), suite.factor) | suite.changes)


PERIODS = ("evaluation.every", "bias.every")
MOST_POINTS, FEWEST_POINTS = 20, 5  # of a curve that was made shorter


def fitted(config: Config, factor: float) -> Changes:
    """Return the settings that must change so that a run made shorter is still the same experiment.

    Phases shrink with the steps, in proportion. What is done periodically is done 5 times at least, and not
    so often that evaluating takes longer than learning. Half of the run at most may pass without learning.
    """
    values = dict(leaves(config))
    steps = config.steps
    new: Changes = {"random_steps": max(1, round(values["random_steps"] * factor))}
    if values.get("pessimism.optimism"):
        new["pessimism.optimism_steps"] = max(1, round(values["pessimism.optimism_steps"] * factor))
    if config.policy == "noisy":
        *levels, decay = config.noise
        new["noise"] = (*levels, max(1, round(decay * factor)))
    if config.model is not None:  # epochs between which rollouts grow; how often the model is fitted stays
        first, last, *lengths = config.model.schedule
        new["model.schedule"] = (round(first * factor), round(last * factor), *lengths)
    if new["random_steps"] > steps // 2:
        new["random_steps"] = max(1, steps // 20)  # the paper's share: 5,000 of 100,000
    for name in PERIODS:
        new[name] = period(values[name], steps, factor)
    new["log.every"] = min(values["log.every"], max(1, steps // 50))
    new["checkpoint.every"] = min(values["checkpoint.every"], max(1, steps // FEWEST_POINTS))
    return {name: value for name, value in new.items() if value != values[name]}


def period(every: int, steps: int, factor: float) -> int:
    """Return the period of evaluations in a run of so many steps."""
    return min(every, max(round(every * factor), steps // MOST_POINTS), max(1, steps // FEWEST_POINTS))


def record(suite: Suite, runs: Sequence[Job]) -> dict[str, Any]:
    """Return what a report needs to know of the suite."""
    return {
        "name": suite.name,
        "title": suite.title,
        "paper": suite.paper,
        "claim": suite.claim,
        "protocol": {name: getattr(suite.protocol, name) for name in Protocol._fields},
        "scale": list(suite.scale),
        "checks": [check._asdict() for check in suite.checks],
        "unchecked": suite.unchecked,
        "table": suite.table,
        "runs": [
            {"directory": job.directory, "label": job.label, "env": job.env, "seed": job.seed} for job in runs
        ],
    }
