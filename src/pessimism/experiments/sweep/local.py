"""Runs on this machine: so many at a time, each a process with its share of the cores."""

from concurrent.futures import Future, ThreadPoolExecutor

from pessimism.experiments.sweep.work import Outcome, Work, carry_out


class Local:
    """Workers on this machine. A thread watches each process."""

    def __init__(self, workers: int) -> None:
        self.pool = ThreadPoolExecutor(workers)
        self.asked = 0

    def submit(self, work: Work) -> "Future[Outcome]":
        """Start a run as soon as a worker is free."""
        return self.pool.submit(carry_out, work, lambda: self.asked)

    def stop(self) -> None:
        """Ask all runs to stop; a second time, at once."""
        self.asked += 1

    def close(self) -> None:
        """Wait for the workers."""
        self.pool.shutdown()
