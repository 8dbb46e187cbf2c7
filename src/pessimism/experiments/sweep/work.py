"""One run in a process of its own; if the process is killed, it is started again and resumes."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from pessimism import records
from pessimism.config.resolve import differences
from pessimism.config.schema import Config
from pessimism.errors import UserError
from pessimism.experiments.suites.suite import Job
from pessimism.processes import pinned
from pessimism.training.directory import RunDirectory, read_config

RETRIES = 3
LOOK_EVERY = 0.2  # seconds
LOCK_PATIENCE = 60.0  # seconds until a process on a node that was lost has released the directory
STOPPED = 130

State = Literal["done", "failed", "stopped"]
StopCount = Callable[[], int]
"""Returns how often the user asked to stop: once is with a checkpoint, twice is at once."""


@dataclass(frozen=True)
class Work:
    """What a worker needs to know, as plain values that can be sent to any node."""

    root: str  # directory of the suite
    path: str  # directory of the run
    arguments: tuple[str, ...]
    threads: int

    @property
    def output(self) -> Path:
        """File that the run prints into."""
        return Path(self.path) / records.OUTPUT


@dataclass(frozen=True)
class Outcome:
    """How it ended."""

    state: State
    reason: str = ""


class Backend(Protocol):
    """Where runs are executed."""

    def submit(self, work: Work) -> "Future[Outcome]":
        """Start a run as soon as there is room for it."""

    def stop(self) -> None:
        """Ask all runs to stop; a second time, at once."""

    def close(self) -> None:
        """Release everything; all runs have ended."""


def work_on(job: Job, root: Path, threads: int) -> Work:
    """Return the work that a job is in a suite's directory."""
    path = Path(os.path.normpath(root / job.directory))
    threads = int(job.settings.get("threads", threads))
    arguments = (*job.arguments(), "--threads", str(threads), "--out", str(path))
    return Work(str(root), str(path), arguments, threads)


def is_done(path: Path, config: Config) -> bool:
    """Tell whether a directory holds the finished run of a config."""
    try:
        done, there = RunDirectory(path).done, read_config(path)
    except (OSError, ValueError, UserError):
        return False
    if config.target_entropy is None:  # then the task decides it
        config = config.model_copy(update={"target_entropy": there.target_entropy})
    return done is not None and done["step"] >= config.steps and not differences(there, config)


def carry_out(work: Work, asked_to_stop: StopCount) -> Outcome:
    """Run until done, failed or asked to stop; a process that was killed is started again, a few times."""
    killer = ""
    for _ in range(1 + RETRIES):
        if asked_to_stop():
            return Outcome("stopped")
        wait_for_lock(Path(work.path), asked_to_stop)
        code = attend(work, asked_to_stop)
        if code == 0:
            return Outcome("done")
        if code == STOPPED or asked_to_stop():
            return Outcome("stopped", last_line(work.output))
        if code > 0:
            return Outcome("failed", last_line(work.output))
        killer = signal.Signals(-code).name
        with work.output.open("a") as output:
            output.write(f"sweep: the process was killed by {killer}\n")
    return Outcome("failed", f"killed by {killer} {1 + RETRIES} times; out of memory?")


def attend(work: Work, asked_to_stop: StopCount) -> int:
    """Run the process, forward every request to stop, and return its exit code."""
    command = [sys.executable, "-m", "pessimism.experiments.child", str(os.getpid()), *work.arguments]
    with work.output.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | pinned(work.threads),
            start_new_session=True,  # Ctrl-C in the terminal is for the sweep, which passes it on
        )
    forwarded = 0
    while (code := process.poll()) is None:
        if asked_to_stop() > forwarded:
            forwarded += 1
            process.terminate()
        time.sleep(LOOK_EVERY)
    return code


def wait_for_lock(path: Path, asked_to_stop: StopCount) -> None:
    """Wait until a process that is ending has released the directory."""
    path.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + LOCK_PATIENCE
    with (path / records.LOCK).open("a") as lock:
        while time.monotonic() < until and not asked_to_stop():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(LOOK_EVERY)


def last_line(path: Path) -> str:
    """Return the last line of a file that is not empty: a run ends with why."""
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1].removeprefix("pessimism: ") if lines else "it printed nothing"
