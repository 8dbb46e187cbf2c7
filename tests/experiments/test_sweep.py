"""Sweeps on this machine, as real processes: skipped when done, resumed when cut off, retried when killed."""

import io
import json
import os
import signal
import sys
import types
from pathlib import Path

import pytest
from rich.console import Console

from pessimism.analysis.report.wording import duration
from pessimism.cli import main
from pessimism.config.resolve import parse_axes, resolved
from pessimism.errors import UserError
from pessimism.experiments.suites.suite import Job
from pessimism.experiments.sweep import work
from pessimism.experiments.sweep.conduct import write_record
from pessimism.experiments.sweep.cost import Cost
from pessimism.experiments.sweep.launch import Resources
from pessimism.experiments.sweep.overview import Overview, Status, progress
from pessimism.experiments.sweep.plan import ProgressLine, cost_key, estimate, makespan
from pessimism.training.sinks import WandbSink
from sweeps import SMALL, TASK, checkpointed, finish, start, train_alone, trainer_below, wait_until


@pytest.mark.slow
def test_runs_are_made_once_and_a_failure_is_reported_with_its_reason():
    words = ["sweep", "gpl-sac", *TASK, "NoSuch-v0", "--seeds", 1, "--steps", 105, *SMALL, "--workers", 2]
    code, printed = finish(start(*words))
    assert code == 1, printed
    assert "2 runs: 1 done, 1 failed" in printed
    assert "done: gpl-sac on InvertedPendulum-v4, seed 0, 105 steps" in printed  # five after the last logged line
    assert "failed: gpl-sac on NoSuch-v0, seed 0: unknown environment NoSuch-v0" in printed
    suite = json.loads(Path("runs/sweep/suite.json").read_text())
    assert [run["directory"] for run in suite["runs"]] == [
        "gpl-sac/InvertedPendulum-v4/seed_0",
        "gpl-sac/NoSuch-v0/seed_0",
    ]
    run = Path("runs/sweep/gpl-sac/InvertedPendulum-v4/seed_0")
    assert (run / "DONE").exists()
    assert "done: 105 steps" in (run / "output.log").read_text()
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    code, printed = finish(start(*[word for word in words if word != "NoSuch-v0"]))
    assert (code, printed.strip().splitlines()[-1]) == (0, "1 runs: 1 done")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


RUN = Path("all/gpl-sac/InvertedPendulum-v4/seed_3")


def sweep_until(condition, steps):
    """Start a sweep of one run; return it and the process that trains as soon as the condition holds."""
    sweep = start(
        "sweep", "gpl-sac", *TASK, "--seeds", "3-3", "--steps", steps, *SMALL, "--out", "all", "--threads", 1
    )
    wait_until(lambda: condition() or sweep.poll() is not None)
    assert sweep.poll() is None, sweep.communicate()
    return sweep, trainer_below(sweep.pid)


@pytest.mark.slow
def test_a_sweep_that_is_stopped_or_killed_leaves_checkpoints_and_no_processes():
    sweep, _ = sweep_until(lambda: checkpointed(RUN), steps=10_000)
    sweep.send_signal(signal.SIGINT)
    code, printed = finish(sweep)
    assert (code, "the same command resumes" in printed) == (130, True), printed
    assert "stopped at step" in (RUN / "output.log").read_text().splitlines()[-1]

    size = (RUN / "metrics.jsonl").stat().st_size
    sweep, trainer = sweep_until(lambda: (RUN / "metrics.jsonl").stat().st_size > size, steps=10_000)
    sweep.kill()  # the run notices that it is alone
    sweep.communicate()
    wait_until(lambda: not Path(f"/proc/{trainer}").exists())
    assert "stopped at step" in (RUN / "output.log").read_text().splitlines()[-1]
    assert not (RUN / "DONE").exists()


