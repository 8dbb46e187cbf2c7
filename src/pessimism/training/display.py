"""A run and its user: a live line in a terminal, plain lines elsewhere, and Ctrl-C."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pessimism.terminal import Terminal, repeated
from pessimism.training.loop import Callback
from pessimism.training.state import Progress as RunProgress

SHOWN = {
    "eval/mean_reward": ("return", "{:.1f}"),
    "train/beta": ("beta", "{:.3f}"),
    "bias/mean": ("bias", "{:+.2f}"),
    "time/fps": ("steps/s", "{:.1f}"),
}


class Display(Callback):
    """Shows return, beta, bias, speed and time left. When its output is closed, the run stops."""

    def __init__(self, console: Console, steps: int, step: int, first_update: int | None = None) -> None:
        """`first_update`: the step at which torch compiles for a while, if it does."""
        self.console, self.last_step, self.first_update = console, step, first_update
        self.compiling = ExitStack()
        self.live = console.is_terminal
        self.texts = {label: "-" for label, _ in SHOWN.values()}
        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not self.live,
            transient=True,
            speed_estimate_period=120,
        )
        self.task = self.progress.add_task("training", total=steps, completed=step, numbers="")
        self.progress.start()

    def on_step(self, progress: RunProgress) -> bool:
        """Move the bar, and announce the update that is compiled."""
        self.compiling.close()
        self.progress.update(self.task, completed=progress.step, description="training")
        if self.first_update is not None and progress.step + 1 >= self.first_update:
            self.first_update = None
            self.progress.update(self.task, description="compiling")
            if not self.live:
                self.compiling.enter_context(repeated(self.console, "torch compiles the first update"))
        return not (isinstance(self.console, Terminal) and self.console.closed)

    def on_learning(self, done: int, due: int) -> None:
        """Show the progress of an episode's updates; without a live display, at every tenth of them."""
        text = f"learning from {done} of {due} steps"
        self.progress.update(self.task, description=text)
        if not self.live and 10 * done // due > 10 * (done - 1) // due:
            self.console.print(text, highlight=False, soft_wrap=True)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show new numbers; without a live display, a finished evaluation also prints a line."""
        for name, (label, pattern) in SHOWN.items():
            if name in metrics:
                self.texts[label] = pattern.format(metrics[name])
        numbers = "  ".join(f"{label} {text}" for label, text in self.texts.items())
        self.progress.update(self.task, numbers=numbers)
        if not self.live and step != self.last_step and "eval/mean_reward" in metrics:
            self.last_step = step
            self.console.print(f"step {step}  {numbers}", highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self.compiling.close()
        self.progress.stop()


class Interruption(Callback):
    """Ends a run after the current step when the process is asked to stop."""

    asked = False

    def on_step(self, progress: RunProgress) -> bool:
        """Return False once a stop was requested."""
        return not self.asked


@contextmanager
def interruptible(console: Console) -> Iterator[Interruption]:
    """Turn the first Ctrl-C, or a scheduler's SIGTERM, into a clean stop; the second stops at once."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption  # signals belong to the main thread
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if interruption.asked:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        interruption.asked = True
        console.print("stopping after this step, with a checkpoint; a second time stops at once")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
