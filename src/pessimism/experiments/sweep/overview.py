"""What the user sees of a sweep: a live table in a terminal, a line for each event elsewhere."""

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pessimism import records
from pessimism.analysis.report.wording import duration
from pessimism.experiments.suites.suite import Job
from pessimism.experiments.sweep.work import Outcome, Work

TAIL = 16_384  # bytes of a log in which its newest numbers are
SURE_AFTER = 20.0  # seconds of learning before a speed is worth telling
PULSE = 300.0  # seconds between lines where nothing happens


@dataclass
class Status:
    """A run as the sweep sees it: from its directory, wherever it is carried out."""

    job: Job
    work: Work
    steps: int
    random_steps: int = 0  # first steps, which are quick; after them the update is compiled
    state: str = "waiting"
    reason: str = ""
    step: int = 0
    score: float | None = None

    def __post_init__(self) -> None:
        self.printed = self._output_size()  # by an earlier sweep
        self.step, self.score = progress(Path(self.work.path) / records.METRICS)
        self.learning_since: tuple[float, int] | None = (
            None  # time and step of the first line after the random steps
        )
        self.seen = 0.0  # when the newest step was seen

    @property
    def name(self) -> str:
        """How it is called in lines."""
        return f"{self.job.label} on {self.job.env}, seed {self.job.seed}"

    def _output_size(self) -> int:
        return self.work.output.stat().st_size if self.work.output.exists() else 0

    def look(self) -> bool:
        """Read where the run is; tell whether it has just started."""
        before = self.state
        if self.state == "waiting" and self._output_size() > self.printed:
            self.state = "running"
        if self.state == "running":
            step, self.score = progress(Path(self.work.path) / records.METRICS)
            self._clock(step)
            self.step = step
        return self.state != before

    def _clock(self, step: int) -> None:
        """Take the time when a step is seen, from the first line on that the run writes while it learns."""
        now = time.monotonic()
        if step > max(self.step, self.random_steps):
            self.learning_since = self.learning_since or (now, step)
            self.seen = now

    @property
    def speed(self) -> float | None:
        """Steps of learning per second, compilation not counted; None until there is enough to tell."""
        if self.learning_since is None or self.seen - self.learning_since[0] < SURE_AFTER:
            return None
        return (self.step - self.learning_since[1]) / (self.seen - self.learning_since[0])

    def end(self, outcome: Outcome) -> None:
        """Take note of how the run ended."""
        self.state, self.reason = outcome.state, outcome.reason
        logged, self.score = progress(Path(self.work.path) / records.METRICS)
        self.step = self.steps if self.state == "done" else logged  # the last line may be of an earlier step


def progress(metrics: Path) -> tuple[int, float | None]:
    """Return the last step that a log of metrics tells of, and the last evaluation in its end."""
    if not metrics.exists():
        return 0, None
    with metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - TAIL), os.SEEK_SET)
        lines = file.read().split(b"\n")[:-1]  # the last is empty or half written
    step, score = 0, None
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut by where the tail begins
        step = step or int(entry["step"])
        if "eval/mean_reward" in entry:
            return step, float(entry["eval/mean_reward"])
    return step, score


class Overview:
    """All runs of a sweep."""

    def __init__(self, statuses: Sequence[Status], console: Console) -> None:
        self.statuses, self.console = statuses, console
        self.live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self.spoken = time.monotonic()

    def __enter__(self) -> "Overview":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.stop()

    def say(self, text: str) -> None:
        """Print a line, above the live table if there is one."""
        self.spoken = time.monotonic()
        self.console.print(Text(text), soft_wrap=True)

    def ended(self, status: Status, outcome: Outcome) -> None:
        """Tell of a run that has ended."""
        status.end(outcome)
        finished = sum(other.state in ("done", "failed") for other in self.statuses)
        words = [f"[{finished}/{len(self.statuses)}] {status.state}: {status.name}, {status.step} steps"]
        if status.score is not None:
            words.append(f"return {status.score:.1f}")
        if status.state == "failed":
            words = [f"[{finished}/{len(self.statuses)}] failed: {status.name}: {status.reason}"]
        self.say(", ".join(words))

    def refresh(self) -> None:
        """Look at all directories and show what has changed."""
        for status in self.statuses:
            if status.look() and self.live is None:
                self.say(f"started: {status.name}")
        if self.live is not None:
            self.live.update(self.table(), refresh=True)
        elif time.monotonic() - self.spoken > PULSE:
            self.say(self.summary())

    def table(self) -> Table:
        """Return the runs that are under way or have failed, and how many others there are."""
        table = Table("run", "state", "steps", "return", box=SIMPLE_HEAD, title=self.summary(), title_style="bold")
        for status in self.statuses:
            if status.state not in ("running", "failed"):
                continue
            score = "" if status.score is None else f"{status.score:.1f}"
            steps = f"{status.step} / {status.steps}"
            table.add_row(Text(status.name), Text(status.reason or status.state), steps, score)
        return table

    def summary(self) -> str:
        """Return how many runs are in which state, and how long it will take."""
        counts = Counter(status.state for status in self.statuses)
        words = [f"{counts[state]} {state}" for state in ("done", "running", "waiting", "stopped", "failed")]
        shown = ", ".join(word for word in words if not word.startswith("0 "))
        return f"{len(self.statuses)} runs: {shown}{self._time_left()}"

    def _time_left(self) -> str:
        open_runs = [status for status in self.statuses if status.state in ("running", "waiting")]
        speeds = [status.speed for status in self.statuses if status.speed]
        running = sum(status.state == "running" for status in self.statuses)
        if not speeds or not running or not open_runs:
            return ""
        left = sum(status.steps - max(status.step, status.random_steps) for status in open_runs)
        seconds = max(left, 0) / (sum(speeds) / len(speeds)) / running
        return f"; about {duration(seconds)} left at the speed so far"
