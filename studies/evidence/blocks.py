"""The evidence's suites and their arms, and which blocks of runs are complete in the CSV files of collect.py."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data"
ARMS = {
    "calibration": {
        "fixed-0": "fixed 0",
        "fixed-0.5": "fixed 0.5",
        "redq": "REDQ's rule",
        "dual-1e-4": "dual TD, 1e-4",
        "dual-1e-2": "dual TD, 1e-2",
        "calibrated": "calibrated",
    },
    "start-low": {"fixed": "fixed 0", "calibrated": "calibrated, from 0", "dual-1e-2": "dual TD, 1e-2, from 0"},
    "start-high": {
        "fixed": "fixed 1.5",
        "calibrated": "calibrated, from 1.5",
        "dual-1e-2": "dual TD, 1e-2, from 1.5",
    },
    "alpha-rate": {"rate-1e-4": "alpha's rate 1e-4", "rate-3e-4": "alpha's rate 3e-4"},
    "hopper-full": {"gpl-sac": "GPL-SAC", "redq": "REDQ", "gpl-sac-calibrated": "GPL-SAC, calibrated"},
    "backbones": {
        "gpl-xqc": "GPL-XQC",
        "xqc": "XQC",
        "gpl-xqc-256": "GPL-XQC, width 256",
        "xqc-256": "XQC, width 256",
        "gpl-droq": "GPL-DroQ",
        "gpl-dropout": "GPL-Dropout",
        "gpl-sac": "GPL-SAC",
    },
}
UNTIL = {
    "calibration": 20_000,
    "start-low": 20_000,
    "start-high": 20_000,
    "alpha-rate": 20_000,
    "hopper-full": 15_000,
    "backbones": 30_000,
}
# Arms whose settings are those of another suite's arm: the runs of that one serve both.
SAME = {("alpha-rate", "rate-1e-4"): ("calibration", "dual-1e-4")}
Row = dict[str, Any]
Block = tuple[str, int]  # task, seed
Scores = dict[str, dict[Block, float]]  # arm -> block -> score
Array = np.ndarray[Any, np.dtype[np.float64]]


def read(path: Path) -> list[Row]:
    """Read a CSV file; empty numbers become NaN."""
    words = ("arm", "task", "suite", "state", "instructions", "version")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v if k in words else float(v or "nan") for k, v in row.items()} for row in rows]


def rows_of(suite: str, file: str, data: Path) -> list[Row]:
    """Return the rows of a suite's arms in a CSV file, also of those that are in another suite's directory."""
    found = []
    for arm in ARMS[suite]:
        home, name = SAME.get((suite, arm), (suite, arm))
        path = data / file.format(suite=home)
        rows = read(path) if path.exists() else []
        found += [row | {"arm": arm} for row in rows if row["arm"] == name and row.get("suite", home) == home]
    return found


class Evidence:
    """The blocks of a suite that are complete up to a step, or all that have begun.

    An arm of which no run has begun is left out.
    """

    def __init__(self, suite: str, data: Path, until: int, *, begun: bool = False) -> None:
        self.until = until
        runs = rows_of(suite, "runs.csv", data)
        started = {row["arm"] for row in runs}
        self.suite, self.arms = suite, {arm: label for arm, label in ARMS[suite].items() if arm in started}
        self.failed = {(r["arm"], r["task"], r["seed"]) for r in runs if r["state"].startswith("failed")}
        reached = {(r["arm"], r["task"], r["seed"]): r["step"] for r in runs}
        candidates = sorted({(r["task"], r["seed"]) for r in runs})
        enough = [
            block
            for block in candidates
            if begun
            or all(reached.get((arm, *block), 0) >= until or (arm, *block) in self.failed for arm in self.arms)
        ]
        self.blocks: list[Block] = enough
        self.rows = [
            row
            for row in rows_of(suite, "{suite}.csv", data)
            if (row["task"], row["seed"]) in enough and row["step"] <= until
        ]

    @property
    def tasks(self) -> list[str]:
        """Tasks with a complete block."""
        return sorted({task for task, _ in self.blocks})

    def finished(self, arm: str, task: str) -> list[dict[str, Array]]:
        """Return the readings of an arm's runs on a task that have reached the last step, column by column."""
        rows = [row for row in self.rows if (row["arm"], row["task"]) == (arm, task)]
        by_seed = [[row for row in rows if row["seed"] == seed] for seed in sorted({row["seed"] for row in rows})]
        whole = [run for run in by_seed if max(row["step"] for row in run) >= self.until]
        columns = ("step", "return", "processor")
        return [{name: np.array([row[name] for row in run]) for name in columns} for run in whole]

    def scores(self, column: str, start: int, *, absolute: bool, lower_is_better: bool) -> Scores:
        """Return each run's mean of a column from a step on; a failed run is the worst of its block."""
        found: Scores = {arm: {} for arm in self.arms}
        for block in self.blocks:
            for arm in self.arms:
                values = [
                    row[column]
                    for row in self.rows
                    if (row["arm"], row["task"], row["seed"]) == (arm, *block) and row["step"] >= start
                ]
                usable = np.array([value for value in values if not np.isnan(value)])
                if (arm, *block) not in self.failed:
                    found[arm][block] = float(np.mean(np.abs(usable) if absolute else usable))
            worst = max if lower_is_better else min
            there = [found[arm][block] for arm in self.arms if block in found[arm]]
            for arm in self.arms:
                found[arm].setdefault(block, worst(there))
        return found

    def by_task(self, scores: dict[Block, float]) -> list[Array]:
        """Return one array of scores per task."""
        return [np.array([scores[block] for block in self.blocks if block[0] == task]) for task in self.tasks]
