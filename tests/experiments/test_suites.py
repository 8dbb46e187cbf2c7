"""The paper's experiments as data: they resolve, they share what is the same, and they shrink as they say."""

import os
from pathlib import Path

import pytest

from pessimism.config.presets import PRESETS
from pessimism.config.resolve import leaves
from pessimism.errors import UserError
from pessimism.experiments.suites import paper
from pessimism.experiments.suites.catalogue import ALL, SUITES, find
from pessimism.experiments.suites.grid import grid, grid_suite
from pessimism.experiments.suites.paper import TRAINING_TIME
from pessimism.experiments.suites.shrink import shrunk
from pessimism.experiments.suites.suite import Job, fitted, jobs, period, record

PIXELS = {"drqv2", "gpl-drq", "gpl-drq-anneal", "gpl-drq-top", "curl", "sac-pixels"}
READY = [suite for suite in ALL if suite.variants and all(variant.preset in PRESETS for variant in suite.variants)]


def settings_of(job):
    return dict(leaves(job.config()))


@pytest.mark.parametrize("suite", ALL, ids=lambda suite: suite.name)
def test_a_suite_names_presets_and_says_what_it_tests(suite):
    assert {variant.preset for variant in suite.variants} <= set(PRESETS) | PIXELS
    assert suite.title
    assert suite.claim
    assert ("Figure" in suite.paper or "Table" in suite.paper) == (suite in paper.ALL)
    assert len({variant.name for variant in suite.variants}) == len(suite.variants)
    assert len({variant.label for variant in suite.variants}) == len(suite.variants)
    assert suite.name not in PRESETS  # `pessimism sweep NAME` takes both
    assert all(milestone <= suite.steps for milestone in suite.protocol.milestones)


@pytest.mark.parametrize("suite", READY, ids=lambda suite: suite.name)
def test_every_run_is_a_valid_config_in_a_directory_of_its_own(suite):
    found = jobs(suite)
    assert len(found) == len(suite.variants) * len(suite.tasks) * len(suite.seeds)
    assert len({job.directory for job in found}) == len(found)
    for job in found:
        config = job.config()
        assert (config.env, config.seed, config.steps) == (job.env, job.seed, suite.steps)
        assert config.steps > 2 * config.random_steps


@pytest.mark.parametrize("suite", READY, ids=lambda suite: suite.name)
def test_runs_that_several_suites_show_have_the_same_settings_in_all(suite):
    def first_runs(name):
        first = shrunk(SUITES[name], seeds=[0])
        return {os.path.normpath(f"{name}/{job.directory}"): job for job in jobs(first)}

    homes = {variant.home for variant in suite.variants if variant.home}
    at_home = {path: job for home in homes for path, job in first_runs(home).items()}
    for path, job in first_runs(suite.name).items():
        if not path.startswith(f"{suite.name}/"):
            ours, theirs = settings_of(job), settings_of(at_home[path])
            assert {name for name in ours if ours[name] != theirs[name]} <= {"steps"}


def test_the_experiments_of_the_paper_are_all_there():
    assert {suite.name for suite in paper.ALL} == set(
        """bias bias-gpl gym gym-100k rliable-gym dmc rliable-dmc beta-init fixed-beta best-fixed-beta beta-rules
        top-dmc annealing optimism-dmc ensemble critic utd quantiles sac-3m training-time""".split()
    )
    with pytest.raises(UserError, match="gym-100k"):
        find("gym-100")


def test_known_settings_of_the_paper():
    def of(suite, directory):
        return {job.directory.removeprefix("../"): job.config() for job in jobs(SUITES[suite])}[directory]

    optimistic = of("bias", "bias/optimistic/Ant-v4/seed_0")
    assert (optimistic.critic.members, optimistic.pessimism.name, optimistic.pessimism.beta) == (4, "fixed", 0.0)
    assert of("best-fixed-beta", "best-fixed/Humanoid-v4/seed_4").pessimism.beta == 0.86
    assert of("ensemble", "members-15/Ant-v4/seed_0").critic.members == 15
    assert of("utd", "updates-5/Ant-v4/seed_0").updates_per_step == 5
    assert of("beta-init", "beta-init/learned-0.75/Ant-v4/seed_0").pessimism.beta == 0.75
    assert of("gym", "gym/mbpo/HalfCheetah-v4/seed_1").updates_per_step == 40
    assert of("quantiles", "qr-w2/Ant-v4/seed_0").pessimism.measure == "wasserstein2"
    assert SUITES["gym-100k"].protocol.averaged == 25
    assert SUITES["dmc"].protocol.averaged == 100


