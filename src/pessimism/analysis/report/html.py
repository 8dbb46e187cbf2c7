"""A document as one HTML page that needs nothing but itself."""

import re
from collections.abc import Callable
from html import escape
from importlib import metadata, resources
from string import Template

from pessimism.analysis.report.charts import LineChart, colour, inline, style
from pessimism.analysis.report.document import (
    Block,
    Bullets,
    Code,
    Document,
    Figure,
    Finding,
    Gallery,
    Section,
    Table,
    Text,
)

MOST_BULLETS = 10  # what goes beyond is folded away


def page(document: Document, script: str = "") -> str:
    """Return the page; `script` comes after its own."""
    return Template(_file("page.html")).substitute(
        {name: text if name != "title" else escape(text) for name, text in parts(document).items()},
        style=f"{style()}\n{_file('page.css')}",
        version=metadata.version("pessimism"),
        script=_file("page.js") + script,
    )


def parts(document: Document) -> dict[str, str]:
    """Return what changes when runs do, by the name of its place in the page; all but the title is HTML."""
    return {
        "title": document.title,
        "lead": marked_up(document.lead),
        "links": "".join(f'<a href="#{part.anchor}">{escape(part.title)}</a>' for part in document.sections),
        "legend": _legend(document) if document.figures else "",
        "sections": "\n".join(map(_section, document.sections)),
    }


def marked_up(text: str) -> str:
    """Return a text with `code` marked up."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _legend(document: Document) -> str:
    swatch = '<svg viewBox="0 0 24 10" aria-hidden="true"><path class="line" d="M1 5L23 5"/></svg>'
    chips = [
        f'<button type="button" class="{colour(index)}" data-toggle="{index}" aria-pressed="true">'
        f"{swatch}<span>{escape(label)}</span></button>"
        for index, label in enumerate(document.series)
    ]
    if any(isinstance(figure.chart, LineChart) and figure.chart.several_runs for figure in document.figures):
        chips.append('<button type="button" class="option" id="singles" aria-pressed="false">single runs</button>')
    return f'<div class="legend" role="toolbar" aria-label="algorithms shown">{"".join(chips)}</div>'


def _section(section: Section) -> str:
    blocks = "\n".join(RENDER[type(block)](block) for block in section.blocks)
    return f'<section id="{section.anchor}">\n<h2>{escape(section.title)}</h2>\n{blocks}\n</section>'


def _text(block: Text) -> str:
    return f'<p class="{block.kind}">{marked_up(block.text)}</p>'


def _finding(block: Finding) -> str:
    lines = "".join(f"<li>{marked_up(line)}</li>" for line in block.lines)
    return f'<div class="finding {block.verdict}"><p>{marked_up(block.text)}</p><ul>{lines}</ul></div>'


def _code(block: Code) -> str:
    return f"<pre><code>{escape(block.text)}</code></pre>"


def _bullets(block: Bullets) -> str:
    title = f"<h3>{escape(block.title)}</h3>" if block.title else ""
    items = [f"<li>{marked_up(item)}</li>" for item in block.items]
    lists = f"<ul>{''.join(items[:MOST_BULLETS])}</ul>"
    if rest := items[MOST_BULLETS:]:
        lists += f"<details><summary>{len(rest)} more</summary><ul>{''.join(rest)}</ul></details>"
    return f'<div class="{block.kind}">{title}{lists}</div>'


def _table(block: Table) -> str:
    kinds = ["word"] * block.words + ["number"] * (len(block.head) - block.words)
    head = "".join(f'<th class="{kind}">{escape(name)}</th>' for kind, name in zip(kinds, block.head, strict=True))
    rows, above = "", ""
    for row in block.rows:
        # A first word that repeats the line above is there for copying, but not seen.
        shown = ["word again" if block.words > 1 and row[0] == above else kinds[0], *kinds[1:]]
        cells = (f'<td class="{kind}">{escape(cell)}</td>' for kind, cell in zip(shown, row, strict=True))
        rows, above = f"{rows}<tr>{''.join(cells)}</tr>", row[0]
    note = f'<p class="note">{marked_up(block.note)}</p>' if block.note else ""
    cue = '<p class="cue">There are more columns: scroll the table sideways \u2192</p>'
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    table = f'<div class="scroll" tabindex="0">{body}</div>{cue}{note}'
    if block.folded:
        return f"<details><summary>{escape(block.title)} ({len(block.rows)})</summary>{table}</details>"
    return f"<h3>{escape(block.title)}</h3>{table}"


def _figure(figure: Figure) -> str:
    data = figure.chart.data()
    script = f'<script type="application/json">{data}</script>' if data else ""
    caption = f"<figcaption>{marked_up(figure.caption)}</figcaption>"
    title = f"<h4>{escape(figure.chart.title)}</h4>"
    return f'<figure id="{figure.name}">{title}{inline(figure.chart)}{caption}{script}</figure>'


def _gallery(block: Gallery) -> str:
    return f'<div class="gallery">{"".join(map(_figure, block.figures))}</div>'


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


RENDER: dict[type[Block], Callable[..., str]] = {
    Text: _text,
    Finding: _finding,
    Code: _code,
    Bullets: _bullets,
    Table: _table,
    Gallery: _gallery,
}
