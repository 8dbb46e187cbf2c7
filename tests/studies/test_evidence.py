"""From run directories to tables: nothing is dropped, blocks are whole, measures are the protocol's."""

import csv
import importlib.util
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from pessimism.experiments.suites.catalogue import SUITES
from pessimism.experiments.suites.suite import jobs

STUDY = Path(__file__).parents[2] / "studies" / "evidence"
sys.path.append(str(STUDY))  # its scripts share modules


def load(name):
    spec = importlib.util.spec_from_file_location(f"evidence_{name}", STUDY / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


collect, figures, run, blocks = (load(name) for name in ("collect", "figures", "run", "blocks"))
ARMS = list(blocks.ARMS["calibration"])


def make_run(arm, seed, *, bias, score, steps=12_000, failed=False, suite="calibration"):
    """Write a run whose normalised bias is `bias` and whose evaluations are `score`."""
    path = Path("runs") / suite / arm / "Hopper-v4" / f"seed_{seed}"
    path.mkdir(parents=True)
    with (path / "metrics.jsonl").open("w") as file:
        for step in range(500, steps + 1, 500):
            print(json.dumps({"step": step, "train/beta": 0.5}), file=file)
            if step % 1000 == 0:
                sign = -1 if step == 11_000 else 1
                meter = {
                    "bias/mean": 10 * sign * bias,
                    "bias/normalized_mean": sign * bias,
                    "bias/soft_return": 50.0,
                }
                signals = {"bias/training": 5 * sign * bias + seed, "bias/dual_td": 0.01}
                print(json.dumps({"step": step, **meter, **signals}), file=file)
    with (path / "timing.jsonl").open("w") as file:
        for step in range(500, steps + 1, 500):  # resumed after step 6000
            print(
                json.dumps({"step": step, "time/processor": (step if step <= 6000 else step - 6000) / 10}),
                file=file,
            )
    timesteps = np.arange(1000, steps + 1, 1000)
    results = np.tile([[score - 1.0, score + 1.0]], (len(timesteps), 1))
    np.savez(path / "evaluations.npz", timesteps=timesteps, results=results)
    (path / "manifest.json").write_text(json.dumps({"machine": {"instructions": ["AVX2"]}}))
    (path / "output.log").write_text("bias became nan; the last checkpoint is kept\n" if failed else "\n")
    if not failed:
        (path / "DONE").touch()


@pytest.fixture
def evidence(monkeypatch):
    for index, arm in enumerate(ARMS):
        for seed in range(3):
            make_run(arm, seed, bias=1.0 + index, score=100.0 * (1 + seed))
    failing = Path("runs/calibration/redq/Hopper-v4/seed_1")
    for file in failing.iterdir():
        file.unlink()
    failing.rmdir()
    make_run("redq", 1, bias=0.0, score=1e6, steps=7000, failed=True)
    make_run("fixed-0", 3, bias=1.0, score=1.0)  # the only arm with this seed
    monkeypatch.setattr(sys, "argv", ["collect.py", "runs", "--out", "data"])
    collect.main()
    return figures.Evidence("calibration", Path("data"), 12_000)


def test_blocks_have_all_arms(evidence):
    assert evidence.blocks == [("Hopper-v4", seed) for seed in range(3)]
    assert figures.Evidence("calibration", Path("data"), 13_000).blocks == []


def test_primary_measures_of_the_protocol(evidence):
    found = figures.measures(evidence)
    bias, returns = list(found.values())[:2]
    assert bias["fixed-0.5"][("Hopper-v4", 0)] == 2.0  # readings +2, -2, +2 from step 10,000 on
    assert found["signed normalised bias"]["fixed-0.5"][("Hopper-v4", 0)] == pytest.approx(2 / 3)
    assert found["abs. relative bias"]["fixed-0.5"][("Hopper-v4", 0)] == pytest.approx(20 / 50)
    assert returns["calibrated"][("Hopper-v4", 2)] == pytest.approx(300 / 200)  # by the mean of fixed 0.5


def test_returns_over_those_of_the_public_curve(evidence):
    over = figures.measures(evidence)[figures.OVER_REDQ]
    published = 556.3 + 0.2 * (1101.3 - 556.3)  # at 12,000 steps, between the points at 10,000 and 20,000
    assert over["calibrated"][("Hopper-v4", 1)] == pytest.approx(200 / published)


def test_paired_differences_have_students_interval_too():
    text = figures.shown_difference([np.array([1.0, 2.0, 3.0])], "+.2f")
    assert text == "+2.00 [+1.00, +3.00]; t [-0.48, +4.48]"  # 4.303 x 1 / sqrt(3), two degrees of freedom
    assert figures.shown_difference([np.array([1.0])], "+.2f") == "+1.00"


def test_processor_time_is_added_up_over_resumes(evidence):
    (run,) = [one for one in evidence.finished("calibrated", "Hopper-v4") if one["return"][0] == 100.0]
    assert run["processor"].tolist() == [step / 10 for step in range(1000, 12_001, 1000)]


def test_returns_over_minutes_are_those_of_finished_runs(monkeypatch, capsys):
    make_run("xqc-256", 0, bias=1.0, score=100.0, steps=30_000, suite="backbones")
    make_run("gpl-droq", 0, bias=1.0, score=100.0, steps=20_000, suite="backbones")
    monkeypatch.setattr(sys, "argv", ["collect.py", "runs", "--out", "data"])
    collect.main()
    monkeypatch.setattr(sys, "argv", ["figures.py", "--data", "data", "--out", "."])
    figures.main()
    text = capsys.readouterr().out
    assert "| Hopper-v4 | XQC, width 256 | 1 | 100 | 100 | 100 | 50 |" in text
    assert "GPL-DroQ" not in text
    assert Path("backbones.png").stat().st_size > 10_000


def test_backbones_have_bias_and_paired_differences_of_complete_blocks(monkeypatch, capsys):
    for seed in range(3):
        make_run("xqc-256", seed, bias=1.0, score=100.0, steps=30_000, suite="backbones")
        make_run("gpl-xqc-256", seed, bias=3.0, score=150.0, steps=30_000, suite="backbones")
    monkeypatch.setattr(sys, "argv", ["collect.py", "runs", "--out", "data"])
    collect.main()
    monkeypatch.setattr(sys, "argv", ["figures.py", "--data", "data", "--out", "."])
    figures.main()
    bias, returns = "+2.00 [+2.00, +2.00]; t [+2.00, +2.00]", "+0.50 [+0.50, +0.50]; t [+0.50, +0.50]"
    assert f"| GPL-XQC, width 256 | XQC, width 256 | {bias} | {returns} |" in capsys.readouterr().out
    assert Path("backbones-bias.png").stat().st_size > 10_000


def test_gpl_sac_of_other_suites_stands_beside_the_backbones(evidence):
    found = {other.arm: other.evidence for other in figures.gpl_sac_elsewhere(Path("data"))}
    assert list(found) == ["gpl-sac", "dual-1e-4"]
    assert found["dual-1e-4"].suite == "calibration"
    assert found["dual-1e-4"].finished("dual-1e-4", "Hopper-v4") == []  # 12,000 of 20,000 steps


def test_runs_that_stopped_early_are_not_in_the_curves(evidence):
    assert len(evidence.finished("redq", "Hopper-v4")) == 2
    assert len(evidence.finished("calibrated", "Hopper-v4")) == 3


def test_a_failed_run_is_the_worst_of_its_block(evidence):
    bias, returns = list(figures.measures(evidence).values())[:2]
    assert bias["redq"][("Hopper-v4", 1)] == 6.0
    assert returns["redq"][("Hopper-v4", 1)] == pytest.approx(1.0)


def test_tables_and_figures_come_from_the_files_alone(evidence, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["figures.py", "--data", "data", "--out", ".", "--until", "12000"])
    figures.main()
    text = capsys.readouterr().out
    same = "+0.00 [+0.00, +0.00]; t [+0.00, +0.00]"
    assert f"| calibrated | fixed 0.5 | +4.00 [+4.00, +4.00]; t [+4.00, +4.00] | {same} | {same} |" in text
    assert Path("calibration.png").stat().st_size > 10_000
    assert Path("tables.md").read_text() == text


def rows_of(name):
    with (Path("data") / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_another_machine_collected_stays_unless_a_run_has_come_further(evidence):
    (before,) = [row for row in rows_of("runs.csv") if row["arm"] == "redq" and row["seed"] == "1"]
    shutil.rmtree("runs")
    make_run("redq", 1, bias=3.0, score=1.0, steps=9000)
    make_run("redq", 2, bias=3.0, score=1.0, steps=5000)
    Path("runs/VERSION").write_text("0123456789\n")
    collect.main()
    runs = {(row["arm"], row["seed"]): row for row in rows_of("runs.csv")}
    assert len(runs) == 3 * len(ARMS) + 1
    assert (before["state"], before["version"]) == ("failed: bias became nan; the last checkpoint is kept", "")
    assert (runs["redq", "1"]["step"], runs["redq", "1"]["state"]) == ("9000", "done")
    assert (runs["redq", "1"]["instructions"], runs["redq", "1"]["version"]) == ("AVX2", "0123456")
    assert runs["redq", "2"]["step"] == "12000"
    readings = rows_of("calibration.csv")
    steps = [int(row["step"]) for row in readings if (row["arm"], row["seed"]) == ("redq", "1")]
    assert max(steps) == 9000 and len(steps) == len(set(steps))
    assert len([row for row in readings if (row["arm"], row["seed"]) == ("redq", "2")]) == 12


def test_finished_runs_that_were_collected_are_not_made_again(evidence, monkeypatch):
    monkeypatch.setattr(run, "COLLECTED", Path("data/runs.csv"))
    known = run.collected()
    assert known["calibration", "redq", "Hopper-v4", "seed_0"] == 12_000
    assert ("calibration", "redq", "Hopper-v4", "seed_1") not in known  # failed


def test_arms_that_share_runs_have_the_same_settings():
    for (suite, arm), (home, name) in blocks.SAME.items():
        twin, original = (
            next(job.config() for job in jobs(SUITES[where]) if f"{what}/Hopper-v4/seed_0" in job.directory)
            for where, what in ((suite, arm), (home, name))
        )
        assert twin == original
        assert all(not job.directory.startswith(arm) for job in run.runs_of((suite, "Hopper-v4", 0, 20_000), []))


def test_some_arms_can_be_asked_for():
    found = run.runs_of(("backbones", "Hopper-v4", 1, 30_000), ["xqc", "gpl-droq"])
    assert [job.directory for job in found] == ["xqc/Hopper-v4/seed_1", "gpl-droq/Hopper-v4/seed_1"]


def test_stages_extend_each_other():
    blocks = list(run.blocks())
    assert blocks[:3] == [("calibration", "Hopper-v4", seed, 20_000) for seed in range(3)]
    assert len(blocks) == len(set(blocks))
    last = {}
    for suite, task, seed, steps in blocks:
        assert steps > last.get((suite, task, seed), 0)
        last[suite, task, seed] = steps
    assert {seed for suite, _, seed in last if suite == "calibration"} == set(range(5))
