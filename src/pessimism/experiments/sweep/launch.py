"""Start a sweep where it is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pessimism.errors import UserError
from pessimism.experiments.suites.suite import Job, Suite, record
from pessimism.experiments.sweep.cluster import Cluster
from pessimism.experiments.sweep.conduct import conduct
from pessimism.experiments.sweep.local import Local
from pessimism.experiments.sweep.work import Backend
from pessimism.processes import choose_cores


@dataclass(frozen=True)
class Resources:
    """What a sweep may use."""

    workers: int | None = None  # runs at a time on this machine; all its cores by default
    threads: int | None = None  # of each run
    ray: str | None = None  # address of a cluster

    def check(self) -> None:
        """Refuse what makes no sense."""
        for name, value in (("workers", self.workers), ("threads", self.threads)):
            if value is not None and value < 1:
                raise UserError(f"--{name} must be at least 1; got {value}")
        if self.ray is not None and self.workers is not None:
            raise UserError("--workers is for this machine: with --ray, runs take the cores that the nodes offer")

    def here(self, runs: int) -> tuple[int, int]:
        """Return workers and threads of each on this machine: so many that no two runs share a core."""
        cores = len(choose_cores(None))
        workers = self.workers or max(1, min(runs, cores // (self.threads or 1)))
        return workers, self.threads or max(1, cores // workers)


def launch(suite: Suite, jobs: Sequence[Job], root: Path, resources: Resources, console: Console) -> int:
    """Carry out the runs and return the exit code."""
    resources.check()
    root = root.absolute()  # a run on another node has another working directory
    say_scale(suite, console)
    backend: Backend
    if resources.ray is not None:
        backend, threads = Cluster(resources.ray), resources.threads or 1
        where = (
            f"Ray at {resources.ray}: {backend.cores} cores; this directory must be on storage that all nodes share"
        )
    else:
        workers, threads = resources.here(len(jobs))
        backend = Local(workers)
        where = f"this machine: {workers} at a time"
    console.print(
        f"{len(jobs)} runs in {root}, {threads} thread{'s' * (threads > 1)} each, on {where}",
        highlight=False,
        soft_wrap=True,
    )
    return conduct(jobs, record(suite, jobs), root, backend=backend, threads=threads, console=console)


def say_scale(suite: Suite, console: Console) -> None:
    """Say how a suite differs from the paper's experiment."""
    if suite.scale:
        lines = ["smaller than the paper:", *suite.scale]
        console.print("\n  ".join(lines), highlight=False, markup=False, soft_wrap=True)
