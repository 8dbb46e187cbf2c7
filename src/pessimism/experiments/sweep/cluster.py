"""Runs on a Ray cluster. Ray places and retries them; what makes a retry cheap is the run's own checkpoint.

The directory of the suite must be on storage that all nodes share: a run resumes where its files are.
"""

import logging
import os
import signal
import socket
from concurrent.futures import Future
from pathlib import Path
from types import FrameType
from typing import Any

from pessimism import records
from pessimism.errors import UserError
from pessimism.experiments.sweep.work import RETRIES, Outcome, Work, carry_out
from pessimism.extras import missing


class Cluster:
    """The nodes of a Ray cluster; `local` is one of this process's own, on this machine."""

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError:
            raise missing("Ray", "cluster") from None
        self.ray: Any = ray
        check_answers(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"no Ray cluster at {address}: {reason[:300]}") from None
        self.task = ray.remote(max_retries=RETRIES, max_calls=1)(carry_out_here)
        self.references: dict[Future[Outcome], Any] = {}
        self.asked = 0

    @property
    def cores(self) -> int:
        """Cores of all nodes together."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def submit(self, work: Work) -> "Future[Outcome]":
        """Start a run as soon as a node has its cores free."""
        reference = self.task.options(num_cpus=work.threads).remote(work)
        future: Future[Outcome] = reference.future()
        self.references[future] = reference
        return future

    def stop(self) -> None:
        """Ask all runs to stop; a second time, at once."""
        self.asked += 1
        for future, reference in self.references.items():
            if not future.done():
                self.ray.cancel(reference, force=self.asked > 1)

    def close(self) -> None:
        """Leave the cluster."""
        self.ray.shutdown()


def check_answers(address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would try for many minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return  # auto, local, or a client's address
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise UserError(f"no Ray cluster at {address}: {error.strerror or error}; see ray start --head") from None


def carry_out_here(work: Work) -> Outcome:
    """Execute a run on this node. Ray asks it to stop with an interrupt."""
    if not (Path(work.root) / records.SUITE).exists():
        node = os.uname().nodename
        return Outcome("failed", f"node {node} does not see {work.root}: give an --out that all nodes share")
    asked = 0

    def count(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1

    signal.signal(signal.SIGINT, count)
    return carry_out(work, lambda: asked)
