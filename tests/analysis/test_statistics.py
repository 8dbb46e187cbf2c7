"""Aggregate statistics against figures that Rliable gave, against SciPy, and against sums on paper."""

import numpy as np
import pytest
from scipy import stats

from pessimism.analysis import reference, statistics
from pessimism.analysis.statistics import Interval, Sample
from pessimism.bench.paper import VARIANTS
from pessimism.config.tasks import task_name

# Seeds x tasks. The expected figures below are those that rliable 1.2.0 (arch 7.2.0, NumPy 2.4.6) gave for them:
# its get_interval_estimates with 50,000 resamples from RandomState(0) for the aggregates, with 2,000 for
# probability_of_improvement, and its create_performance_profile with 50,000.
FIRST = np.array(
    [
        [0.95, 0.60, 0.70, 0.82, 0.84],
        [1.02, 0.66, 0.62, 0.85, 0.88],
        [0.98, 0.71, 0.55, 0.90, 0.81],
        [1.05, 0.64, 0.68, 0.78, 0.86],
        [1.01, 0.69, 0.66, 0.86, 0.90],
    ]
)
SECOND = np.array(
    [
        [0.80, 0.36, 0.30, 0.61, 0.15],
        [0.97, 0.40, 0.41, 0.33, 0.24],
        [1.03, 0.38, 0.22, 0.72, 0.40],
        [0.75, 0.35, 0.49, 0.49, 0.08],
        [0.99, 0.39, 0.31, 0.58, 0.33],
    ]
)
RLIABLE = {
    ("first", "interquartile_mean"): Interval(0.7984615384615386, 0.7792307692307693, 0.8153846153846155),
    ("first", "optimality_gap"): Interval(0.20240000000000014, 0.18799999999999994, 0.21760000000000002),
    ("first", "mean"): Interval(0.8008, 0.7847999999999999, 0.8160000000000001),
    ("first", "median"): Interval(0.842, 0.804, 0.866),
    ("second", "interquartile_mean"): Interval(0.42461538461538473, 0.3776923076923077, 0.4723076923076924),
    ("second", "optimality_gap"): Interval(0.518, 0.4788, 0.558),
    ("second", "mean"): Interval(0.4832000000000001, 0.44279999999999997, 0.5227999999999999),
    ("second", "median"): Interval(0.37600000000000006, 0.36199999999999993, 0.426),
}
TASKS = {"first": list(FIRST.T), "second": list(SECOND.T)}


@pytest.mark.parametrize(("name", "statistic"), RLIABLE)
def test_intervals_are_rliables(name, statistic):
    expected = RLIABLE[name, statistic]
    found = statistics.interval(getattr(statistics, statistic), TASKS[name])
    assert found.point == pytest.approx(expected.point, abs=1e-12)
    # Two bootstraps of 50,000 draw different resamples: bounds differ by a step of these discrete statistics.
    assert found.low == pytest.approx(expected.low, abs=0.012)
    assert found.high == pytest.approx(expected.high, abs=0.012)


def test_probability_of_improvement_is_rliables():
    first, second = TASKS["first"], TASKS["second"]
    assert statistics.improvement_interval(first, second) == pytest.approx((0.944, 0.872, 1.0), abs=0.012)
    assert statistics.improvement_interval(second, first) == pytest.approx((0.056, 0.0, 0.136), abs=0.012)


def test_performance_profiles_are_rliables():
    thresholds = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    expected = {
        "first": ([1, 1, 1, 0.6, 0.12], [1, 1, 1, 0.6, 0.04], [1, 1, 1, 0.6, 0.2]),
        "second": ([1, 0.84, 0.32, 0.16, 0.04], [1, 0.72, 0.24, 0.08, 0], [1, 0.96, 0.4, 0.2, 0.12]),
    }
    for name, bounds in expected.items():
        for found, wanted in zip(statistics.profile_interval(TASKS[name], thresholds), bounds, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_unequal_numbers_of_seeds():
    tasks = [np.array([0.0, 1.0]), np.array([0.5]), np.array([2.0, 2.0, 5.0])]
    assert statistics.mean(tasks) == pytest.approx((0.5 + 0.5 + 3.0) / 3)
    assert statistics.median(tasks) == 0.5
    assert statistics.interquartile_mean(tasks) == pytest.approx(stats.trim_mean([0, 1, 0.5, 2, 2, 5], 0.25))
    assert statistics.optimality_gap(tasks) == pytest.approx(1 - (0.5 + 0.5 + 1.0) / 3)
    bounds = statistics.interval(statistics.mean, tasks[:2], resamples=2000)  # a quarter draws 0, 0; another 1, 1
    assert bounds == pytest.approx((0.5, (0 + 0.5) / 2, (1 + 0.5) / 2))


def test_probability_of_improvement_is_mann_whitneys_and_ties_count_half():
    first, second = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 0.0, 4.0])
    expected = stats.mannwhitneyu(first, second, alternative="greater").statistic / 12
    assert statistics.improvement_probability([first], [second]) == pytest.approx(expected)
    assert statistics.improvement_probability([first], [first]) == 0.5


