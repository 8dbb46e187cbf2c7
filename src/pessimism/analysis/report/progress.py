"""How far a sweep is, while its runs are training: read from their directories alone."""

import time
from collections.abc import Sequence
from pathlib import Path

from pessimism import records
from pessimism.analysis.report.document import Block, Table, Text
from pessimism.analysis.report.runs import Run
from pessimism.analysis.report.study import Study
from pessimism.analysis.report.wording import DASH, counted, duration, or_dash

ALIVE = 180.0  # seconds after its last line in which a run counts as training
RECENT = 20  # lines that a run's speed is taken from


def progress(study: Study, now: float | None = None) -> list[Block]:
    """Return the state of the sweep: steps, time left, and each run that is training."""
    moment = time.time() if now is None else now
    planned = [run for run in study.runs if run.state in ("done", "unfinished", "missing")]
    training = [run for run in planned if run.state == "unfinished" and _age(run.path, moment) < ALIVE]
    done = sum(run.state == "done" for run in planned)
    waiting = len(planned) - done - len(training)
    words = [counted(done, "run") + " done", f"{len(training)} training", f"{waiting} waiting or stopped"]
    text = f"{', '.join(words)}; {_steps(planned)}{_time_left(planned, training)}."
    rows = [
        (
            run.name,
            f"{run.reached:,} of {run.setting('steps', 0):,}",
            _share(run),
            _speed_text(run),
            _left(run),
            _last(run),
        )
        for run in training
    ]
    blocks: list[Block] = [Text(text)]
    if rows:
        head = ("run", "steps", "done", "steps per second", "time left", "last return")
        blocks.append(Table("Training now", head, rows))
    return blocks


def speed(run: Run) -> float | None:
    """Return a run's steps per second over its newest lines, restarts of the clock left out."""
    steps, elapsed = run.timing.get("time/elapsed", ([], []))
    learned, seconds = 0, 0.0
    for index in range(max(1, len(steps) - RECENT), len(steps)):
        if elapsed[index] >= elapsed[index - 1] and steps[index - 1] >= run.setting("random_steps", 0):
            learned += steps[index] - steps[index - 1]
            seconds += elapsed[index] - elapsed[index - 1]
    return learned / seconds if seconds > 0 and learned else None


def _age(path: Path, now: float) -> float:
    """Return the seconds since a run last wrote something."""
    times = []
    for name in (records.METRICS, records.TIMING, records.OUTPUT):
        try:
            times.append((path / name).stat().st_mtime)
        except OSError:
            continue
    return now - max(times, default=0.0)


def _length(run: Run, runs: Sequence[Run]) -> int:
    """Return a run's steps; one that has not started is as long as the longest of the others."""
    return run.setting("steps", 0) or max((other.setting("steps", 0) for other in runs), default=0)


def _steps(runs: Sequence[Run]) -> str:
    whole = sum(_length(run, runs) for run in runs)
    there = sum(min(run.reached, _length(run, runs)) if run.state != "done" else _length(run, runs) for run in runs)
    return f"{there:,} of {whole:,} steps ({there / whole:.0%})" if whole else "no steps yet"


def _time_left(planned: Sequence[Run], training: Sequence[Run]) -> str:
    speeds = [value for run in training if (value := speed(run))]
    if not speeds:
        return ""
    left = sum(_length(run, planned) - run.reached for run in planned if run.state != "done")
    return f"; about {duration(left / (sum(speeds) / len(speeds)) / len(training))} left"


def _share(run: Run) -> str:
    return f"{run.reached / max(run.setting('steps', 1), 1):.0%}"


def _speed_text(run: Run) -> str:
    value = speed(run)
    return or_dash(None if value is None else f"{value:.1f}")


def _left(run: Run) -> str:
    value = speed(run)
    return DASH if value is None else duration((run.setting("steps", 0) - run.reached) / value)


def _last(run: Run) -> str:
    return f"{float(run.evaluations.returns[-1].mean()):.1f}" if run.evaluations.steps else DASH
