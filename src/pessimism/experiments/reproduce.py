"""An experiment from its plan to its report."""

from pathlib import Path

from rich.console import Console

from pessimism.experiments.suites.paper import TRAINING_TIME
from pessimism.experiments.suites.suite import Job, Suite, record
from pessimism.experiments.sweep.conduct import write_record
from pessimism.experiments.sweep.launch import Resources, launch
from pessimism.experiments.sweep.plan import plan
from pessimism.experiments.sweep.work import STOPPED

TIMES = "training_time.json"
BENCH_SECONDS = 240.0  # of blocks; starting and compiling thirteen settings comes on top


def reproduce(
    suite: Suite,
    jobs: list[Job],
    root: Path,
    resources: Resources,
    console: Console,
    *,
    planned: bool,
    reported: bool,
) -> int:
    """Plan an experiment, or carry it out and write its report.

    Returns 0 if all runs are there, 1 if some failed, 130 if it was stopped.
    """
    if suite.name == TRAINING_TIME:
        code = measure_times(suite, root, resources, console, planned=planned)
    elif planned:
        return plan(suite, jobs, root, resources, console)
    else:
        code = launch(suite, jobs, root, resources, console)
    if reported and not planned and code != STOPPED:
        lines, page = report(root)
        console.print("\n".join([*lines, f"report: {page}"]), highlight=False, markup=False, soft_wrap=True)
    return code


def measure_times(suite: Suite, root: Path, resources: Resources, console: Console, *, planned: bool) -> int:
    """Measure the table of training times, or say how long that takes."""
    from pessimism.bench import run_paper

    seconds = BENCH_SECONDS * suite.factor
    if planned:
        minutes = f"{seconds / 60:.1f} minutes of measuring, and some for starting and compiling"
        console.print(f"{suite.name}: no runs; {minutes}", highlight=False, soft_wrap=True)
        return 0
    write_record(root, record(suite, []))
    run_paper(seconds=seconds, threads=resources.threads, json_path=root / TIMES, console=console)
    return 0


def report(root: Path) -> tuple[list[str], Path]:
    """Write the report of a suite's directory; return its verdicts as lines, and where it is."""
    from pessimism.analysis.report import write_and_sum_up

    return write_and_sum_up([root], root / "report")
