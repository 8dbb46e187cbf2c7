"""Published numbers: the paper's tables, and learning curves that others made. Where from: README.md here."""

import csv
import re
from functools import cache
from importlib import resources
from typing import NamedTuple


class PaperScore(NamedTuple):
    """One cell of the paper's tables of returns."""

    table: str
    task: str
    algorithm: str
    milestone: int  # environment steps on Gym, frames on the Control Suite
    mean: float
    std: float


class PublishedCurve(NamedTuple):
    """A learning curve that others published."""

    env: str  # with its version where it has one
    algorithm: str
    unit: str  # env_steps or frames
    seeds: int
    source: str
    note: str
    steps: tuple[int, ...]
    means: tuple[float, ...]
    stds: tuple[float, ...]


_GYM_MILESTONE = 100_000
# Tables 6 and 7 print columns of Table 5 again, from other runs: where none is asked for, the first counts.
TABLES = ("gym_100k", "dmc_pixels", "dmc_top", "dmc_optimistic_shift")
PAPER_SEEDS = 5
AVERAGES = ("average", "normalized_average")
# Names under which the curves' authors published what is an algorithm here.
ALSO_CALLED = {"redqutd20": "redq", "droqutd20": "droq", "sacutd1": "sac"}


@cache
def task_key(env: str) -> str:
    """Return what all spellings and versions of a task have in common; arguments in brackets are left out."""
    name = re.sub(r"(-v\d+|[-_]pixels)+$", "", re.split(r"[/:]", env.partition(" (")[0])[-1])
    return re.sub(r"[-_\s]+", " ", name).lower()


def algorithm_key(name: str) -> str:
    """Return what all spellings of an algorithm's name have in common."""
    key = re.sub(r"[^a-z0-9.]", "", name.lower())
    return ALSO_CALLED.get(key, key)


@cache
def paper_scores() -> tuple[PaperScore, ...]:
    """Return the paper's returns, averages left out."""
    return tuple(
        PaperScore(
            table,
            row["task"],
            row["algorithm"],
            int(row.get("frames") or _GYM_MILESTONE),
            float(row["mean"]),
            float(row["std"]),
        )
        for table in TABLES
        for row in _rows(f"paper/{table}.csv")
        if row["task"] not in AVERAGES
    )


def paper_score(env: str, algorithm: str, milestone: int, table: str = "") -> PaperScore | None:
    """Return the paper's number for a task and an algorithm, whatever the version of the task.

    Several tables may have one: that of `table` comes first.
    """
    wanted = (task_key(env), algorithm_key(algorithm), milestone)
    found = [
        score
        for score in paper_scores()
        if (task_key(score.task), algorithm_key(score.algorithm), score.milestone) == wanted
    ]
    return min(found, key=lambda score: score.table != table, default=None)


def paper_average(table: str, algorithm: str, milestone: int) -> tuple[float, float | None] | None:
    """Return the average over tasks that a table prints, and its standard deviation where it prints one."""
    for row in _rows(f"paper/{table}.csv"):
        found = (algorithm_key(row["algorithm"]), int(row.get("frames") or _GYM_MILESTONE))
        if row["task"] in AVERAGES and found == (algorithm_key(algorithm), milestone):
            return float(row["mean"]), float(row["std"]) if row["std"] else None
    return None


def paper_top_scores(algorithm: str, milestone: int) -> int | None:
    """Return on how many of the twelve pixel tasks the paper counts a top score."""
    for row in _rows("paper/dmc_top_scores.csv"):
        if (algorithm_key(row["algorithm"]), int(row["frames"])) == (algorithm_key(algorithm), milestone):
            return int(row["count"])
    return None


@cache
def published_curves() -> tuple[PublishedCurve, ...]:
    """Return the published learning curves."""
    sources = {row["id"]: row for row in _rows("sources.csv")}
    points: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in _rows("curves.csv"):
        points.setdefault((row["source"], row["env"]), []).append(row)
    return tuple(
        PublishedCurve(
            env,
            sources[source]["algorithm"],
            sources[source]["unit"],
            int(rows[0]["seeds"]),
            sources[source]["source"],
            sources[source]["note"],
            tuple(int(row["step"]) for row in rows),
            tuple(float(row["mean"]) for row in rows),
            tuple(float(row["std"]) for row in rows),
        )
        for (source, env), rows in points.items()
    )


def curves_of(env: str, algorithm: str) -> list[PublishedCurve]:
    """Return the published curves of an algorithm on a task, whatever the version of the task."""
    return [
        curve
        for curve in published_curves()
        if (task_key(curve.env), algorithm_key(curve.algorithm)) == (task_key(env), algorithm_key(algorithm))
    ]


def training_times() -> list[tuple[str, str, float]]:
    """Return the paper's training times: observations, algorithm, seconds per 1000 (pixels: 10000) steps."""
    rows = _rows("paper/training_time.csv")
    return [(row["observations"], row["algorithm"], float(row["seconds"])) for row in rows]


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
