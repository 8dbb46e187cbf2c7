"""Contestants measured in turns: each lives in a worker process of its own, and one works at a time.

Whatever disturbs the machine for a while then disturbs all of them alike.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, NamedTuple

from rich.console import Console
from rich.progress import track

from pessimism.bench import worker
from pessimism.bench.report import Measurement
from pessimism.bench.worker import Block, Ready, Setting
from pessimism.errors import UserError
from pessimism.processes import pinned

BUSY = 0.5  # load from which on a comparison is unfair
ANEW = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}  # compile as if for the first time


class Entry(NamedTuple):
    """A contestant to start, and the interpreter that has its libraries."""

    label: str  # unique in a run
    setting: Setting
    python: Path = Path(sys.executable)
    note: str = ""
    cached: bool = False  # compiled graphs may come from torch's cache: the time of warm-up then says little


class Worker:
    """A contestant in its process, warmed up and waiting."""

    def __init__(self, entry: Entry, process: "subprocess.Popen[str]", errors: IO[str]) -> None:
        self.entry, self.process, self.errors = entry, process, errors
        self.ready: Ready = json.loads(self._receive())
        self.samples: list[float] = []  # seconds per step
        self.peak_mb = 0.0

    def run(self, steps: int) -> None:
        """Let the contestant run one block, and keep what it took."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # a process that has stopped says why when it is read from
            print(json.dumps({"steps": steps}), file=self.process.stdin, flush=True)
        block: Block = json.loads(self._receive())
        self.samples.append(block["seconds"] / steps)
        self.peak_mb = block["peak_mb"]

    def measurement(self) -> Measurement:
        """Return everything that was measured so far."""
        setting = self.entry.setting
        return Measurement(
            name=setting.contestant,
            critic=setting.critic,
            samples=tuple(self.samples),
            setup_seconds=self.ready["setup_seconds"],
            warmup_seconds=self.ready["warmup_seconds"],
            peak_mb=self.peak_mb,
            versions=self.ready["versions"],
            note=self.entry.note,
        )

    def _receive(self) -> str:
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            return line
        self.errors.seek(0)
        last = (self.errors.read().strip().splitlines() or ["without a message"])[-1]
        raise UserError(f"{self.entry.label} stopped: {last}")


@contextmanager
def started(entry: Entry) -> Iterator[Worker]:
    """Start a contestant's process, and end it with the context."""
    command = [str(entry.python), "-P", worker.__file__, json.dumps(asdict(entry.setting))]
    environment = os.environ | pinned(len(entry.setting.cores)) | (ANEW if not entry.cached else {})
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process,
    ):
        try:
            yield Worker(entry, process, errors)
        finally:
            finish(process)


def finish(process: "subprocess.Popen[str]") -> None:
    """End a worker: it exits when its input ends, unless it hangs."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()


def load() -> float:
    """Return how many other processes want the processor, on average over the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def measure(
    entries: Sequence[Entry], *, rounds: int, seconds: float, console: Console
) -> tuple[dict[str, Measurement], dict[str, str]]:
    """Measure all entries in turns. Returns measurements by label, and why others were left out."""
    if load() > BUSY:
        console.print(f"this machine is busy (load {load():.1f}), and OpenMP suffers from that more than JAX")
    left_out: dict[str, str] = {}
    with ExitStack() as stack:
        workers: list[Worker] = []
        for entry in entries:
            with console.status(f"warming up {entry.label}"):
                try:
                    workers.append(stack.enter_context(started(entry)))
                except UserError as error:
                    left_out[entry.label] = str(error)
        take_turns(workers, rounds, seconds, console)
        return {contestant.entry.label: contestant.measurement() for contestant in workers}, left_out


def take_turns(workers: Sequence[Worker], rounds: int, seconds: float, console: Console) -> None:
    """Let each worker run one block per round, in an order that rotates.

    A block takes about the same share of `seconds` for all; one step, where that is longer.
    """
    share = seconds / max(1, rounds * len(workers))
    order = deque(workers)
    for _ in track(range(rounds), "measuring in turns", console=console, transient=True):
        for contestant in order:
            contestant.run(max(1, round(share / contestant.ready["step_seconds"])))
        order.rotate(-1)
