"""Verdicts: what a suite claims, checked on the runs that are there.

A check compares a measure of one series with that of others, by the difference of their means with a 95 % interval.
It is supported or contradicted where the interval says so, and undecided with this many seeds where it does not.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pessimism.analysis import statistics
from pessimism.analysis.report.document import Block, Finding, Table, Text
from pessimism.analysis.report.measures import AGGREGATES, MEASURES, measured, scores_of
from pessimism.analysis.report.study import Check, Study, Suite
from pessimism.analysis.report.wording import counted, difference_text, mean_and_std
from pessimism.analysis.statistics import Interval, Sample

ENOUGH_SEEDS = 5  # fewer make every interval a weak one
MARGIN = 0.1  # of normalised return: differences below it are similar
AVERAGE = "mean over tasks"
FEW = 3  # comparisons that a sentence names

BIAS = ("bias", "absolute bias", "bias spread", "bias change")
BIAS_COLUMNS = BIAS[:3]

Verdict = Literal["supported", "contradicted", "undecided"]


class Comparison(NamedTuple):
    """Two series on a task, or over tasks."""

    task: str
    first: str
    second: str
    means: tuple[float, float]
    difference: Interval
    seeds: int  # of the smallest sample
    verdict: Verdict


@dataclass(frozen=True)
class Result:
    """A check with its answer. `decisive` comparisons make the verdict, the others are shown beside them."""

    check: Check
    decisive: Sequence[Comparison]
    shown: Sequence[Comparison]
    verdict: Verdict

    @property
    def seeds(self) -> int:
        """Runs behind the smallest sample."""
        return min((one.seeds for one in self.decisive), default=0)

    @property
    def sentence(self) -> str:
        """What was found, with its numbers."""
        if not self.decisive:
            return "no runs to compare yet"
        unit, seeds = unit_of(self.check.measure), counted(self.seeds, "seed")
        if len(self.decisive) <= FEW:
            return f"{unit}, {'; '.join(map(_comparison_text, self.decisive))} ({seeds})"
        counts = Counter(one.verdict for one in self.decisive)
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        sign = -1 if self.check.relation == "less" else 1
        worst = min(self.decisive, key=lambda one: sign * one.difference.point)
        return f"of {len(self.decisive)} comparisons {told}; {unit}, the least: {_comparison_text(worst)} ({seeds})"


def _comparison_text(one: Comparison) -> str:
    where = "" if one.task == AVERAGE else f" on {one.task}"
    return f"{one.first} \u2212 {one.second}{where}: {difference_text(one.difference)}"


def results(study: Study, suite: Suite) -> list[Result]:
    """Return the answers to a suite's checks."""
    known = {*MEASURES, *AGGREGATES}  # a newer version may have others
    return [_result(study, suite, check) for check in suite.checks if check.measure in known]


def overall(found: Sequence[Result]) -> Verdict:
    """Return the verdict on a claim from those of its checks."""
    return _combined([result.verdict for result in found])


def headline(suite: Suite, found: Sequence[Result]) -> str:
    """Return the verdict on a suite's claim in one line."""
    seeds = min((result.seeds for result in found if result.decisive), default=0)
    verdict = overall(found)
    how = f"Undecided with {counted(seeds, 'seed')}" if verdict == "undecided" else verdict.capitalize()
    part = " as far as it is checked" if suite.unchecked and verdict == "supported" else ""
    smaller = ", in this smaller experiment" if suite.scale else ""
    where = f" ({suite.paper} of the paper)" if suite.paper else ""
    return f"{how}{part}{smaller}: {suite.claim}{where}"


def verdicts(study: Study) -> Iterator[Block]:
    """Yield what was found, first for each claim, then for each of its checks, with the numbers behind them."""
    for suite in study.suites:
        found = results(study, suite)
        if not found:
            continue
        lines = [_line(result) for result in found] + [f"Not checked: {suite.unchecked}."] * bool(suite.unchecked)
        yield Finding(overall(found), headline(suite, found), lines)
        seeds = min((result.seeds for result in found if result.decisive), default=0)
        if seeds == 1:
            yield Text("One seed has no interval, so that nothing is decided: give more seeds.", "warning")
        elif 1 < seeds < ENOUGH_SEEDS:
            yield Text(
                f"These intervals rest on {counted(seeds, 'seed')}, fewer than five: they are wide, and one more "
                "run may change them.",
                "warning",
            )
        if any(result.shown for result in found):
            yield _table(found)


def bias_table(study: Study) -> Iterator[Block]:
    """Yield how far from zero the bias is, and how much it fluctuates, for each task and series."""
    rows = [
        (task, label, *(mean_and_std(values, ".3g") for values in columns), str(len(columns[0])))
        for task in study.tasks
        for label in study.labels
        if len((columns := [measured(study, label, task, name, 0) for name in BIAS_COLUMNS])[0])
    ]
    if rows:
        note = (
            "Of bias / max(|return|, 10), over all measurements of a run after the random steps; then mean and "
            "population standard deviation over runs."
        )
        names = ("mean", "absolute mean", "spread over time")
        yield Table("Normalised bias by task", ("task", "algorithm", *names, "runs"), rows, note, words=2)


def unit_of(measure: str) -> str:
    """Return what a measure is called in sentences."""
    return MEASURES[measure].unit if measure in MEASURES else f"{measure} of the normalised return"


def wants_bias(study: Study) -> bool:
    """Tell whether a suite's claim is about the bias."""
    return any(check.measure in BIAS for suite in study.suites for check in suite.checks)


