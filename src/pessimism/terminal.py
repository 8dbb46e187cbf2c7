"""The terminal: tables, and what is shown while something takes long. Loads nothing heavy."""

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

SECONDS = 5.0  # between two lines
BROKEN_PIPE = 141  # as a shell reports SIGPIPE


@contextmanager
def announced(console: Console, what: str) -> Iterator[None]:
    """Show `what` is being done, and for how long, while the block runs."""
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        with repeated(console, what):
            yield


@contextmanager
def repeated(console: Console, what: str) -> Iterator[None]:
    """Print a line every few seconds while the block runs; none if it is quick."""
    started, ended = time.monotonic(), threading.Event()

    def lines() -> None:
        while not ended.wait(SECONDS):
            seconds = time.monotonic() - started
            console.print(f"{what} ({seconds:.0f} s)", highlight=False, soft_wrap=True)

    thread = threading.Thread(target=lines, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Terminal(Console):
    """A console on standard output that notices when its reader closes the pipe (`pessimism train | head`)."""

    closed = False  # of the class: a process has one standard output

    def on_broken_pipe(self) -> None:
        """Print nothing more; rich would end the process."""
        Terminal.closed = self.quiet = True
        discard_output()


def discard_output() -> None:
    """Called when the reader has closed the pipe; what is still printed, also at exit, is lost."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def new_table(title: str, words: Iterable[str], numbers: Iterable[str]) -> Table:
    """Return an empty table that fits 80 columns."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    for name in words:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right")
    return table
