"""All data behind a page, as one table and one tree: `data.csv` and `data.json`. Their fields: docs/report.md."""

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import Any

from pessimism.analysis.reference import curves_of
from pessimism.analysis.report.charts import IntervalChart, LineChart
from pessimism.analysis.report.document import Document, Figure
from pessimism.analysis.report.results import published
from pessimism.analysis.report.study import Study
from pessimism.analysis.report.verdicts import as_data

COLUMNS = ("source", "algorithm", "task", "seed", "run", "metric", "step", "value")
METRICS = ("bias/", "train/beta", "eval/")


def as_csv(study: Study) -> str:
    """Return every number that the figures and scores come from, one a line."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(_runs(study))
    table.writerows(_published(study))
    return file.getvalue()


def _runs(study: Study) -> Iterator[tuple[object, ...]]:
    for run in study.readable:
        who = ("run", run.label, run.task, run.seed, run.name)
        for step, returns in zip(run.evaluations.steps, run.evaluations.returns, strict=True):
            for value in returns.reshape(-1).tolist():
                yield (*who, "evaluation episode", step, value)
        for metric, (steps, values) in run.series.items():
            if metric.startswith(METRICS) and metric != "eval/mean_reward":
                yield from ((*who, metric, step, value) for step, value in zip(steps, values, strict=True))
        steps, seconds = run.timing.get("time/elapsed", ([], []))
        yield from ((*who, "time/elapsed", step, value) for step, value in zip(steps, seconds, strict=True))


def _published(study: Study) -> Iterator[tuple[object, ...]]:
    """Yield the numbers of others on the page: the paper's cells and published curves."""
    for task in study.tasks:
        for label in study.labels:
            for milestone in study.milestones:
                if score := published(study, label, task, milestone):
                    who = ("paper", score.algorithm, score.task, "", score.table)
                    yield (*who, "return, mean", score.milestone, score.mean)
                    yield (*who, "return, std", score.milestone, score.std)
            for curve in curves_of(task, label) if study.of(label, task) else ():
                who = ("published", curve.algorithm, curve.env, "", curve.source)
                for step, mean, std in zip(curve.steps, curve.means, curve.stds, strict=True):
                    yield (*who, f"return, mean ({curve.unit})", step, mean)
                    yield (*who, f"return, std ({curve.unit})", step, std)


def as_json(study: Study, document: Document) -> str:
    """Return verdicts, runs, tables and figures as the page shows them."""
    values = {
        "title": document.title,
        "lead": document.lead,
        "verdicts": as_data(study),
        "milestones": study.milestones,
        "runs": [
            {
                "name": run.name,
                "algorithm": run.label,
                "task": run.task,
                "seed": run.seed,
                "state": run.state,
                "reached": run.reached,
                "problems": list(run.problems),
                "settings": run.settings,
            }
            for run in study.runs
        ],
        "tables": [
            {
                "title": table.title,
                "head": list(table.head),
                "rows": [list(row) for row in table.rows],
                "note": table.note,
            }
            for table in document.tables
        ],
        "figures": [_figure(figure) for figure in document.figures],
    }
    return json.dumps(_finite(values), indent=1) + "\n"


def _figure(figure: Figure) -> dict[str, Any]:
    chart = figure.chart
    values: dict[str, Any] = {
        "name": figure.name,
        "title": chart.title,
        "caption": figure.caption,
        "x": chart.x_label,
    }
    if isinstance(chart, IntervalChart):
        return values | {"rows": [{"label": label, **value._asdict()} for label, _, value in chart.rows]}
    assert isinstance(chart, LineChart)
    lines = [
        {
            "label": line.label,
            "published": line.published,
            "x": list(line.x),
            "y": list(line.y),
            "low": list(line.low),
            "high": list(line.high),
            "seeds": list(line.seeds),
            "single": {name: {"x": list(x), "y": list(y)} for name, (x, y) in line.single.items()},
        }
        for line in chart.lines
    ]
    marks = [{"label": mark.label, "x": mark.x, "y": mark.y, "spread": mark.spread} for mark in chart.marks]
    return values | {"y": chart.y_label, "lines": lines, "marks": marks}


def _finite(value: Any) -> Any:  # noqa: ANN401
    """Return values in which what is not a number is null: JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
