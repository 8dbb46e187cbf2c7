"""Claims checked on data: measures on runs made by hand, intervals, and what page and terminal say first."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pessimism.analysis import reference
from pessimism.analysis.report.content import document
from pessimism.analysis.report.measures import MEASURES, measured
from pessimism.analysis.report.results import published, top_scores
from pessimism.analysis.report.runs import Evaluations, Run
from pessimism.analysis.report.study import Check, Study, Suite, read_study
from pessimism.analysis.report.text import markdown
from pessimism.analysis.report.verdicts import overall, results, summary, verdict_of
from pessimism.analysis.statistics import Interval
from pessimism.experiments.reproduce import report
from pessimism.experiments.suites.catalogue import SUITES
from pessimism.experiments.suites.paper import ALL
from pessimism.experiments.suites.shrink import shrunk
from pessimism.experiments.suites.suite import jobs, record
from synthetic import write_run


def made(label, task, seed, *, bias=(), returns=(), beta=()):
    """A run by hand: the first measurement falls into the random steps."""
    series = {
        "bias/normalized_mean": (list(range(0, 10 * len(bias), 10)), list(bias)),
        "train/beta": (list(range(10, 10 * len(beta) + 1, 10)), list(beta)),
    }
    evaluations = Evaluations(list(range(10, 10 * len(returns) + 1, 10)), [np.array([value]) for value in returns])
    settings = {"random_steps": 5, "evaluation.every": 10, "steps": 10 * len(returns)}
    name = f"{label}/{task}/{seed}"
    return Run(
        Path(name), name, "done", label, task, seed, settings=settings, series=series, evaluations=evaluations
    )


def study_of(runs, *checks, **suite):
    return Study([], runs, [Suite(Path(), claim="it is so", checks=checks, **{"milestones": (30,), **suite})])


BIASED = {
    "A": {"T1": [[9, 0.1, 0.3], [9, -0.2, -0.4]], "T2": [[9, 0.0, 0.2], [9, 0.1, 0.1], [9, 0.3, 0.5]]},
    "B": {"T1": [[9, 1.0, 3.0], [9, 1.5, 1.5]], "T2": [[9, -2.0, -1.0], [9, -2.0, -2.0]]},
}


def biased_runs():
    return [
        made(label, task, seed, bias=values)
        for label, tasks in BIASED.items()
        for task, rows in tasks.items()
        for seed, values in enumerate(rows)
    ]


def test_measures_of_the_bias_leave_the_random_steps_out():
    study = study_of(biased_runs())
    np.testing.assert_allclose(measured(study, "A", "T1", "absolute bias", 30), [0.2, 0.3])
    np.testing.assert_allclose(measured(study, "A", "T1", "bias", 30), [0.2, -0.3])
    np.testing.assert_allclose(measured(study, "A", "T1", "bias spread", 30), [0.1, 0.1])
    np.testing.assert_allclose(measured(study, "B", "T1", "bias change", 30), [2.0, 0.0])


def test_measures_of_returns_and_beta():
    runs = [made("A", "Hopper-v4", 0, returns=[100, 200, 330], beta=[0.5, 0.4, 0.3])]
    study = study_of(runs, window=20)
    np.testing.assert_allclose(measured(study, "A", "Hopper-v4", "return", 30), [(200 + 330) / 2 / 3300])
    np.testing.assert_allclose(measured(study, "A", "Hopper-v4", "area", 30), [210 / 3300])
    np.testing.assert_allclose(measured(study, "A", "Hopper-v4", "beta", 30), [0.35])
    unknown = study_of(
        [made("A", "Elsewhere-v0", 0, returns=[1, 1, -4]), made("B", "Elsewhere-v0", 0, returns=[8] * 3)]
    )
    np.testing.assert_allclose(measured(unknown, "A", "Elsewhere-v0", "return", 30), [-4 / 8])  # of the best there


def test_a_check_over_tasks_has_the_difference_and_welchs_interval_of_each():
    check = Check("A is closer", "absolute bias", "A", ("B",), "less")
    study = study_of(biased_runs(), check)
    (found,) = results(study, study.suites[0])
    alone = {one.task: one for one in found.shown}
    assert list(alone) == ["T1", "T2", "mean over tasks"]
    first, second = [0.2, 0.3], [2.0, 1.5]
    welch = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert alone["T1"].difference == pytest.approx((-1.5, welch.low, welch.high), rel=1e-3)
    assert alone["T2"].difference.point == pytest.approx((0.1 + 0.1 + 0.4) / 3 - (1.5 + 2.0) / 2)
    assert [one.task for one in found.decisive] == ["mean over tasks"]
    assert found.decisive[0].difference.point == pytest.approx((-1.5 - 1.55) / 2)
    assert (found.seeds, found.verdict) == (2, "supported")
    assert "A \u2212 B: \u22121.52 [" in found.sentence


@pytest.mark.parametrize(
    ("relation", "interval", "verdict"),
    [
        ("more", (0.2, 0.1, 0.3), "supported"),
        ("more", (0.2, -0.1, 0.5), "undecided"),
        ("more", (-0.2, -0.3, -0.1), "contradicted"),
        ("less", (-0.2, -0.3, -0.1), "supported"),
        ("less", (0.2, 0.1, 0.3), "contradicted"),
        ("similar", (0.02, -0.05, 0.09), "supported"),
        ("similar", (0.02, -0.15, 0.2), "undecided"),
        ("similar", (0.3, 0.11, 0.5), "contradicted"),
        ("similar", (-0.3, -0.5, -0.11), "contradicted"),
        ("different", (-0.2, -0.3, -0.1), "supported"),
        ("different", (0.2, -0.1, 0.5), "undecided"),
        ("more", (0.2, np.nan, np.nan), "undecided"),
        ("similar", (0.0, np.nan, np.nan), "undecided"),
    ],
)
def test_what_an_interval_says(relation, interval, verdict):
    assert verdict_of(Interval(*interval), relation) == verdict


def test_a_claim_about_every_task_fails_on_one_and_one_seed_decides_nothing():
    returns = {"A": {"Hopper-v4": 3000, "Ant-v4": 100}, "B": {"Hopper-v4": 1000, "Ant-v4": 2000}}
    runs = [
        made(label, task, seed, returns=[level + 10 * seed] * 3)
        for label, tasks in returns.items()
        for task, level in tasks.items()
        for seed in range(3)
    ]
    every = Check("best", "return", "A", ("B",), "more", "every")
    hopper = Check("best on Hopper", "return", "A", ("B",), "more", tasks=("Hopper-v4",))
    study = study_of(runs, every, hopper)
    assert [one.verdict for one in results(study, study.suites[0])] == ["contradicted", "supported"]
    assert overall(results(study, study.suites[0])) == "contradicted"
    alone = study_of([run for run in runs if run.seed == 0], hopper)
    assert summary(alone)[0] == "Undecided with 1 seed: it is so"
    nothing = study_of([run for run in runs if run.label == "A"], hopper)
    assert "no runs to compare yet" in summary(nothing)[1].lower()


def test_aggregates_are_compared_by_their_bootstrap():
    draw = np.random.default_rng(0)
    runs = [
        made(label, task, seed, returns=[3300 * (level + 0.05 * draw.normal())] * 3)
        for label, level in (("A", 0.8), ("B", 0.5))
        for task in ("Hopper-v4", "Hopper-v5")
        for seed in range(5)
    ]
    more = Check("higher", "interquartile mean", "A", ("B",), "more")
    study = study_of(runs, more, Check("lower", "optimality gap", "A", ("B",), "less"))
    higher, lower = results(study, study.suites[0])
    assert (higher.verdict, lower.verdict) == ("supported", "supported")
    assert higher.decisive[0].difference.point == pytest.approx(0.3, abs=0.06)
    assert lower.decisive[0].difference.point == pytest.approx(-0.3, abs=0.06)


@pytest.mark.parametrize("suite", ALL, ids=lambda suite: suite.name)
def test_checks_name_variants_tasks_and_measures_that_there_are(suite):
    labels = {variant.label for variant in suite.variants}
    for check in suite.checks:
        assert check.first in labels
        assert set(check.second) <= labels - {check.first}
        assert set(check.tasks) <= set(suite.tasks)
        assert check.measure in {*MEASURES, "interquartile mean", "optimality gap"}
        assert check.milestone < len(suite.protocol.milestones)
    assert suite.checks or suite.name in ("sac-3m", "training-time")


def small_suite(tmp_path, name="bias-gpl", seeds=3, **asked):
    """Write a suite's file as a sweep does, and its runs without training."""
    suite = shrunk(SUITES[name], seeds=range(seeds), **asked)
    found = jobs(suite, shared=False)
    for job in found:
        write_run(tmp_path / job.directory, job.algorithm, job.env, job.seed, steps=10_000, every=500)
    (tmp_path / "suite.json").write_text(json.dumps(record(suite, found)))
    return suite


