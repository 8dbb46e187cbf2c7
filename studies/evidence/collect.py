"""Write the numbers of the evidence runs, finished or not, as small CSV files.

    python studies/evidence/collect.py runs/evidence         # writes studies/evidence/data/

One file per suite with a row for each run and reading (every 1000 steps): the evaluation, the meter's bias, the
signals beside it, beta, and the processor time so far. `runs.csv` says how far each run has come, how it ended, and
with which instructions and which version of the sources it was made. What was collected on other machines stays,
unless a run has come further here.
"""

import csv
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from pessimism import records
from pessimism.analysis.report.series import added_up
from pessimism.tools.script import Parser, start

DATA = Path(__file__).parent / "data"
EVERY = 1000
LOGGED = {  # column: name in the log
    "beta": "train/beta",
    "alpha": "train/alpha",
    "bias": "bias/mean",
    "normalized_bias": "bias/normalized_mean",
    "normalized_bias_sd": "bias/normalized_std",
    "soft_return": "bias/soft_return",
    "value": "bias/value",
    "bootstrapped": "bias/bootstrapped",
    "dual_td": "bias/dual_td",
    "validation_td": "bias/validation_td",
    "training": "bias/training",
    "training_se": "bias/training_se",
}
PROCESSOR = "processor"  # column: seconds of processor time since the first step
VERSION, RUNS = "VERSION", "runs.csv"
Row = dict[str, Any]
Run = tuple[str, str, int]  # arm, task, seed


def runs_of(suite: Path) -> Iterator[tuple[Row, Path]]:
    """Yield the runs below a suite's directory: their names and where they are."""
    for path in sorted(suite.glob("*/*/seed_*")):
        arm, task, seed = path.relative_to(suite).parts
        if (path / records.METRICS).exists():
            yield {"arm": arm, "task": task, "seed": int(seed.removeprefix("seed_"))}, path


def entries(path: Path) -> Iterator[Row]:
    """Yield the lines of a run's log."""
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):  # the last line of a run that is being written
            yield json.loads(line)


def readings(path: Path) -> dict[int, Row]:
    """Return a run's numbers by step; beta and alpha are those of the last line before it."""
    found: dict[int, Row] = {}
    for entry in entries(path / records.METRICS):
        if entry["step"] % EVERY == 0:
            row = found.setdefault(entry["step"], {})
            row |= {column: entry[name] for column, name in LOGGED.items() if name in entry}
    for step, seconds in processor_time(path).items():
        if step in found:
            found[step][PROCESSOR] = seconds
    if (path / records.EVALUATIONS).exists():
        with np.load(path / records.EVALUATIONS) as file:
            for step, returns in zip(file["timesteps"], file["results"], strict=True):
                if step % EVERY == 0:
                    found.setdefault(int(step), {})["return"] = float(np.mean(returns))
    return found


def processor_time(path: Path) -> dict[int, float]:
    """Return a run's seconds of processor time by step; empty for a run of a version that did not log it."""
    timed = [entry for entry in entries(path / records.TIMING) if "time/processor" in entry]
    seconds = added_up([entry["time/processor"] for entry in timed])
    return {entry["step"]: total for entry, total in zip(timed, seconds, strict=True)}


def state_of(path: Path) -> str:
    """Say how a run ended: done, failed with a reason, or unfinished."""
    if (path / records.DONE).exists():
        return "done"
    output = path / records.OUTPUT
    lines = output.read_text(errors="replace").strip().splitlines() if output.exists() else []
    return f"failed: {lines[-1]}" if lines and "the last checkpoint is kept" in lines[-1] else "unfinished"


def write(path: Path, rows: list[Row], columns: list[str]) -> None:
    """Write rows as CSV; numbers that a run does not have are empty."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {name: f"{value:.5g}" if isinstance(value, float) else value for name, value in row.items()}
            )


def made_with(path: Path, version: str) -> Row:
    """Return the vector instructions and the version of the sources that a run was made with."""
    manifest = json.loads((path / records.MANIFEST).read_text())
    return {"instructions": " ".join(manifest["machine"]["instructions"]), "version": version[:7]}


def known(path: Path) -> dict[Run, list[Row]]:
    """Return the rows of a CSV file that is there already, by run."""
    found: dict[Run, list[Row]] = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                found.setdefault((row["arm"], row["task"], int(row["seed"])), []).append(dict(row))
    return found


def collect(suite: Path, out: Path, version: str, overview: dict[tuple[str, Run], Row]) -> None:
    """Write a suite's readings, and note in `overview` how far its runs have come."""
    path = out / f"{suite.name}.csv"
    rows = known(path)
    for names, run in runs_of(suite):
        found, key = readings(run), (names["arm"], names["task"], names["seed"])
        reached = max(found, default=0)
        if reached >= int(overview.get((suite.name, key), {"step": 0})["step"]):
            rows[key] = [{**names, "step": step, **found[step]} for step in sorted(found)]
            state = {"step": reached, "state": state_of(run), **made_with(run, version)}
            overview[suite.name, key] = {"suite": suite.name, **names, **state}
    write(
        path,
        [row for _, part in sorted(rows.items()) for row in part],
        ["arm", "task", "seed", "step", "return", *LOGGED, PROCESSOR],
    )


def main() -> None:
    """Collect all suites."""
    parser = Parser(__doc__)
    parser.add_argument("runs", type=Path, help="directory that run.py was given")
    parser.add_argument("--out", type=Path, default=DATA, help="where the CSV files go")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    version = (args.runs / VERSION).read_text() if (args.runs / VERSION).exists() else ""
    overview = {(row["suite"], run): row for run, rows in known(args.out / RUNS).items() for row in rows}
    for suite in sorted({path.parents[2] for path in args.runs.glob("*/*/*/seed_*")}):
        collect(suite, args.out, version, overview)
    rows = [row for _, row in sorted(overview.items())]
    write(args.out / RUNS, rows, ["suite", "arm", "task", "seed", "step", "state", "instructions", "version"])
    print(f"{len(rows)} runs, {sum(one['state'] == 'done' for one in rows)} of them done: {args.out}")


if __name__ == "__main__":
    start(main)