@pytest.mark.slow
def test_a_run_whose_process_is_killed_ends_as_if_nothing_had_happened():
    sweep, trainer = sweep_until(lambda: checkpointed(RUN), steps=250)
    os.kill(trainer, signal.SIGKILL)
    code, printed = finish(sweep)
    assert code == 0, printed
    output = (RUN / "output.log").read_text()
    assert "killed by SIGKILL" in output
    assert "resuming from the checkpoint" in output
    assert (RUN / "metrics.jsonl").read_bytes() == train_alone("alone", "--seed", 3, "--steps", 250)


def some_work(path):
    return work.Work(str(path), str(path / "run"), ("train", "gpl-sac"), threads=1)


@pytest.mark.parametrize(
    ("codes", "state", "reason"),
    [
        ([0], "done", ""),
        ([-9, -9, 0], "done", ""),
        ([-9] * 4, "failed", "killed by SIGKILL 4 times; out of memory?"),
        ([2], "failed", "it printed nothing"),
        ([1], "failed", "it printed nothing"),
        ([130], "stopped", "it printed nothing"),
    ],
)
def test_only_what_was_killed_is_tried_again(monkeypatch, tmp_path, codes, state, reason):
    left = list(codes)
    monkeypatch.setattr(work, "attend", lambda *_: left.pop(0))
    monkeypatch.setattr(work, "last_line", lambda _: "it printed nothing")
    assert work.carry_out(some_work(tmp_path), lambda: 0) == work.Outcome(state, reason)
    assert not left


def test_nothing_is_started_after_a_request_to_stop(tmp_path):
    assert work.carry_out(some_work(tmp_path), lambda: 1).state == "stopped"
    assert not (tmp_path / "run").exists()


def test_done_means_these_settings_and_so_many_steps(tmp_path):
    config = resolved("gpl-sac", {"env": "Hopper-v4", "steps": 100})
    assert not work.is_done(tmp_path, config)
    (tmp_path / "config.yaml").write_text("env: Hopper-v4\ntarget_entropy: -1.0\nsteps: 150\n")
    assert not work.is_done(tmp_path, config)
    (tmp_path / "DONE").write_text('{"step": 150, "episodes": 3}')
    assert work.is_done(tmp_path, config)
    assert not work.is_done(tmp_path, config.model_copy(update={"steps": 151}))
    assert not work.is_done(tmp_path, config.model_copy(update={"batch_size": 32}))


def test_progress_is_read_from_a_log_that_is_being_written(tmp_path):
    log = tmp_path / "metrics.jsonl"
    assert progress(log) == (0, None)
    lines = [{"step": 10, "eval/mean_reward": 1.5}, {"step": 20, "train/beta": 0.5}]
    log.write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 30, "tra')
    assert progress(log) == (20, 1.5)
    log.write_text("x" * 20_000 + "\n" + json.dumps(lines[1]) + "\n")
    assert progress(log) == (20, None)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr("pessimism.experiments.sweep.overview.time.monotonic", lambda: self.now)


def sweep_of(tmp_path, count, steps, random_steps, before=0):
    statuses = []
    for index in range(count):
        path = tmp_path / str(index)
        path.mkdir()
        if before:
            (path / "metrics.jsonl").write_text(json.dumps({"step": before}) + "\n")
        job = Job(str(index), "gpl-sac", "gpl-sac", {"env": "Hopper-v4"})
        statuses.append(Status(job, work.Work(str(tmp_path), str(path), (), 1), steps, random_steps))
    return statuses


