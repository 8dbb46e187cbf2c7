"""Settings, and every way in which runs are not the paper's, not their presets', or not each other's."""

from collections import Counter
from collections.abc import Iterator

from pessimism.analysis.reference import paper_scores, task_key
from pessimism.analysis.report.document import Block, Bullets, Table, Text
from pessimism.analysis.report.runs import Settings, changes
from pessimism.analysis.report.study import Study
from pessimism.analysis.report.wording import counted
from pessimism.config.presets import PRESETS


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
    if rows:
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
        elif "-v" not in theirs:
            if not any(
                name.startswith("pixels.") for run in study.runs if run.task == task for name in run.settings
            ):
                yield f"{task} is seen as numbers here and from pixels in the paper"
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
            yield f"{name}: " + ", ".join(f"{value} ({counted(n, 'run')})" for value, n in values.items()), True


def _differences_within(study: Study) -> Iterator[str]:
    for label in study.labels:
        for task in study.tasks:
            runs = study.of(label, task)
            for name in dict.fromkeys(name for run in runs for name in run.settings):
                values = dict.fromkeys(_value(run.settings, name) for run in runs)
                if name != "seed" and len(values) > 1:
                    yield f"{label} on {task}: `{name}` is {' or '.join(values)}"


def _value(settings: Settings, name: str) -> str:
    value = settings.get(name)
    return "\u2013" if value is None else str(value)
