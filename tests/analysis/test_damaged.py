"""One damaged run is named and does not end the report: the others keep their place."""

import json
import re
import shutil

import numpy as np
import pytest

from pessimism.analysis.report import write_report
from pessimism.analysis.report.results import cell
from pessimism.analysis.report.study import read_study
from synthetic import write_run

EVALUATED = np.arange(5000, 20_001, 5000)


def config(name, value):
    """Change one line of the settings."""

    def change(run):
        before = (run / "config.yaml").read_text()
        after = re.sub(rf"(?m)^{name}: .*", lambda _: f"{name}: {value}", before)
        assert after != before
        (run / "config.yaml").write_text(after)

    return change


def text(name, content):
    return lambda run: (run / name).write_text(content)


def line(name, values):
    def change(run):
        with (run / name).open("a") as file:
            file.write((values if isinstance(values, str) else json.dumps(values)) + "\n")

    return change


def npz(steps, results):
    return lambda run: np.savez(run / "evaluations.npz", timesteps=steps, results=results)


def saved_as_array(run):
    with (run / "evaluations.npz").open("wb") as file:
        np.save(file, np.ones(3))


DAMAGE = {
    "string seed": (config("seed", "abc"), "seed is not a whole number: abc"),
    "list seed": (config("seed", "[1, 2]"), "seed is not a whole number"),
    "negative seed": (config("seed", "-7"), "seed is not a whole number"),
    "list as task": (config("env", "[a, b]"), "env is not a name"),
    "name of 300 characters": (config("env", "x" * 300), None),
    "algorithm of 300 characters": (config("algorithm", "y" * 300), None),
    "list where a dict belongs": (config("env_kwargs", "[1, 2]"), "kwargs is not a table"),
    "text where a dict belongs": (config("env_kwargs", "abc"), "kwargs is not a table"),
    "steps of 31 digits": (config("steps", "1" + "0" * 30), "steps is not a number of steps"),
    "no frames": (config("action_repeat", "0"), "repeat is not a number of frames"),
    "deep config": (text("config.yaml", "[" * 3000), "config.yaml cannot be read"),
    "list as config": (text("config.yaml", "[1, 2]"), "config.yaml does not say"),
    "list as versions": (
        text("manifest.json", '{"versions": [1], "machine": 3}'),
        "versions and machine",
    ),
    "deep manifest": (text("manifest.json", "[" * 100_000), "manifest.json cannot be read"),
    "done with a text": (text("DONE", '{"step": "x"}'), "unfinished"),
    "done with nothing": (text("DONE", '{"step": null}'), "unfinished"),
    "1e308": (line("metrics.jsonl", {"step": 20_000, "bias/mean": 1e308}), "bias/mean is not a number"),
    "400 digits": (line("metrics.jsonl", {"step": 20_000, "bias/mean": 10**400}), "bias/mean is not a number"),
    "5000 digits": (line("metrics.jsonl", '{"step": ' + "1" * 5000 + "}"), "line 5 is not whole"),
    "step of 41 digits": (line("metrics.jsonl", {"step": 10**40, "bias/mean": 3.0}), "line 5 is not whole"),
    "deep line": (line("metrics.jsonl", "[" * 100_000), "line 5 is not whole"),
    "returns of 1e308": (npz(EVALUATED, np.full((4, 5), 1e308)), "evaluations.npz has returns that are not"),
    "no axes": (npz(np.array(3), np.array(4.0)), "evaluations.npz cannot be read"),
    "other lengths": (npz(np.arange(3), np.ones((4, 5))), "evaluations.npz cannot be read"),
    "no episodes": (npz(EVALUATED, np.ones((4, 0))), "evaluations.npz cannot be read"),
    "steps that are not numbers": (npz(np.array([np.nan, 1.0]), np.ones((2, 5))), "evaluations.npz cannot be read"),
    "steps in disorder": (npz(EVALUATED[::-1], np.ones((4, 5))), "evaluations.npz cannot be read"),
    "complex returns": (npz(EVALUATED, np.full((4, 5), 1j)), "evaluations.npz cannot be read"),
    "one array": (saved_as_array, "evaluations.npz cannot be read"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    place = tmp_path_factory.mktemp("whole")
    for seed in range(3):
        write_run(place / f"run_{seed}", seed=seed, steps=20_000)
    return place


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_run_is_named_and_the_others_count(whole, name, tmp_path):
    shutil.copytree(whole, tmp_path / "runs")
    change, problem = DAMAGE[name]
    change(tmp_path / "runs/run_1")
    written = write_report([tmp_path / "runs"], tmp_path / "report").with_name("report.md").read_text()
    if problem:
        assert problem in written.split("`runs/run_1`: ", 1)[1]
    others = cell(read_study([tmp_path / "runs"]), "gpl-sac", "Hopper-v4", 20_000)
    assert len(others.scores) >= 2
    assert all(1000 < score < 5000 for score in others.scores)


def test_an_unexpected_error_makes_a_broken_run(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "runs")

    def fails(path, problems):
        if path.parent.name == "run_1":
            raise ZeroDivisionError("nobody thought\nof this")
        return {}

    monkeypatch.setattr("pessimism.analysis.report.runs._manifest", fails)
    states = {run.path.name: (run.state, run.problems) for run in read_study([tmp_path / "runs"]).runs}
    assert states["run_1"] == ("broken", ("cannot be read: ZeroDivisionError: nobody thought of this",))
    assert states["run_0"][0] == states["run_2"][0] == "done"


def test_seeds_in_a_plan_that_are_not_numbers_do_not_end_the_report(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "runs")
    plan = {"runs": [{"directory": "run_1", "label": "mine", "env": "Hopper-v4", "seed": "x"}]}
    (tmp_path / "runs/suite.json").write_text(json.dumps(plan))
    write_report([tmp_path / "runs"], tmp_path / "report")
