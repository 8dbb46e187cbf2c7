"""Runs everything in a suite or a grid that is not done yet, and reports how it went."""

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
from pessimism.experiments.suites.suite import Job
from pessimism.experiments.sweep.overview import Overview, Status
from pessimism.experiments.sweep.work import STOPPED, Backend, Outcome, is_done, work_on

LOOK_EVERY = 0.5  # seconds


class StopRequests:
    """Counts how often the user asked to stop: once is with a checkpoint, twice is at once."""

    def __init__(self) -> None:
        self.count = 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Count a signal."""
        self.count += 1


@contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Count Ctrl-C and a scheduler's SIGTERM instead of stopping: the sweep stops its runs first."""
    requests = StopRequests()
    before = {number: signal.signal(number, requests.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def conduct(
    jobs: Sequence[Job], record: Mapping[str, Any], root: Path, *, backend: Backend, threads: int, console: Console
) -> int:
    """Run every job that is not done. Returns 0 if all are done then, 130 if stopped, 1 if runs failed."""
    write_record(root, record)
    statuses = [_status(job, root, threads) for job in jobs]
    overview = Overview(statuses, console)
    with stop_requests() as requests, overview:
        try:
            _run_all(overview, backend, requests)
        finally:
            backend.close()
    return _conclude(overview, asked=requests.count > 0)


def _status(job: Job, root: Path, threads: int) -> Status:
    config = job.config()
    return Status(job, work_on(job, root, threads), config.steps, config.random_steps)


def write_record(root: Path, record: Mapping[str, Any]) -> None:
    """Write what the runs below a directory are, those of earlier calls included that are there."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        temporary = root / f"{records.SUITE}.writing"
        temporary.write_text(json.dumps(with_earlier_runs(record, root), indent=2) + "\n")
        temporary.replace(root / records.SUITE)
    except OSError as error:
        raise UserError(f"cannot write to {root}: {error.strerror}; give another --out") from None


def with_earlier_runs(record: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Return the record with the runs that an earlier call of the same sweep made: other seeds, other tasks."""
    try:
        before = json.loads((root / records.SUITE).read_text())
        kept = [dict(run) for run in before["runs"] if (root / run["directory"] / records.CONFIG).exists()]
    except (OSError, ValueError, KeyError, TypeError):
        return dict(record)
    new = {run["directory"] for run in record["runs"]}
    if before.get("name") != record["name"]:
        return dict(record)
    runs = [run for run in kept if run["directory"] not in new] + list(record["runs"])
    return {**record, "runs": runs, "scale": [line for line in _scale(record["scale"], runs) if line]}


def _scale(lines: Sequence[str], runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines on how an experiment is smaller, with the seeds and tasks of all its runs."""
    there = {
        "seeds": sorted({run["seed"] for run in runs}),
        "tasks": list(dict.fromkeys(run["env"] for run in runs)),
    }
    for line in lines:
        name, _, rest = line.partition(": ")
        full = rest.partition(" -> ")[0]
        if name in there:
            now = ", ".join(map(str, there[name]))
            yield f"{name}: {full} -> {now}" if sorted(now.split(", ")) != sorted(full.split(", ")) else ""
        else:
            yield line


def _run_all(overview: Overview, backend: Backend, requests: StopRequests) -> None:
    pending: dict[Future[Outcome], Status] = {}
    for status in overview.statuses:
        if is_done(Path(status.work.path), status.job.config()):
            status.end(Outcome("done"))
        else:
            pending[backend.submit(status.work)] = status
    if pending:
        overview.say(overview.summary())
    forwarded = 0
    while pending:
        finished, _ = wait(pending, timeout=LOOK_EVERY, return_when=FIRST_COMPLETED)
        overview.refresh()
        for future in finished:
            overview.ended(pending.pop(future), _outcome(future, asked=requests.count > 0))
        if requests.count > forwarded:
            forwarded += 1
            overview.say("stopping: runs write a checkpoint first; a second time stops at once")
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
        overview.say("the same command resumes from here")
        return STOPPED
    for status in overview.statuses:
        if status.state != "done":
            overview.say(f"{status.state}: {status.name}: {status.reason} (see {status.work.output})")
    return int(any(status.state != "done" for status in overview.statuses))