def write_step(status, step):
    Path(status.work.path, "output.log").write_text("started")
    with Path(status.work.path, "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step}) + "\n")


@pytest.mark.parametrize("before", [0, 800])
def test_time_left_counts_neither_compilation_nor_the_quick_random_steps(tmp_path, monkeypatch, before):
    """Two of four runs learn at 10 steps a second each, after 5 minutes in which nothing is learned."""
    clock = Clock(monkeypatch)
    statuses = sweep_of(tmp_path, 4, steps=4600, random_steps=500, before=before)
    overview = Overview(statuses, Console(file=io.StringIO()))
    for seconds, step in ((1, 500), (300, 1000), (30, 1300), (30, 1600)):
        clock.now += seconds
        for status in statuses[:2]:
            if step > before:
                write_step(status, step)
        overview.refresh()
    open_steps = 2 * 3000 + 2 * (4600 - max(500, before))
    assert (
        overview.summary()
        == f"4 runs: 2 running, 2 waiting; about {open_steps / 20 / 60:.0f} minutes left at the speed so far"
    )


def test_no_time_left_is_told_before_a_run_has_learned_for_a_while(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    statuses = sweep_of(tmp_path, 1, steps=1000, random_steps=100)
    overview = Overview(statuses, Console(file=io.StringIO()))
    for step in (100, 200, 300):
        clock.now += 5
        write_step(statuses[0], step)
        overview.refresh()
    assert overview.summary() == "1 runs: 1 running"


def test_seeds_and_tasks_that_are_added_later_join_the_earlier_runs(tmp_path):
    """The file names all runs that are there; only new ones are started (see is_done)."""

    def entry(env, seed):
        return {"directory": f"{env}/seed_{seed}", "label": "gpl-sac", "env": env, "seed": seed}

    def sweep(*runs, scale=()):
        write_record(tmp_path, {"name": "try", "runs": list(runs), "scale": list(scale)})
        return json.loads((tmp_path / "suite.json").read_text())

    def train(env, seed):
        (tmp_path / f"{env}/seed_{seed}").mkdir(parents=True)
        (tmp_path / f"{env}/seed_{seed}/config.yaml").touch()

    sweep(entry("A", 0), entry("A", 1))
    train("A", 0)  # and seed 1 was never started
    found = sweep(entry("A", 2), entry("B", 0), scale=["seeds: 0, 1, 2 -> 2", "tasks: A, B -> B", "steps: 9 -> 3"])
    assert [run["directory"] for run in found["runs"]] == ["A/seed_0", "A/seed_2", "B/seed_0"]
    assert found["scale"] == ["seeds: 0, 1, 2 -> 0, 2", "steps: 9 -> 3"]
    train("A", 2)
    assert len(sweep(entry("A", 2))["runs"]) == 2  # none twice
    write_record(tmp_path, {"name": "another", "runs": [entry("C", 0)], "scale": []})
    assert len(json.loads((tmp_path / "suite.json").read_text())["runs"]) == 1


def test_measuring_says_how_far_it_is_in_a_pipe_too(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("pessimism.experiments.sweep.plan.time.monotonic", lambda: now[0])
    out = io.StringIO()
    with ProgressLine(30, Console(file=out, width=200)) as line:
        for _ in range(30):
            now[0] += 9
            line.one_more()
    lines = out.getvalue().splitlines()
    assert lines[0] == "measuring 30 settings, about 3 minutes; the first one is also compiled"
    assert lines[1:4] == [f"measured {done} of 30 settings" for done in (3, 6, 9)]


def test_times_are_told_in_the_unit_that_suits_them():
    assert [duration(seconds) for seconds in (40, 600, 7000, 200_000)] == [
        "40 seconds",
        "10 minutes",
        "1.9 hours",
        "2.3 days",
    ]


def test_runs_in_different_directories_have_different_ids_at_wandb(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=lambda **values: asked.append(values)))
    config = {"algorithm": "gpl-sac", "env": "dmc/cheetah-run", "seed": 0}
    for name in ("members=2", "members=5", "members=2"):
        WandbSink("project", tmp_path / name, config)
    first, second, again = (values["id"] for values in asked)
    assert first == again != second
    assert first.startswith("gpl-sac-dmc_cheetah-run-0-")


def test_runs_share_the_cores(monkeypatch):
    monkeypatch.setattr("pessimism.experiments.sweep.launch.choose_cores", lambda _: range(8))
    assert Resources().here(runs=100) == (8, 1)
    assert Resources().here(runs=2) == (2, 4)
    assert Resources(workers=3).here(runs=100) == (3, 2)
    assert Resources(threads=4).here(runs=100) == (2, 4)
    assert Resources(workers=16).here(runs=100) == (16, 1)
    with pytest.raises(UserError, match="at least 1"):
        Resources(workers=0).check()
    with pytest.raises(UserError, match="this machine"):
        Resources(workers=2, ray="auto").check()


def test_options_of_a_grid():
    rest = ["--critic.members", "2,5", "--pessimism.arms", "[0, 1],[0, 2]", "--env-kwargs={a: 1, b: 2}"]
    assert parse_axes(rest) == {
        "critic.members": [2, 5],
        "pessimism.arms": [[0, 1], [0, 2]],
        "env_kwargs": [{"a": 1, "b": 2}],
    }
    Path("some.yaml").write_text("critic: {members: 7, hidden: 32}")
    assert parse_axes(["--critic.members", "3", "--config", "some.yaml"]) == {
        "critic.members": [3],
        "critic.hidden": [32],
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("sweep gpl-sac", "--env is missing"),
        ("sweep gpl-sac --env Hopper-v4 --critic.menbers 2,3", "did you mean --critic.members"),
        ("sweep gym redq", "unexpected redq"),
        ("sweep redq --env Hopper-v4 --scale 0.1", "for a suite of the paper"),
        ("sweep redq --env Hopper-v4 --seeds some", "neither a number of seeds"),
        ("sweep redq --env Hopper-v4 --pessimism.subset 11", "cannot be drawn from 10 critics"),
        ("reproduce gym-100", "did you mean gym-100k"),
        ("reproduce gym --batch-size 32,64", "takes one value with a suite"),
    ],
)
def test_mistakes_are_answered_in_one_line(capsys, words, expected):
    assert main(words.split()) == 2
    assert expected in capsys.readouterr().err
    assert not Path("runs").exists()


def test_the_list_of_suites(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["reproduce", "--list"]) == 0
    printed = capsys.readouterr().out
    assert "Table 4, App. C.1" in printed
    assert "training-time" in printed


def test_the_arithmetic_of_a_plan(tmp_path):
    assert makespan([3.0, 2.0, 2.0], workers=2) == 4.0
    assert makespan([3.0, 2.0], workers=8) == 3.0
    asked = {"env": "Hopper-v4", "steps": 1100, "random_steps": 100, "checkpoint.keep": 2, "log.every": 110}
    asked |= {"evaluation.every": 550, "evaluation.episodes": 3, "bias.every": 0, "replay_capacity": 500}
    job = Job("here", "", "gpl-sac", asked)
    cost = Cost(act=0.5, evaluate=0.25, learn=4.0, episode=10, row_bytes=8.0, state_bytes=1000)
    guess = estimate(job, cost, 0.5, tmp_path, threads=1)
    assert guess.seconds == 100 * 0.5 + 1000 * 4.0 * 0.5 + 2 * 3 * 10 * 0.25
    assert guess.bytes == 500 * 8.0 + 2 * 1000 + 10 * 600


def test_settings_that_cost_the_same_are_measured_once():
    def key(**changes):
        return cost_key(resolved("gpl-sac", {"env": "Hopper-v4", **changes}))

    assert key(seed=3, steps=10, pessimism={"beta": 0.25}) == key()
    assert key(critic={"members": 5}) != key()
    assert key(pessimism={"name": "fixed"}) != key()
    assert key(env="Ant-v4") != key()


@pytest.mark.slow
def test_a_plan_measures_and_starts_nothing():
    code, printed = finish(start("sweep", "gpl-sac", *TASK, "--seeds", 2, "--steps", 1000, *SMALL, "--plan"))
    assert code == 0, printed
    assert "1 distinct settings measured" in printed
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_figure_of_the_paper_from_runs_to_report():
    sizes = [
        word for pair in zip(SMALL[::2], SMALL[1::2], strict=True) if pair[0] != "--critic.members" for word in pair
    ]
    code, printed = finish(start("reproduce", "bias", "--envs", TASK[1], "--seeds", 1, "--scale", 0.001, *sizes))
    assert code == 0, printed
    assert "steps: 200000 -> 200\n" in printed
    report = Path(printed.strip().splitlines()[-1].removeprefix("report: "))
    assert report.exists()