def test_the_same_scores_give_the_same_interval_whatever_stands_beside_them():
    once = statistics.interval(statistics.interquartile_mean, TASKS["first"], resamples=500)
    statistics.interval(statistics.interquartile_mean, TASKS["second"], resamples=500)
    assert statistics.interval(statistics.interquartile_mean, TASKS["first"], resamples=500) == once
    assert statistics.interval(statistics.interquartile_mean, TASKS["first"], resamples=500, seed=1) != once


def test_one_seed_has_an_interval_of_no_width():
    assert statistics.interval(statistics.mean, [np.array([0.3])], resamples=10) == (0.3, 0.3, 0.3)


def test_normalisers_reproduce_the_papers_normalised_averages():
    """The paper's 100K table prints these four; the returns at 3M steps that they come from it does not."""
    printed = {"SAC-20": 0.35, "REDQ": 0.48, "MBPO": 0.52, "GPL-SAC": 0.81}
    for algorithm, average in printed.items():
        scores = [
            score.mean / statistics.SAC_AT_3M[task_name(score.task)]
            for score in reference.paper_scores()
            if score.table == "gym_100k" and score.algorithm == algorithm
        ]
        assert len(scores) == 5
        assert np.mean(scores) == pytest.approx(average, abs=0.005)


def test_reference_numbers_are_found_under_every_spelling():
    assert reference.paper_score("Hopper-v4", "gpl-sac", 100_000)[1:] == (
        "Hopper-v2",
        "GPL-SAC",
        100_000,
        3386.0,
        92.0,
    )
    for env in ("dmc/cheetah-run-pixels", "dm_control/cheetah-run-v0", "cheetah_run", "Cheetah run"):
        assert reference.paper_score(env, "DrQv2", 1_500_000).mean == 771
    assert reference.paper_score("Hopper-v4", "gpl-sac", 50_000) is None
    assert [curve.env for curve in reference.curves_of("Hopper-v5", "redq")] == ["Hopper-v4"]
    assert [curve.algorithm for curve in reference.curves_of("Hopper-v4", "DroQ")] == ["DroQ (UTD20)"]
    assert all(len(curve.steps) == len(curve.means) == len(curve.stds) for curve in reference.published_curves())


def test_the_bench_and_the_table_agree_on_the_papers_training_times():
    per_thousand = {"state": 1.0, "pixels": 0.1}  # the paper's rows from pixels are of 10,000 steps
    times = [seconds * per_thousand[observations] for observations, _, seconds in reference.training_times()]
    assert [variant.paper_seconds for variant in VARIANTS] == pytest.approx(times)


def test_a_score_that_is_not_a_number_gives_no_number():
    tasks = [np.array([0.1, 0.2, np.nan, 0.4]), np.array([0.5, 0.6, 0.7, 0.8])]
    thresholds = np.array([0.0, 0.5])
    for statistic in (statistics.interquartile_mean, statistics.optimality_gap, statistics.mean, statistics.median):
        assert np.isnan(statistic(tasks))
        assert np.isnan(statistics.interval(statistic, tasks, resamples=50)).all()
    assert np.isnan(statistics.improvement_probability(tasks, tasks))
    assert np.isnan(statistics.performance_profile(tasks, thresholds)).all()
    assert all(np.isnan(part).all() for part in statistics.profile_interval(tasks, thresholds, resamples=50))


@pytest.mark.parametrize("freedom", [1.0, 2.0, 3.7, 8.0, 60.0, 1000.0])
def test_quantiles_of_students_t_are_scipys(freedom):
    for level in (0.9, 0.975, 0.995):
        expected = stats.t.ppf(level, freedom)
        assert statistics.t_quantile(level, freedom) == pytest.approx(expected, rel=2e-4)


def test_a_difference_on_one_task_has_welchs_interval():
    first, second = FIRST[:, 1], SECOND[:3, 1]
    welch = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    found = statistics.difference([Sample.of(first)], [Sample.of(second)])
    assert found == pytest.approx((first.mean() - second.mean(), welch.low, welch.high), rel=1e-4)


def test_a_difference_over_tasks_is_covered_as_often_as_it_says():
    """Four seeds on three tasks of different noise: 95 % of the intervals hold the true difference of 0.3."""
    draw, hits, trials = np.random.default_rng(0), 0, 2000
    for _ in range(trials):
        first = [Sample.of(draw.normal(0.3, scale, 4)) for scale in (0.1, 1.0, 0.3)]
        second = [Sample.of(draw.normal(0.0, scale, 4)) for scale in (0.2, 0.5, 0.3)]
        _, low, high = statistics.difference(first, second)
        hits += low <= 0.3 <= high
    assert hits / trials == pytest.approx(0.95, abs=0.02)


def test_a_single_run_has_no_interval_and_equal_runs_one_of_no_width():
    point, low, high = statistics.difference([Sample(2.0, np.nan, 1)], [Sample(0.5, 0.1, 5)])
    assert point == 1.5
    assert np.isnan((low, high)).all()
    assert statistics.difference([Sample(2.0, 0.0, 2)], [Sample(0.5, 0.0, 5)]) == (1.5, 1.5, 1.5)
