"""Figures over environment steps: returns beside published ones, measured bias, beta."""

from collections.abc import Iterator, Sequence

from pessimism.analysis.reference import PublishedCurve, curves_of, paper_score
from pessimism.analysis.report.charts import Line, LineChart, Mark
from pessimism.analysis.report.document import Block, Bullets, Figure, Gallery, Text
from pessimism.analysis.report.series import curve
from pessimism.analysis.report.study import Study
from pessimism.analysis.report.wording import counted

STEPS = "environment steps"


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
            score = paper_score(task, label, milestone * frames, study.table)
            if score and milestone <= end:
                yield Mark(f"{score.algorithm} in the paper, {score.task}", index, milestone, score.mean, score.std)


def _seeds(lines: Sequence[Line]) -> str:
    own = [line for line in lines if not line.published]
    texts = []
    for line in own:
        most, least = max(line.seeds), line.seeds[-1]
        fewer = f", {least} at the end" if least < most else ""
        texts.append(f"{line.label}: {counted(most, 'seed')}{fewer}")
    return "; ".join(texts) + "."


def slug(text: str) -> str:
    """Return a text as the name of a file."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in text).split()).lower()
