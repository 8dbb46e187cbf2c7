"""Training time: of the runs, and the paper's table where the bench has measured it."""

from collections.abc import Iterator, Mapping
from typing import Any

from pessimism.analysis.report.document import Block, Table
from pessimism.analysis.report.efficiency import over_minutes
from pessimism.analysis.report.series import seconds_per_thousand
from pessimism.analysis.report.study import Study
from pessimism.analysis.report.wording import DASH, mean_and_std


def training_time(study: Study) -> Iterator[Block]:
    """Yield return over minutes, the time of the runs, and the bench's table where there is one."""
    yield from over_minutes(study)
    rows = []
    for task in study.tasks:
        for label in study.labels:
            runs = study.of(label, task)
            times = [time for run in runs if (time := seconds_per_thousand(run))]
            if times:
                threads = sorted({str(run.manifest.get("threads", "?")) for run in runs})
                hours, seconds = zip(*times, strict=True)
                spread = mean_and_std(seconds, ".1f")
                rows.append((task, label, spread, f"{sum(hours):.2f}", str(len(times)), ", ".join(threads)))
    if rows:
        yield Table(
            "Time of these runs",
            ("task", "algorithm", "seconds per 1000 steps", "hours in all", "runs", "threads"),
            rows,
            "Steps of learning, with evaluation, bias meter, logs and checkpoints; "
            "mean and standard deviation over runs.",
            words=2,
        )
    for suite in study.suites:
        if suite.training_time:
            yield bench_table(suite.training_time)


def bench_table(bench: Mapping[str, Any]) -> Table:
    """Return the table of `pessimism bench --paper --json FILE`."""
    rows = [
        (
            str(row.get("name")),
            _number(row.get("seconds_per_1000_steps"), ".1f") if not row.get("missing") else str(row["missing"]),
            _number(row.get("ratio"), ".2f"),
            _number(row.get("paper_ratio"), ".2f"),
            _number(row.get("paper_seconds_per_1000_steps"), ".1f"),
        )
        for row in bench.get("rows") or ()
    ]
    setting = ", ".join(f"{name} {value}" for name, value in (bench.get("setting") or {}).items())
    return Table(
        "The paper's table of training times",
        ("algorithm", "seconds per 1000 steps", "ratio to GPL-SAC", "paper's ratio", "paper's seconds"),
        rows,
        f"Here: sampling and updates alone ({setting}). The paper's: whole runs on one RTX 3090; its REDQ is the "
        "original implementation, and its rows from pixels are seconds per 10,000 steps, with ratios to GPL-DrQ.",
    )


def _number(value: object, form: str) -> str:
    return f"{value:{form}}" if isinstance(value, int | float) else DASH
