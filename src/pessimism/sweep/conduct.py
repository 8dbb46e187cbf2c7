"""Carry out all runs of a suite or a grid, those already done left out, and say how it went."""

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from pessimism import records
from pessimism.errors import UserError
from pessimism.suites.suite import Job
from pessimism.sweep.overview import Overview, Status
from pessimism.sweep.work import STOPPED, Backend, Outcome, is_done, work_on

LOOK_EVERY = 0.5  # seconds


class Wish:
    """Counts how often the user asked to stop."""

    def __init__(self) -> None:
        self.count = 0

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        self.count += 1


@contextmanager
def wish_to_stop() -> Iterator[Wish]:
    """Turn Ctrl-C, or a scheduler's SIGTERM, into a wish that the sweep passes on to its runs."""
    wish = Wish()
    before = {number: signal.signal(number, wish.hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def conduct(
    jobs: Sequence[Job], record: Mapping[str, Any], root: Path, *, backend: Backend, threads: int, console: Console
) -> int:
    """Run every job that is not done. Returns 0 if all are done then, 130 if stopped, 1 if runs failed."""
    write_record(root, record)
    statuses = [Status(job, work_on(job, root, threads), job.config().steps) for job in jobs]
    overview = Overview(statuses, console)
    with wish_to_stop() as wish, overview:
        try:
            _carry_out_all(overview, backend, wish)
        finally:
            backend.close()
    return _conclude(overview, asked=wish.count > 0)


def write_record(root: Path, record: Mapping[str, Any]) -> None:
    """Write what the runs below a directory are."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        temporary = root / f"{records.SUITE}.writing"
        temporary.write_text(json.dumps(record, indent=2) + "\n")
        temporary.replace(root / records.SUITE)
    except OSError as error:
        raise UserError(f"cannot write to {root}: {error.strerror}; give another --out") from None


def _carry_out_all(overview: Overview, backend: Backend, wish: Wish) -> None:
    pending: dict[Future[Outcome], Status] = {}
    for status in overview.statuses:
        if is_done(Path(status.work.path), status.job.config()):
            status.end(Outcome("done"))
        else:
            pending[backend.submit(status.work)] = status
    overview.first_steps = sum(status.step for status in overview.statuses)
    if pending:
        overview.say(overview.summary())
    passed_on = 0
    while pending:
        finished, _ = wait(pending, timeout=LOOK_EVERY, return_when=FIRST_COMPLETED)
        overview.refresh()
        for future in finished:
            overview.ended(pending.pop(future), _outcome(future, asked=wish.count > 0))
        if wish.count > passed_on:
            passed_on += 1
            overview.say("stopping: runs write a checkpoint first; once more stops at once")
            backend.stop()


def _outcome(future: "Future[Outcome]", asked: bool) -> Outcome:
    try:
        return future.result()
    except (Exception, CancelledError) as error:  # Ray has many: a node lost too often, a task cancelled
        lines = str(error).strip().splitlines() or [""]
        return Outcome("stopped" if asked else "failed", f"{type(error).__name__}: {lines[0]}")


def _conclude(overview: Overview, asked: bool) -> int:
    overview.say(overview.summary())
    if asked:
        overview.say("the same command goes on from here")
        return STOPPED
    for status in overview.statuses:
        if status.state != "done":
            overview.say(f"{status.state}: {status.name}: {status.reason} (see {status.work.output})")
    return int(any(status.state != "done" for status in overview.statuses))