def test_own_experiments_have_the_arms_of_their_protocol():
    half = {job.directory.removeprefix("../"): job.config() for job in jobs(SUITES["calibration"])}
    assert len(half) == 6 * 3 * 5
    assert {(c.critic.form, c.critic.members, c.updates_per_step, c.threads) for c in half.values()} == {
        ("plain", 5, 5, 1)
    }
    assert not any(config.log.tensorboard for config in half.values())
    rules = {config.pessimism.name for config in half.values()}
    assert rules == {"fixed", "subset-minimum", "learned", "calibrated"}
    full = {job.algorithm: job.config() for job in jobs(SUITES["hopper-full"])}
    assert {(c.critic.members, c.updates_per_step) for c in full.values()} == {(10, 20)}


@pytest.mark.parametrize(("name", "steps"), [("calibration", 20_000), ("signals", 20_000), ("hopper-full", 15_000)])
def test_a_stage_of_our_own_experiments_is_the_beginning_of_the_next(name, steps):
    part = shrunk(SUITES[name], steps=steps, seeds=[0, 1, 2])
    assert part.folder == name
    whole = {job.directory: settings_of(job) for job in jobs(SUITES[name])}
    for job in jobs(part):
        assert settings_of(job) == whole[job.directory] | {"steps": steps}


def test_scale_shrinks_steps_phases_and_periods():
    small = shrunk(SUITES["annealing"], scale=0.05, seeds=[0, 1])
    config = {job.directory: job.config() for job in jobs(small)}["anneal/Ant-v4/seed_1"]
    assert config.steps == 10_000
    assert config.random_steps == 250
    assert config.pessimism.optimism_steps == 2500
    assert (config.evaluation.every, config.bias.every) == (500, 500)  # 20 points, not 200
    assert (small.protocol.milestones, small.protocol.window) == ((5000, 10_000), 500)
    assert small.folder == "annealing-scale-0.05"
    assert small.scale == (
        "seeds: 0, 1, 2, 3, 4 -> 0, 1",
        "steps: 200000 -> 10000",
        "milestones: 100000, 200000 -> 5000, 10000",
        "window: 5000 -> 500",
        "random_steps: 5000 -> 250",
        "evaluation.every: 1000 -> 500",
        "bias.every: 1000 -> 500",
        "pessimism.optimism_steps: 50000 -> 2500",
    )


def test_steps_cut_a_run_off_without_changing_it():
    part = shrunk(SUITES["gym"], steps=60_000, envs=["Hopper-v4"])
    assert part.scale == (
        "tasks: Hopper-v4, HalfCheetah-v4, Walker2d-v4, Ant-v4, Humanoid-v4 -> Hopper-v4",
        "steps: 200000 -> 60000",
        "milestones: 100000, 200000 -> 60000",
    )
    assert part.folder == "gym"  # so that the whole experiment can go on from here
    whole = {job.directory: settings_of(job) for job in jobs(SUITES["gym"])}
    for job in jobs(part):
        assert settings_of(job) == whole[job.directory] | {"steps": 60_000}


def test_few_steps_leave_time_to_learn_and_points_to_draw():
    tiny = shrunk(SUITES["bias"], steps=3000)
    config = jobs(tiny)[0].config()
    assert (config.random_steps, config.evaluation.every, config.bias.every) == (150, 600, 600)
    assert (tiny.protocol.milestones, tiny.protocol.window) == ((3000,), 600)
    assert tiny.folder == "bias-steps-3000"


