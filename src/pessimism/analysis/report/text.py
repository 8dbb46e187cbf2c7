"""A document as Markdown, and its tables as LaTeX."""

import re
from collections.abc import Iterator, Sequence

from pessimism.analysis.report.document import Block, Bullets, Code, Document, Finding, Gallery, Table, Text

FIGURES = "figures"
LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # a row that begins with a bracket would be an argument of the line break before it
    "]": "{]}",
    "\u00b1": r"$\pm$",
    "\u2013": "--",
    "\u2212": "$-$",
    "\u2020": r"$\dagger$",
}


def markdown(document: Document) -> str:
    """Return the document as Markdown; its figures are files beside it."""
    parts = [f"# {_plain(document.title)}", _plain(document.lead)]
    for section in document.sections:
        parts.append(f"## {section.title}")
        parts += [text for block in section.blocks for text in _block(block)]
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Text):
        yield _plain(block.text)
    elif isinstance(block, Finding):
        yield f"**{_plain(block.text)}**"
        yield "\n".join(f"- {_plain(line)}" for line in block.lines)
    elif isinstance(block, Code):
        yield f"```\n{block.text}\n```"
    elif isinstance(block, Bullets):
        if block.title:
            yield f"**{_plain(block.title)}**"
        yield "\n".join(f"- {_plain(item)}" for item in block.items)
    elif isinstance(block, Gallery):
        for figure in block.figures:
            yield f"![{_plain(figure.chart.title)}]({FIGURES}/{figure.name}.svg)\n\n{_plain(figure.caption)}"
    else:
        yield f"**{_plain(block.title)}**"
        numbers = len(block.head) - block.words
        lines = [block.head, ["---"] * block.words + ["---:"] * numbers, *block.rows]
        yield "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)
        if block.note:
            yield _plain(block.note)


def _plain(text: str) -> str:
    """Return a text in which nothing but `code` is markup."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\*_<>\[\]])", r"\\\1", part) for part in parts)


def _cell(text: str) -> str:
    return text if re.fullmatch(r"-+:?", text) else _plain(text).replace("|", "\\|")


def latex(document: Document) -> str:
    """Return the document's tables as LaTeX."""
    tables = [
        _latex_table(block) for section in document.sections for block in section.blocks if isinstance(block, Table)
    ]
    head = "% Needs \\usepackage{booktabs, longtable}"
    return "\n\n".join([head, f"% {' '.join(document.title.split())}", *tables]) + "\n"


def _latex_table(table: Table) -> str:
    columns = "l" * table.words + "r" * (len(table.head) - table.words)
    rows = "\n".join(_latex_row(row) for row in table.rows)
    head = rf"\toprule{chr(10)}{_latex_row(table.head)}{chr(10)}\midrule"
    caption = escaped(f"{table.title}. {table.note}".replace("`", ""))
    if table.folded:
        return (
            f"\\begin{{longtable}}{{{columns}}}\n\\caption{{{caption}}}\\\\\n{head}\n\\endhead\n{rows}\n"
            "\\bottomrule\n\\end{longtable}"
        )
    return (
        f"\\begin{{table}}\n\\centering\n\\caption{{{caption}}}\n\\begin{{tabular}}{{{columns}}}\n{head}\n{rows}\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}"
    )


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(escaped, cells)) + r" \\"


def escaped(text: str) -> str:
    """Return a text in which nothing is a command of LaTeX."""
    return "".join(LATEX.get(letter, letter) for letter in text)
