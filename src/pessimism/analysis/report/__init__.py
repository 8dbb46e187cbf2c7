"""`pessimism report`: runs in, one page out, with the same as Markdown, LaTeX tables and SVG figures."""

from collections.abc import Sequence
from pathlib import Path

from pessimism.analysis.report.charts import standalone
from pessimism.analysis.report.content import document
from pessimism.analysis.report.html import page
from pessimism.analysis.report.study import read_study
from pessimism.analysis.report.text import FIGURES, latex, markdown
from pessimism.errors import UserError

PAGE = "report.html"


def write_report(directories: Sequence[Path], out: Path) -> Path:
    """Write the report of all runs below the directories into `out`, and return its page."""
    report = document(read_study(directories))
    files = {PAGE: page(report), "report.md": markdown(report), "tables.tex": latex(report)}
    files |= {f"{FIGURES}/{figure.name}.svg": standalone(figure.chart) for figure in report.figures}
    try:
        for name, text in files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}; give another --out") from None
    return out / PAGE
