"""From a study to a document: what a report shows, section by section."""

from collections import Counter
from collections.abc import Iterator, Sequence

from pessimism.analysis.report import results
from pessimism.analysis.report.charts import Line, LineChart, Mark
from pessimism.analysis.report.document import (
    Block,
    Bullets,
    Code,
    Document,
    Figure,
    Gallery,
    Section,
    Table,
    Text,
)
from pessimism.analysis.report.runs import Settings, changes
from pessimism.analysis.report.series import curve, seconds_per_thousand
from pessimism.analysis.report.study import Study, Suite
from pessimism.presets import PRESETS
from pessimism.reference import PublishedCurve, curves_of, paper_score, paper_scores, task_key

STEPS = "environment steps"
HOW_TO_START = """pessimism train gpl-sac --env Hopper-v4 --seed 0
pessimism reproduce --list
pessimism report runs"""


def document(study: Study) -> Document:
    """Return the report of a study."""
    title = " and ".join(suite.title for suite in study.suites) or "Report of runs"
    if not study.runs:
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
    states = Counter(run.state for run in study.runs)
    parts = [f"{count} {state}" for state, count in states.items()]
    return (
        f"{_count(len(study.runs), 'run')} of {_count(len(study.labels), 'algorithm')} "
        f"on {_count(len(study.tasks), 'task')}: {', '.join(parts)}."
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
    yield Table("Runs by task and algorithm", head, rows, words=2)
    wrong = [f"`{run.name}`: {problem}" for run in study.runs for problem in run.problems]
    wrong += [problem for suite in study.suites for problem in suite.problems]
    wrong += _missing_seeds(study)
    if wrong:
        yield Bullets(wrong, "Incomplete or broken", "warning")
    every = [
        (run.name, run.label, run.task, _or_dash(run.seed), run.state, f"{run.reached:,}") for run in study.runs
    ]
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


def learning_curves(study: Study) -> Iterator[Block]:
    """Yield one figure per task: return over steps, with published curves of the same algorithm and task."""
    figures: list[Figure] = []
    notes: list[str] = []
    published: list[tuple[str, PublishedCurve]] = []
    for task in study.tasks:
        lines = list(_lines(study, task, "eval/mean_reward"))
        if not lines:
            notes.append(f"{task}: no run has an evaluation yet.")
            continue
        end = max(line.x[-1] for line in lines)
        others = list(_published(study, task, end))
        published += [(task, found) for _, found in others]
        lines += [line for line, _ in others]
        marks = list(_paper_marks(study, task, end))
        shaded = min(run.setting("random_steps", 0) for run in study.readable if run.task == task)
        chart = LineChart(f"Return on {task}", STEPS, "return", lines, marks, shaded=shaded)
        figures.append(Figure(f"return-{slug(task)}", _seeds(lines), chart))
    if figures:
        yield Text(
            "Deterministic evaluation episodes: mean over seeds, and one standard deviation to either side. "
            "Dotted lines and diamonds are others' numbers. The shaded start is uniform random actions."
        )
        yield Gallery(figures)
    if notes := [*notes, *_published_notes(published)]:
        yield Bullets(notes)


def bias_and_beta(study: Study) -> Iterator[Block]:
    """Yield measured bias, plain and normalised, and beta over time, for each task."""
    metrics = {
        "bias/mean": ("Measured bias", "predicted \u2212 observed return", True),
        "bias/normalized_mean": ("Normalised bias", "bias / max(|return|, 10)", True),
        "train/beta": ("Beta", "weight of the disagreement", False),
    }
    figures = []
    for metric, (name, axis, zero) in metrics.items():
        for task in study.tasks:
            if lines := list(_lines(study, task, metric)):
                chart = LineChart(f"{name} on {task}", STEPS, axis, lines, zero=zero)
                figures.append(Figure(f"{slug(name)}-{slug(task)}", _seeds(lines), chart))
    if figures:
        yield Text(
            "Above zero the critics promise more than the policy earns. The bias is measured on stochastic "
            "episodes against soft returns; beta is what weighs the critics' disagreement."
        )
        yield Gallery(figures)


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


def settings(study: Study) -> Iterator[Block]:
    """Yield in what the algorithms differ, and every setting of each."""
    first = {run.label: run for run in reversed(study.readable)}
    labels = [label for label in study.labels if label in first]
    names = list(dict.fromkeys(name for label in labels for name in first[label].settings))
    rows = [(name, *(_value(first[label].settings, name) for label in labels)) for name in names]
    apart = [row for row in rows if len(set(row[1:])) > 1 and row[0] not in ("seed", "env", "algorithm")]
    note = "The first run of each; a dash stands for a setting that it does not have."
    if apart:
        yield Table("Settings in which the algorithms differ", ("setting", *labels), apart, note, len(labels) + 1)
    within = list(_differences_within(study))
    if within:
        yield Bullets(within, "Settings that differ between runs of one algorithm", "warning")
    yield Table("All settings", ("setting", *labels), rows, note, len(labels) + 1, folded=True)


def deviations(study: Study) -> Iterator[Block]:
    """Yield every way in which these runs are not the paper's, or not each other's."""
    lines = [*_task_deviations(study), *_setting_deviations(study)]
    lines += [f"scale: {line}" for suite in study.suites for line in suite.scale]
    if lines:
        yield Bullets(lines, "From the paper and from the presets")
    versions = list(_versions(study))
    mixed = [line for line, several in versions if several]
    if mixed:
        yield Bullets(mixed, "Mixed: not all runs were made with the same", "warning")
    if same := [line for line, several in versions if not several]:
        yield Text(f"The same for all runs: {', '.join(same)}.")


def _setting_deviations(study: Study) -> Iterator[str]:
    """Yield what was set otherwise than in the presets, once for all algorithms that share it."""
    shared: dict[str, list[str]] = {}
    for label in study.labels:
        runs = [run for run in study.readable if run.label == label]
        found = Counter(
            f"`{name} = {value}`"
            for run in runs
            for name, value in changes(run.settings).items()
            if name.partition(".")[0] not in ("log", "checkpoint", "threads")
        )
        if found:
            shared.setdefault(", ".join(found), []).append(label)
        for algorithm in {str(run.settings["algorithm"]) for run in runs} - set(PRESETS):
            yield f"{label}: this version has no preset {algorithm} to compare its settings with"
    for text, labels in shared.items():
        yield f"{', '.join(labels)}: set otherwise than in the preset: {text}"
    views = {(run.label, run.task, str(run.settings.get("observation", "full"))) for run in study.readable}
    for label, task, view in sorted(views):
        if view != "full":
            yield f"{label} on {task} sees {view} observations"


def _task_deviations(study: Study) -> Iterator[str]:
    paper = {task_key(score.task): score.task for score in paper_scores()}
    for task in study.tasks:
        theirs = paper.get(task_key(task))
        if theirs is None:
            yield f"{task} is not among the paper's tasks"
        elif theirs != task:
            yield f"{task} here is {theirs} in the paper: another version of the task, whose returns may differ"
    versions: dict[str, list[str]] = {}
    for task in study.tasks:
        versions.setdefault(task_key(task), []).append(task)
    for same in versions.values():
        if len(same) > 1:
            yield f"{' and '.join(same)} are versions of one task; they are kept apart everywhere"


def _versions(study: Study) -> Iterator[tuple[str, bool]]:
    """Yield (text, whether runs differ in it) for versions, machines and devices."""
    found: dict[str, Counter[str]] = {}
    for run in study.readable:
        manifest = run.manifest
        parts = dict(manifest.get("versions") or {}) | {
            "system": (manifest.get("machine") or {}).get("system"),
            "device": manifest.get("device"),
            "threads": manifest.get("threads"),
        }
        for name, value in parts.items():
            found.setdefault(name, Counter())[str(value)] += 1
    for name, values in found.items():
        if len(values) == 1:
            yield f"{name} {next(iter(values))}", False
        else:
            yield f"{name}: " + ", ".join(f"{value} ({_count(n, 'run')})" for value, n in values.items()), True


def _differences_within(study: Study) -> Iterator[str]:
    for label in study.labels:
        for task in study.tasks:
            runs = study.of(label, task)
            for name in dict.fromkeys(name for run in runs for name in run.settings):
                values = dict.fromkeys(_value(run.settings, name) for run in runs)
                if name != "seed" and len(values) > 1:
                    yield f"{label} on {task}: `{name}` is {' or '.join(values)}"


def _lines(study: Study, task: str, metric: str) -> Iterator[Line]:
    for index, label in enumerate(study.labels):
        found = curve(study.of(label, task), metric)
        if found and found.steps:
            several = len(found.single) > 1
            pairs = list(zip(found.mean, found.std, strict=True))
            yield Line(
                label,
                index,
                found.steps,
                found.mean,
                [mean - std for mean, std in pairs] if several else (),
                [mean + std for mean, std in pairs] if several else (),
                found.seeds,
                found.single if several else {},
            )


def _published(study: Study, task: str, end: float) -> Iterator[tuple[Line, PublishedCurve]]:
    for index, label in enumerate(study.labels):
        runs = study.of(label, task)
        for found in curves_of(task, label) if runs else ():
            frames = runs[0].setting("action_repeat", 1) if found.unit == "frames" else 1
            points = [
                (step / frames, mean, std)
                for step, mean, std in zip(found.steps, found.means, found.stds, strict=True)
                if step / frames <= end
            ]
            if len(points) > 1:
                x, y, spread = zip(*points, strict=True)
                low = [mean - std for mean, std in zip(y, spread, strict=True)]
                high = [mean + std for mean, std in zip(y, spread, strict=True)]
                name = f"{found.algorithm}, published on {found.env}"
                yield Line(name, index, x, y, low, high, [found.seeds] * len(x), published=True), found


def _published_notes(published: Sequence[tuple[str, PublishedCurve]]) -> Iterator[str]:
    """Yield a line per published set of curves, with its source and its version of the tasks."""
    sets: dict[tuple[str, str, str], list[str]] = {}
    for task, found in published:
        where = task if found.env == task else f"{found.env}, another version than {task} here"
        sets.setdefault((found.algorithm, found.source, found.note), []).append(f"{where} ({found.seeds} seeds)")
    for (algorithm, source, note), tasks in sets.items():
        yield f"Published curves of {algorithm}: {', '.join(tasks)}; {source}{f' ({note})' if note else ''}."


def _paper_marks(study: Study, task: str, end: float) -> Iterator[Mark]:
    for index, label in enumerate(study.labels):
        runs = study.of(label, task)
        for milestone in study.milestones if runs else ():
            frames = runs[0].setting("action_repeat", 1)
            score = paper_score(task, label, milestone * frames)
            if score and milestone <= end:
                yield Mark(f"{score.algorithm} in the paper, {score.task}", index, milestone, score.mean, score.std)


def _seeds(lines: Sequence[Line]) -> str:
    own = [line for line in lines if not line.published]
    texts = []
    for line in own:
        most, least = max(line.seeds), line.seeds[-1]
        fewer = f", {least} at the end" if least < most else ""
        texts.append(f"{line.label}: {_count(most, 'seed')}{fewer}")
    return "; ".join(texts) + "."


def slug(text: str) -> str:
    """Return a text as the name of a file."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in text).split()).lower()


def _value(settings: Settings, name: str) -> str:
    value = settings.get(name)
    return "\u2013" if value is None else str(value)


def _or_dash(value: object) -> str:
    return "\u2013" if value is None else str(value)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
