"""Tables in the terminal."""

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.table import Table


def new_table(title: str, words: Iterable[str], numbers: Iterable[str]) -> Table:
    """Return an empty table that fits 80 columns."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    for name in words:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right")
    return table