def _line(result: Result) -> str:
    return f"{result.verdict.capitalize()}: {result.check.statement}. {_upper(result.sentence)}."


def _table(found: Sequence[Result]) -> Table:
    rows = [
        (
            unit_of(result.check.measure),
            one.task,
            f"{one.first} \u2212 {one.second}",
            f"{one.means[0]:.3g}",
            f"{one.means[1]:.3g}",
            difference_text(one.difference),
            str(one.seeds),
        )
        for result in found
        for one in result.shown
    ]
    note = (
        "Differences of means with 95 % intervals (Welch's t), not corrected for their number. Returns are divided "
        "by the task's scale, biases by max(|return|, 10). The bias of a run is taken over all its measurements "
        "after the random steps: its absolute mean is the distance from zero, its spread the standard deviation "
        "over time."
    )
    head = ("measure", "task", "compared", "first", "second", "difference", "seeds")
    return Table("The comparisons behind the verdict", head, rows, note, words=3)


def _result(study: Study, suite: Suite, check: Check) -> Result:
    if check.measure in AGGREGATES:
        found = [one for second in check.second if (one := _aggregate(study, suite, check, second))]
        return Result(check, found, found, _combined([one.verdict for one in found]))
    tasks = [task for task in study.tasks if not check.tasks or task in check.tasks]
    alone: list[Comparison] = []
    average: list[Comparison] = []
    for second in check.second:
        samples = {task: pair for task in tasks if (pair := _samples(study, suite, check, task, second))}
        alone += [_comparison(check, task, second, [pair]) for task, pair in samples.items()]
        if len(samples) > 1:
            average.append(_comparison(check, AVERAGE, second, list(samples.values())))
        elif samples:
            average.append(alone[-1])
    decisive = alone if check.scope == "every" else average
    shown = alone + [one for one in average if one.task == AVERAGE]
    relation = [one.verdict for one in decisive]
    any_will_do = check.relation == "different" and "supported" in relation
    return Result(check, decisive, shown, "supported" if any_will_do else _combined(relation))


def _aggregate(study: Study, suite: Suite, check: Check, second: str) -> Comparison | None:
    """Compare a statistic over tasks, with a bootstrap interval of the difference."""
    milestone = _milestone(study, suite, check)
    first, other = (scores_of(study, label, milestone) for label in (check.first, second))
    common = [task for task in first if task in other]
    if not common:
        return None
    sides = [[own[task] for task in common] for own in (first, other)]
    statistic = AGGREGATES[check.measure]
    found = statistics.difference_interval(statistic, *sides)
    means = (float(statistic(sides[0])), float(statistic(sides[1])))
    seeds = min(len(scores) for side in sides for scores in side)
    verdict = verdict_of(found, check.relation) if seeds > 1 else "undecided"
    return Comparison(AVERAGE, check.first, second, means, found, seeds, verdict)


def _samples(study: Study, suite: Suite, check: Check, task: str, second: str) -> tuple[Sample, Sample] | None:
    """Return the runs of both series on a task as samples of the measure."""
    sides = []
    for label in (check.first, second):
        values = measured(study, label, task, check.measure, _milestone(study, suite, check))
        if not len(values):
            return None
        sides.append(Sample.of(values))
    return sides[0], sides[1]


def _milestone(study: Study, suite: Suite, check: Check) -> int:
    milestones = suite.milestones or tuple(study.milestones) or (0,)
    return milestones[min(check.milestone, len(milestones) - 1) if check.milestone >= 0 else -1]


def _comparison(check: Check, task: str, second: str, pairs: Sequence[tuple[Sample, Sample]]) -> Comparison:
    first, other = zip(*pairs, strict=True)
    found = statistics.difference(first, other)
    means = (sum(one.mean for one in first) / len(first), sum(one.mean for one in other) / len(other))
    seeds = min(side.seeds for pair in pairs for side in pair)
    return Comparison(task, check.first, second, means, found, seeds, verdict_of(found, check.relation))


def verdict_of(found: Interval, relation: str) -> Verdict:
    """Return what an interval of a difference says on a relation."""
    if relation == "less":
        found, relation = Interval(-found.point, -found.high, -found.low), "more"
    above, below = found.low > 0, found.high < 0  # both false without an interval
    if relation == "similar":
        above = found.low > -MARGIN and found.high < MARGIN
        below = found.low > MARGIN or found.high < -MARGIN
    elif relation == "different":
        above, below = above or below, False
    return "supported" if above else "contradicted" if below else "undecided"


def _combined(found: Sequence[Verdict]) -> Verdict:
    if "contradicted" in found:
        return "contradicted"
    return "supported" if found and set(found) == {"supported"} else "undecided"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def summary(study: Study) -> list[str]:
    """Return the verdicts as lines for a terminal."""
    lines = []
    for suite in study.suites:
        if found := results(study, suite):
            lines += [headline(suite, found), *(f"  {_line(result)}" for result in found)]
            lines += [f"  Not checked: {suite.unchecked}."] * bool(suite.unchecked)
    return lines


def as_data(study: Study) -> list[dict[str, Any]]:
    """Return the verdicts as plain values, with every comparison."""
    return [
        {
            "suite": suite.name,
            "claim": suite.claim,
            "verdict": overall(found),
            "checks": [
                {
                    "statement": result.check.statement,
                    "measure": result.check.measure,
                    "verdict": result.verdict,
                    "comparisons": [
                        one._asdict() | {"difference": one.difference._asdict()} for one in result.shown
                    ],
                }
                for result in found
            ],
        }
        for suite in study.suites
        if (found := results(study, suite))
    ]