def test_page_and_terminal_say_the_same_first(tmp_path):
    small_suite(tmp_path, scale=0.05, envs=["Hopper-v4"])
    lines, page = report(tmp_path)
    assert lines[0].startswith(
        "Undecided with 3 seeds, in this smaller experiment: With GPL the bias is much closer"
    )
    assert "Absolute mean of the bias, SAC, GPL \u2212 SAC, optimistic (beta 0) on Hopper-v4: " in lines[1]
    text = page.read_text()
    first = text[text.index("<section") :]
    assert first.startswith('<section id="verdict">')
    assert first.index(lines[0].partition(" (")[0]) < first.index("Overview")
    assert first.index('id="bias-and-beta"') < first.index('id="learning-curves"')
    assert "rest on 3 seeds, fewer than five" in text
    data = json.loads((tmp_path / "report/data.json").read_text())
    (verdict,) = data["verdicts"]
    assert (verdict["verdict"], len(verdict["checks"])) == ("undecided", 2)
    number = verdict["checks"][0]["comparisons"][0]["difference"]["point"]
    assert f"{number:+.3g}".replace("-", "\u2212") in lines[1]


def test_one_seed_has_no_interval_to_warn_of(tmp_path):
    small_suite(tmp_path, scale=0.05, envs=["Hopper-v4"], seeds=1)
    text = markdown(document(read_study([tmp_path])))
    assert "One seed has no interval, so that nothing is decided" in text
    assert "These intervals rest on" not in text


