"""`pessimism report`: runs in, one page out; the same as Markdown, tables, figures and data."""

from collections.abc import Sequence
from pathlib import Path

from pessimism.analysis.report import drawn
from pessimism.analysis.report.charts import standalone
from pessimism.analysis.report.content import document
from pessimism.analysis.report.data import as_csv, as_json
from pessimism.analysis.report.html import page
from pessimism.analysis.report.plain import plain, text_of
from pessimism.analysis.report.study import Study, read_study
from pessimism.analysis.report.text import FIGURES, latex, markdown
from pessimism.analysis.report.verdicts import summary
from pessimism.errors import UserError

PAGE = "report.html"


def write_report(directories: Sequence[Path], out: Path) -> Path:
    """Write the report of all runs below the directories into `out`, and return its page."""
    return write(read_study(directories), out)


def write_and_sum_up(directories: Sequence[Path], out: Path) -> tuple[list[str], Path]:
    """Write the report; return its verdicts as lines for a terminal, and its page."""
    study = read_study(directories)
    return summary(study), write(study, out)


def write(study: Study, out: Path) -> Path:
    """Write the report of a study into `out`, and return its page.

    Figures are SVG and, where Matplotlib is installed, PDF and PNG.
    """
    report = document(study)
    files = {PAGE: page(report), "report.md": markdown(report), "tables.tex": latex(report)}
    files |= {"data.csv": as_csv(study), "data.json": as_json(study, report)}
    drawings = {figure.name: plain(standalone(figure.chart)) for figure in report.figures}
    files |= {f"{FIGURES}/{name}.svg": text_of(drawing) for name, drawing in drawings.items()}
    try:
        for name, text in files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
        if drawn.available():
            for name, drawing in drawings.items():
                drawn.draw(drawing, *(out / FIGURES / f"{name}.{kind}" for kind in ("pdf", "png")))
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}; give another --out") from None
    return out / PAGE
