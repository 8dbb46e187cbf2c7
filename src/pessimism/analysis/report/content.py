"""From a study to a document: what a report shows, section by section."""

from collections import Counter
from collections.abc import Iterator, Sequence

from pessimism.analysis.report import results
from pessimism.analysis.report.deviations import deviations, settings
from pessimism.analysis.report.document import Block, Bullets, Code, Document, Section, Table, Text, counted
from pessimism.analysis.report.figures import bias_and_beta, learning_curves
from pessimism.analysis.report.series import seconds_per_thousand
from pessimism.analysis.report.study import Study, Suite

HOW_TO_START = """pessimism train gpl-sac --env Hopper-v4 --seed 0
pessimism reproduce --list
pessimism report runs"""


def document(study: Study) -> Document:
    """Return the report of a study."""
    title = " and ".join(suite.title for suite in study.suites) or "Report of runs"
    if not study.runs and not any(suite.training_time for suite in study.suites):
        return Document(title, "There are no runs here.", [_empty(study)])
    sections = [
        Section("Overview", list(overview(study))),
        Section("Learning curves", list(learning_curves(study))),
        Section("Returns", list(results.returns(study))),
        Section("Aggregate statistics", list(results.aggregates(study))),
        Section("Bias and beta", list(bias_and_beta(study))),
        Section("Training time", list(training_time(study))),
        Section("Settings", list(settings(study))),
        Section("Deviations", list(deviations(study))),
        Section("How the numbers are made", list(results.method(study))),
    ]
    return Document(title, lead(study), [section for section in sections if section.blocks], study.labels)


def lead(study: Study) -> str:
    """Return the first sentence: how much there is, and how much of it is whole."""
    if not study.runs:
        return "No runs, but measured times."
    states = Counter(run.state for run in study.runs)
    parts = [f"{count} {state}" for state, count in states.items()]
    return (
        f"{counted(len(study.runs), 'run')} of {counted(len(study.labels), 'algorithm')} "
        f"on {counted(len(study.tasks), 'task')}: {', '.join(parts)}."
    )


def _empty(study: Study) -> Section:
    looked = ", ".join(f"`{directory}`" for directory in study.directories)
    problems = [problem for suite in study.suites for problem in suite.problems]
    warnings = [Bullets(problems, "Broken", "warning")] if problems else []
    text = f"Looked below {looked} and found no directory of a run. To make some:"
    return Section("Overview", [Text(text), Code(HOW_TO_START), *warnings])


def overview(study: Study) -> Iterator[Block]:
    """Yield what was planned, what is there, and what is wrong with it."""
    for suite in study.suites:
        yield from _suite(suite)
    rows = [
        (task, label, *_standing(study, label, task))
        for task in study.tasks
        for label in study.labels
        if any((run.label, run.task) == (label, task) for run in study.runs)
    ]
    head = ("task", "algorithm", "done", "unfinished", "broken", "missing", "seeds")
    if rows:
        yield Table("Runs by task and algorithm", head, rows, words=2)
    wrong = [f"`{run.name}`: {problem}" for run in study.runs for problem in run.problems]
    wrong += [problem for suite in study.suites for problem in suite.problems]
    wrong += _missing_seeds(study)
    if wrong:
        yield Bullets(wrong, "Incomplete or broken", "warning")
    every = [
        (run.name, run.label, run.task, _or_dash(run.seed), run.state, f"{run.reached:,}") for run in study.runs
    ]
    if every:
        yield Table("All runs", ("run", "algorithm", "task", "seed", "state", "steps"), every, words=5, folded=True)


def _suite(suite: Suite) -> Iterator[Block]:
    if suite.claim:
        where = f"{suite.paper} of the paper" if suite.paper else "The paper"
        yield Text(f"{where} claims: {suite.claim}")
    if suite.scale:
        yield Bullets(suite.scale, "Smaller than the paper's experiment", "warning")


def _standing(study: Study, label: str, task: str) -> Iterator[str]:
    runs = [run for run in study.runs if (run.label, run.task) == (label, task)]
    states = Counter(run.state for run in runs)
    for state in ("done", "unfinished", "broken", "missing"):
        yield str(states[state] or "\u2013")
    yield seed_list([run.seed for run in runs if run.readable])


def _missing_seeds(study: Study) -> Iterator[str]:
    """Yield the seeds that one series lacks on a task and another has."""
    every = {run.seed for run in study.runs if run.readable}
    for task in study.tasks:
        for label in study.labels:
            known = {run.seed for run in study.runs if (run.label, run.task) == (label, task)}
            if known and (lacking := every - known):
                yield f"{label} on {task}: no run of seed {seed_list(list(lacking))}, which others have"


def seed_list(seeds: Sequence[int | None]) -> str:
    """Return seeds as a short text: 0-4, 7."""
    numbers = sorted(seed for seed in seeds if seed is not None)
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    texts = [str(span[0]) if len(span) == 1 else f"{span[0]}\u2013{span[-1]}" for span in spans]
    return ", ".join(texts) or "\u2013"


def training_time(study: Study) -> Iterator[Block]:
    """Yield what the clock said of the runs, and the bench's table where there is one."""
    rows = []
    for task in study.tasks:
        for label in study.labels:
            runs = study.of(label, task)
            times = [time for run in runs if (time := seconds_per_thousand(run))]
            if times:
                threads = sorted({str(run.manifest.get("threads", "?")) for run in runs})
                hours, seconds = zip(*times, strict=True)
                spread = results.mean_and_std(seconds, ".1f")
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
            yield results.bench_table(suite.training_time)


def _or_dash(value: object) -> str:
    return "\u2013" if value is None else str(value)