def test_rollouts_of_a_model_grow_in_the_same_part_of_a_shorter_run():
    config = Job("", "", "mbpo", {"env": "Hopper-v4", "steps": 10_000}).config()
    assert fitted(config, 0.1)["model.schedule"] == (2, 15, 1, 15)


def test_periods():
    assert period(1000, 200_000, 1.0) == 1000
    assert period(1000, 100_000, 0.5) == 1000  # 200 points would take as long as before
    assert period(1000, 4000, 0.04) == 200
    assert period(1000, 3000, 1.0) == 600
    assert period(0, 3000, 1.0) == 0
    assert period(10, 3, 1.0) == 1


def test_changes_are_reported_and_override_the_suite():
    small = shrunk(SUITES["bias"], scale=0.01, changes={"batch_size": 32, "random_steps": 700})
    assert jobs(small)[0].config().random_steps == 700
    assert "batch_size: 256 -> 32" in small.scale
    assert "random_steps: 5000 -> 700" in small.scale
    assert small.folder == "bias-changed"
    assert shrunk(SUITES["bias"], changes={"log.tensorboard": False}).folder == "bias"


@pytest.mark.parametrize(
    ("suite", "asked", "words"),
    [
        ("gym", {"scale": 0.0}, "above 0"),
        ("gym", {"scale": 2.0}, "up to 1"),
        ("gym", {"steps": 300_000}, "between 1 and the 200000"),
        ("gym", {"steps": 3000, "scale": 0.5}, "one of them"),
        ("ensemble", {"changes": {"critic.members": 3}}, "differ in"),
        ("best-fixed-beta", {"envs": ["Hopper-v4"]}, "none for Hopper-v4"),
        (TRAINING_TIME, {"seeds": [0]}, "has no runs"),
    ],
)
def test_what_cannot_be_shrunk_is_refused(suite, asked, words):
    with pytest.raises(UserError, match=words):
        shrunk(SUITES[suite], **asked)


def test_a_grid_is_a_product_named_after_what_varies():
    axes = {"critic.members": [2, 5], "batch_size": [64], "steps": [1000]}
    found = grid(["gpl-sac", "redq"], ["Hopper-v4", "Ant-v4"], range(3), axes)
    assert len(found) == 24
    assert found[0].directory == "gpl-sac,critic.members=2/Hopper-v4/seed_0"
    assert found[0].label == "gpl-sac, critic.members 2"
    assert found[0].config().batch_size == 64
    assert [job.seed for job in found] == [0] * 8 + [1] * 8 + [2] * 8
    protocol = record(grid_suite("try", found), found)["protocol"]
    assert (protocol["milestones"], protocol["window"]) == ((1000,), 1000)
    with pytest.raises(UserError, match="one value"):
        grid(["redq"], ["Ant-v4"], [0], {"steps": [1, 2]})
    with pytest.raises(UserError, match="did you mean redq"):
        grid(["redk"], ["Ant-v4"], [0], {})


def test_the_record_names_every_run_relative_to_the_suite():
    suite = shrunk(SUITES["utd"], seeds=[3], envs=["Ant-v4"])
    entries = record(suite, jobs(suite))["runs"]
    assert entries[-1] == {
        "directory": "../gym/gpl-sac/Ant-v4/seed_3",
        "label": "UTD 20",
        "env": "Ant-v4",
        "seed": 3,
    }
    apart = record(suite, jobs(suite, shared=False))["runs"]
    assert apart[-1]["directory"] == "gpl-sac/Ant-v4/seed_3"


def test_the_documentation_lists_them_as_they_are():
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    for suite in ALL:
        runs = len(suite.variants) * len(suite.tasks) * len(suite.seeds) or "-"
        steps = f"{suite.steps:,}" if suite.steps else "-"
        assert f"| `{suite.name}` | {suite.paper} | {runs} | {steps} | {suite.claim} |" in page


def test_backbones_are_the_presets_at_three_seeds():
    found = jobs(SUITES["backbones"])
    assert len(found) == 7 * 3 * 3
    configs = [job.config() for job in found]
    assert {config.steps for config in configs} == {30_000}
    widths = {config.critic.hidden for config in configs if config.algorithm == "gpl-xqc"}
    assert widths == {256, 512}