def test_what_a_claim_says_beside_its_checks_is_named(tmp_path):
    small_suite(tmp_path, "utd", scale=0.05, envs=["Hopper-v4"], seeds=2)
    assert "Not checked: that Ant and Humanoid become unstable" in markdown(document(read_study([tmp_path])))


def test_tables_that_print_the_same_column_are_told_apart():
    frames = 3_000_000
    assert reference.paper_score("dmc/cheetah-run", "GPL-DrQ", frames)[4:] == (903, 1)
    assert reference.paper_score("dmc/cheetah-run", "GPL-DrQ", frames, "dmc_top")[4:] == (899, 4)
    assert reference.paper_score("dmc/cheetah-run", "GPL-DrQ", frames, "dmc_optimistic_shift")[4:] == (899, 4)
    assert reference.paper_score("dmc/quadruped-run", "DrQv2", frames, "dmc_top")[4:] == (523, 271)
    for name, table in (("top-dmc", "dmc_top"), ("optimism-dmc", "dmc_optimistic_shift"), ("dmc", "dmc_pixels")):
        assert SUITES[name].table == table


def test_a_suites_own_table_stands_beside_its_runs(tmp_path):
    suite = shrunk(SUITES["top-dmc"], seeds=[0], envs=["dmc/cheetah-run"])
    found = jobs(suite, shared=False)
    for job in found:
        write_run(tmp_path / job.directory, job.algorithm, job.env, steps=1_500_000, every=250_000, top=900)
    (tmp_path / "suite.json").write_text(json.dumps(record(suite, found)))
    study = read_study([tmp_path])
    assert published(study, "GPL-DrQ", "dmc/cheetah-run", 1_500_000).mean == 899
    assert "| 899 ± 4 |" in markdown(document(study))


def test_top_scores_are_the_papers():
    """Two values at mean +- std have just these; at 1.5M frames the paper prints 11, 8, 3, 0 and 0 of 12."""
    scores = {}
    for score in reference.paper_scores():
        if (score.table, score.milestone) == ("dmc_pixels", 1_500_000):
            values = np.array([score.mean - score.std, score.mean + score.std])
            scores.setdefault(score.algorithm, {})[score.task] = values
    counts = top_scores(scores)
    assert counts == {"GPL-DrQ-Anneal": 11, "GPL-DrQ": 8, "DrQv2": 3, "CURL": 0, "SAC": 0}
    assert {name: reference.paper_top_scores(name, 1_500_000) for name in counts} == counts


def test_averages_stand_beside_the_papers(tmp_path):
    for task, top in (("Hopper-v4", 3300.0), ("Ant-v4", 5800.0)):
        for seed in range(2):
            write_run(tmp_path / task / str(seed), "gpl-sac", task, seed, top=top)
    text = markdown(document(read_study([tmp_path])))
    line = next(line for line in text.splitlines() if line.startswith("| gpl-sac | 0.9"))
    assert line.endswith("| 0.81 | 2/2 | \u2013 |")
