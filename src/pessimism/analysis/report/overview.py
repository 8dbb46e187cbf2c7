"""What was planned, what is there, and what is wrong with it."""

from collections import Counter
from collections.abc import Iterator

from pessimism.analysis.report.document import Block, Bullets, Table, Text
from pessimism.analysis.report.study import Study, Suite
from pessimism.analysis.report.wording import DASH, counted, or_dash, seed_list

STATES = ("done", "unfinished", "broken", "missing")


def lead(study: Study) -> str:
    """Return the first sentence: how many runs there are, and in which state."""
    if not study.runs:
        return "No runs, but measured times."
    states = Counter(run.state for run in study.runs)
    parts = [f"{count} {state}" for state, count in states.items()]
    return (
        f"{counted(len(study.runs), 'run')} of {counted(len(study.labels), 'algorithm')} "
        f"on {counted(len(study.tasks), 'task')}: {', '.join(parts)}."
    )


def overview(study: Study) -> Iterator[Block]:
    """Yield claims, the state of all runs, and everything that is incomplete or broken."""
    for suite in study.suites:
        yield from _suite(suite)
    rows = [
        (task, label, *_standing(study, label, task))
        for task in study.tasks
        for label in study.labels
        if any((run.label, run.task) == (label, task) for run in study.runs)
    ]
    if rows:
        yield Table("Runs by task and algorithm", ("task", "algorithm", *STATES, "seeds"), rows, words=2)
    wrong = [f"`{run.name}`: {problem}" for run in study.runs for problem in run.problems]
    wrong += [problem for suite in study.suites for problem in suite.problems]
    wrong += _missing_seeds(study)
    if wrong:
        yield Bullets(wrong, "Incomplete or broken", "warning")
    every = [
        (run.name, run.label, run.task, or_dash(run.seed), run.state, f"{run.reached:,}") for run in study.runs
    ]
    if every:
        yield Table("All runs", ("run", "algorithm", "task", "seed", "state", "steps"), every, words=5, folded=True)


def _suite(suite: Suite) -> Iterator[Block]:
    if suite.claim and not suite.checks:  # else it is in the verdict
        who = f"{suite.paper} of the paper claims" if suite.paper else "Claim to be tested"
        yield Text(f"{who}: {suite.claim}")
    if suite.scale:
        yield Bullets(suite.scale, "Smaller than the full experiment", "warning")


def _standing(study: Study, label: str, task: str) -> Iterator[str]:
    runs = [run for run in study.runs if (run.label, run.task) == (label, task)]
    states: Counter[str] = Counter(run.state for run in runs)
    for state in STATES:
        yield str(states[state] or DASH)
    yield seed_list([run.seed for run in runs if run.readable])


def _missing_seeds(study: Study) -> Iterator[str]:
    """Yield the seeds that one series lacks on a task and another has."""
    every = {run.seed for run in study.runs if run.readable}
    for task in study.tasks:
        for label in study.labels:
            known = {run.seed for run in study.runs if (run.label, run.task) == (label, task)}
            if known and (lacking := every - known):
                yield f"{label} on {task}: no run of seed {seed_list(list(lacking))}, which others have"
