"""From a study to a document: what a report shows, section by section."""

from collections.abc import Iterator

from pessimism.analysis.report.aggregates import aggregates
from pessimism.analysis.report.deviations import deviations, settings
from pessimism.analysis.report.document import Block, Bullets, Code, Document, Section, Text
from pessimism.analysis.report.efficiency import steps_to_thresholds
from pessimism.analysis.report.figures import bias_and_beta, learning_curves
from pessimism.analysis.report.overview import lead, overview
from pessimism.analysis.report.results import returns
from pessimism.analysis.report.study import Study
from pessimism.analysis.report.times import training_time
from pessimism.analysis.report.verdicts import bias_table, verdicts, wants_bias

HOW_TO_START = """pessimism train gpl-sac --env Hopper-v4 --seed 0
pessimism reproduce --list
pessimism report runs"""


def document(study: Study) -> Document:
    """Return the report of a study: the verdict first, and bias before returns where the claim is about it."""
    title = " and ".join(suite.title for suite in study.suites) or "Report of runs"
    if not study.runs and not any(suite.training_time for suite in study.suites):
        return Document(title, "There are no runs here.", [_empty(study)])
    curves = [
        Section("Learning curves", list(learning_curves(study))),
        Section("Returns", [*returns(study), *steps_to_thresholds(study)]),
        Section("Aggregate statistics", list(aggregates(study))),
    ]
    bias = Section("Bias and beta", [*bias_and_beta(study), *bias_table(study)])
    sections = [
        Section("Verdict", list(verdicts(study))),
        Section("Overview", list(overview(study))),
        *([bias, *curves] if wants_bias(study) else [*curves, bias]),
        Section("Training time", list(training_time(study))),
        Section("Settings", list(settings(study))),
        Section("Deviations", list(deviations(study))),
        Section("How the numbers are made", list(method())),
    ]
    return Document(title, lead(study), [section for section in sections if section.blocks], study.labels)


def _empty(study: Study) -> Section:
    looked = ", ".join(f"`{directory}`" for directory in study.directories)
    problems = [problem for suite in study.suites for problem in suite.problems]
    warnings = [Bullets(problems, "Broken", "warning")] if problems else []
    text = f"Looked below {looked} and found no directory of a run. To make some:"
    return Section("Overview", [Text(text), Code(HOW_TO_START), *warnings])


def method() -> Iterator[Block]:
    """Yield the protocol and the sources."""
    yield Text(
        "Statistics follow Agarwal et al., 2021 (Rliable): interquartile mean, optimality gap, performance "
        "profiles and probability of improvement, with stratified percentile bootstrap intervals of 95 %. The "
        "random stream of an interval is decided by the scores, so that the same runs always give the same page. "
        "Differences of means, in verdicts and against the paper, have Welch's t intervals, which stay honest with "
        "few seeds. Verdicts are not corrected for the number of comparisons."
    )
    yield Text(
        "Gym returns are divided by SAC's after 3M steps, Control Suite returns by 1000. The paper does not print "
        "the former. Hopper 3300, HalfCheetah 15000, Walker2d 5600, Ant 5800 and Humanoid 6000 are a guess: they "
        "reproduce the four normalised averages of its 100K table, but five values do not follow from four means, "
        "and the printed standard deviations are missed by up to 0.02. They were of -v2 tasks. "
        "`pessimism reproduce sac-3m` would measure them."
    )
    yield Text(
        "The paper: Cetin and Celiktutan, Learning Pessimism for Reinforcement Learning, AAAI 2023. Its numbers "
        "are of Gym -v2 tasks and of Control Suite tasks from pixels."
    )
