"""What a report says, apart from how it is written down: sections of text, tables and figures.

Texts are plain but for `code` between backticks. Cells and texts are escaped by whoever writes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pessimism.analysis.report.charts import Chart


@dataclass(frozen=True)
class Text:
    """A paragraph; a warning is set off."""

    text: str
    kind: Literal["plain", "note", "warning"] = "plain"


@dataclass(frozen=True)
class Finding:
    """A verdict on a claim, and a line for each check behind it."""

    verdict: Literal["supported", "contradicted", "undecided"]
    text: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Code:
    """Commands to copy."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """Short lines, folded away when there are many."""

    items: Sequence[str]
    title: str = ""
    kind: Literal["plain", "warning"] = "plain"


@dataclass(frozen=True)
class Table:
    """Rows of text. The first `words` columns are words, the others numbers."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    words: int = 1
    folded: bool = False


@dataclass(frozen=True)
class Figure:
    """A chart with the name of its file."""

    name: str
    caption: str
    chart: Chart


@dataclass(frozen=True)
class Gallery:
    """Figures beside each other."""

    figures: Sequence[Figure]


Block = Text | Finding | Code | Bullets | Table | Gallery


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """Return its name in links."""
        return self.title.lower().replace(" ", "-")


@dataclass(frozen=True)
class Document:
    """A report."""

    title: str
    lead: str
    sections: Sequence[Section]
    series: Sequence[str] = field(default_factory=tuple)  # labels, in the order of their colours

    @property
    def tables(self) -> list[Table]:
        """All tables."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Table)]

    @property
    def figures(self) -> list[Figure]:
        """All figures."""
        return [
            figure
            for section in self.sections
            for block in section.blocks
            if isinstance(block, Gallery)
            for figure in block.figures
        ]
