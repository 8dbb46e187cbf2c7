"""What a report reads, counts and says: on runs that the library's own recorder wrote."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from pessimism.analysis.report import write_report
from pessimism.analysis.report.charts import number, ticks
from pessimism.analysis.report.content import document
from pessimism.analysis.report.runs import Evaluations, Run, read_run
from pessimism.analysis.report.series import cell, curve, score, seconds_per_thousand
from pessimism.analysis.report.study import read_study
from pessimism.analysis.report.text import escaped, latex, markdown
from pessimism.analysis.report.wording import seed_list
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.errors import UserError
from pessimism.training.run import run as train
from synthetic import copy_run, write_run


def said(*directories):
    """Return the report's Markdown with its escapes taken away and plain dashes."""
    return markdown(document(read_study(directories))).replace("\\", "").replace("\u2013", "-")


def run_with(steps, returns, every=10):
    evaluations = Evaluations(steps, [np.array(episodes, dtype=float) for episodes in returns])
    return Run(Path(), "a", "done", settings={"evaluation.every": every}, evaluations=evaluations)


def test_a_score_is_the_mean_of_the_episodes_in_the_window_before_the_milestone():
    run = run_with([10, 20, 30, 40], [[1, 1], [2, 4], [5, 7], [100, 100]])
    assert score(run, 30, 20) == (pytest.approx((2 + 4 + 5 + 7) / 4), 4)
    assert score(run, 30, 5) == (6.0, 2)
    assert score(run, 35, 5) == (6.0, 2)  # the last evaluation due by then
    assert score(run, 50, 20) == (None, 0)  # not that far
    assert score(run_with([10, 20], [[1, 1], [2, np.nan]]), 20, 10) == (None, 0)


def test_curves_use_steps_that_every_seed_on_its_way_has():
    first = run_with([10, 20, 30], [[1], [2], [3]])
    other = Run(Path(), "b", "unfinished", evaluations=Evaluations([10, 15, 20], [np.array([3.0])] * 3))
    found = curve([first, other], "eval/mean_reward")
    assert found.steps == [10, 20, 30]
    assert found.mean == [2.0, 2.5, 3.0]
    assert found.std == [1.0, 0.5, 0.0]
    assert found.seeds == [2, 2, 1]


def test_hours_are_added_up_over_restarts_and_random_steps_are_not_learning():
    elapsed = ([100, 200, 300, 400], [1.0, 11.0, 5.0, 25.0])  # the clock began anew before step 300
    run = Run(Path(), "a", "done", settings={"random_steps": 100}, timing={"time/elapsed": elapsed})
    hours, seconds = seconds_per_thousand(run)
    assert hours == pytest.approx((11 + 25) / 3600)
    assert seconds == pytest.approx(1000 * (10 + 20) / 200)


def test_the_paper_stands_beside_and_versions_stay_apart(tmp_path):
    for env in ("Hopper-v4", "Hopper-v5"):
        for seed in range(2):
            write_run(tmp_path / env / str(seed), env=env, seed=seed)
    text = said(tmp_path)
    for env in ("Hopper-v4", "Hopper-v5"):
        line = next(
            line for line in text.splitlines() if line.startswith(f"| {env} | gpl-sac |") and "3386" in line
        )
        assert "| 2 | - | 3386 ± 92 |" in line
        assert line.endswith("] | Hopper-v2 |")
        assert f"{env} here is Hopper-v2 in the paper: another version of the task" in text
    assert "Hopper-v4 and Hopper-v5 are versions of one task; they are kept apart everywhere" in text


def test_published_curves_of_another_version_say_so(tmp_path):
    write_run(tmp_path / "a", "redq", "Hopper-v5")
    text = said(tmp_path)
    assert "Published curves of REDQ (UTD20): Hopper-v4, another version than Hopper-v5 here (10 seeds)" in text


def test_variants_are_told_apart_by_what_differs(tmp_path):
    write_run(tmp_path / "a", steps=10_000)
    write_run(tmp_path / "b", steps=10_000, critic__members=5, log__every=50)
    assert read_study([tmp_path]).labels == ["gpl-sac", "gpl-sac (critic.members 5)"]
    text = said(tmp_path)
    assert "| critic.members | 10 | 5 |" in text
    assert "`critic.members = 5`" in text


def test_every_way_of_being_broken_is_named(tmp_path):
    for name in "abcdefgh":
        write_run(tmp_path / name, seed=ord(name), steps=20_000, reached=10_000 if name == "g" else None)
    (tmp_path / "a/config.yaml").unlink()
    (tmp_path / "b/config.yaml").write_text("seed: 3\n")
    (tmp_path / "c/metrics.jsonl").write_bytes(b'{"step": 5000, "bias/mean": NaN}\n\xff\xfe{\n')
    (tmp_path / "d/manifest.json").write_text("{")
    stored = dict(np.load(tmp_path / "e/evaluations.npz"))
    stored["results"][-1, 0] = np.nan
    np.savez(tmp_path / "e/evaluations.npz", **stored)
    (tmp_path / "f/DONE").write_text("")
    (tmp_path / "h/evaluations.npz").unlink()
    (tmp_path / "h/metrics.jsonl").unlink()
    text = said(tmp_path)
    name = tmp_path.name
    for line in (
        f"`{name}/a`: there is no config.yaml",
        f"`{name}/b`: config.yaml does not say algorithm and env",
        f"`{name}/c`: metrics.jsonl: line 2 is not whole; it is not used",
        f"`{name}/c`: bias/mean is not a number at step 5,000",
        f"`{name}/d`: manifest.json cannot be read",
        f"`{name}/e`: evaluations.npz has returns that are not numbers at step 20,000",
        f"`{name}/f`: DONE cannot be read",
        f"`{name}/g`: unfinished: 10,000 of 20,000 steps; may still be running",
        f"`{name}/h`: there is no metrics.jsonl",
        f"`{name}/h`: no evaluation yet",
    ):
        assert line in text
    study = read_study([tmp_path])
    found = cell(study, "gpl-sac", "Hopper-v4", 20_000)
    assert (len(found.scores), found.failed) == (3, 3)  # c, d and f count; e, g and h do not


def test_milestones_are_the_papers_and_the_end_or_where_half_of_the_runs_are(tmp_path):
    write_run(tmp_path / "gym", steps=200_000, every=50_000)
    assert read_study([tmp_path / "gym"]).milestones == [100_000, 200_000]
    write_run(tmp_path / "dmc", "drqv2", "dmc/cheetah-run", steps=1_500_000, every=250_000, top=900)
    assert read_study([tmp_path / "dmc"]).milestones == [750_000, 1_500_000]  # of two frames each
    assert "| dmc/cheetah-run | drqv2 |" in said(tmp_path / "dmc")
    assert "| 771 ± 24 |" in said(tmp_path / "dmc")
    for seed, reached in enumerate((10_000, 20_000, 30_000)):
        write_run(tmp_path / f"half/{seed}", seed=seed, reached=reached)
    assert read_study([tmp_path / "half"]).milestones == [20_000]


def test_the_same_seed_twice_counts_once_and_is_named(tmp_path):
    write_run(tmp_path / "a", steps=10_000)
    copy_run(tmp_path / "a", tmp_path / "b", 0)
    text = said(tmp_path)
    assert f"`{tmp_path.name}/b`: the same algorithm, task and seed as {tmp_path.name}/a: left out" in text
    assert len(cell(read_study([tmp_path]), "gpl-sac", "Hopper-v4", 10_000).scores) == 1


def test_mixed_library_versions_are_named(tmp_path):
    for name in "ab":
        write_run(tmp_path / name, seed=ord(name), steps=10_000)
    manifest = json.loads((tmp_path / "a/manifest.json").read_text())
    manifest["versions"]["mujoco"] = "2.3.0"
    (tmp_path / "a/manifest.json").write_text(json.dumps(manifest))
    assert "mujoco: 2.3.0 (1 run), 3." in said(tmp_path)


def write_suite(directory, **changed):
    runs = [
        {"directory": f"{label}/{seed}", "label": label, "env": "Hopper-v4", "seed": seed}
        for label in ("GPL-SAC", "N = 5")
        for seed in range(2)
    ]
    suite = {
        "name": "ensemble-size",
        "title": "More critics",
        "paper": "Figure 9",
        "claim": "more critics <b>help</b>",
        "protocol": {"milestones": [10_000], "window": 5000},
        "scale": ["steps: 100000 -> 10000"],
        "runs": runs,
    }
    (directory / "suite.json").write_text(json.dumps(suite | changed))


def test_a_suite_gives_names_protocol_and_what_is_missing(tmp_path):
    write_suite(tmp_path)
    for seed in range(2):
        write_run(tmp_path / "GPL-SAC" / str(seed), seed=seed, steps=10_000, every=1000)
    write_run(tmp_path / "N = 5/0", steps=10_000, every=1000, critic__members=5)
    (tmp_path / "N = 5/1").mkdir()
    (tmp_path / "N = 5/1/lock").touch()
    bench = {
        "setting": {"threads": 2},
        "rows": [
            {
                "name": "GPL-SAC",
                "seconds_per_1000_steps": 400.0,
                "ratio": 1.0,
                "paper_seconds_per_1000_steps": 76.1,
                "paper_ratio": 1.0,
                "missing": "",
            },
            {
                "name": "N = 5",
                "seconds_per_1000_steps": None,
                "ratio": None,
                "paper_seconds_per_1000_steps": 62.5,
                "paper_ratio": 62.5 / 76.1,
                "missing": "no memory",
            },
        ],
    }
    (tmp_path / "training_time.json").write_text(json.dumps(bench))
    for directory in (tmp_path, tmp_path / "GPL-SAC"):
        text = said(directory)
        assert text.startswith("# More critics\n")
        assert "Figure 9 of the paper claims: more critics <b>help</b>" in text
        assert "- steps: 100000 -> 10000" in text
        assert "| GPL-SAC | 400.0 | 1.00 | 1.00 | 76.1 |" in text
        assert "| N = 5 | no memory | - | 0.82 | 62.5 |" in text
        assert "in the 5,000 steps before (up to 25)" in text
    text = said(tmp_path)
    assert "- `N = 5/1`: planned, and nothing recorded yet" in text
    assert "| Hopper-v4 | N = 5 | 1 | - | - | 1 | 0 |" in text
    returns = [line for line in text.splitlines() if line.startswith("| Hopper-v4 | N = 5 |")]
    assert returns[1].endswith("| 1 | 1 | - | - | - |")  # one seed, one failed, nothing in the paper
    page = write_report([tmp_path], tmp_path / "report").read_text()
    assert "more critics &lt;b&gt;help&lt;/b&gt;" in page
    assert "<b>help" not in page


def test_a_suite_shows_runs_that_another_one_keeps(tmp_path):
    (tmp_path / "mine").mkdir()
    plan = {"directory": "../other/a", "label": "borrowed", "env": "Hopper-v4", "seed": 0}
    write_suite(tmp_path / "mine", runs=[plan])
    write_run(tmp_path / "other/a", steps=10_000)
    study = read_study([tmp_path / "mine"])
    assert [(run.label, run.state) for run in study.runs] == [("borrowed", "done")]


def test_a_suite_of_measured_times_alone_and_one_of_which_nothing_is_there(tmp_path):
    write_suite(tmp_path)
    text = said(tmp_path)
    assert "4 runs of 2 algorithms on 1 task: 4 missing." in text
    assert "- `GPL-SAC/0`: planned and not there" in text
    write_suite(tmp_path, runs=[])
    row = {"name": "GPL-SAC", "seconds_per_1000_steps": 400.0, "ratio": 1.0, "paper_ratio": 1.0}
    (tmp_path / "training_time.json").write_text(json.dumps({"rows": [row]}))
    text = said(tmp_path)
    assert "No runs, but measured times." in text
    assert "| GPL-SAC | 400.0 | 1.00 | 1.00 | - |" in text


def test_a_broken_suite_is_named_and_its_runs_are_shown(tmp_path):
    write_suite(tmp_path, runs=[{"label": "no directory"}])
    write_run(tmp_path / "a", steps=10_000)
    text = said(tmp_path)
    assert "suite.json cannot be read: 'directory'" in text
    assert "1 run of 1 algorithm on 1 task: 1 done." in text


def test_aggregates_need_common_tasks_and_scales_and_say_what_they_leave_out(tmp_path):
    for algorithm in ("gpl-sac", "sac-20"):
        for seed in range(2):
            write_run(tmp_path / f"{algorithm}/h{seed}", algorithm, "Hopper-v4", seed, steps=10_000)
            write_run(tmp_path / f"{algorithm}/p{seed}", algorithm, "Pendulum-v1", seed, steps=10_000)
    write_run(tmp_path / "ant", "gpl-sac", "Ant-v4", 0, steps=10_000)
    text = said(tmp_path)
    assert "Ant-v4 at 10,000 steps is left out, without a score of sac-20" in text
    assert "Pendulum-v1 has no published scale: only in the probability of improvement" in text
    assert "Over 1 tasks" not in text
    assert "Over 1 task," in text
    assert "Pendulum-v1 is not among the paper's tasks" in text


def test_files(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"runs/{seed}", "redq", seed=seed)
    page = write_report([tmp_path / "runs"], tmp_path / "out")
    assert page == tmp_path / "out/report.html"
    drawings = sorted((tmp_path / "out/figures").glob("*.svg"))
    assert (
        len(drawings) == page.read_text().count("<figure ") == (tmp_path / "out/report.md").read_text().count("![")
    )
    for drawing in drawings:
        assert ElementTree.parse(drawing).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert "published on Hopper-v4" in (tmp_path / "out/figures/return-hopper-v4.svg").read_text()
    first = page.read_bytes()
    assert write_report([tmp_path / "runs"], tmp_path / "out").read_bytes() == first


def test_latex_tables_are_whole(tmp_path):
    write_run(tmp_path / "a_b", "redq", steps=10_000)
    text = latex(document(read_study([tmp_path])))
    assert text.count("\\begin{") == text.count("\\end{")
    for part in text.split("\\toprule")[1:]:
        rows = [line for line in part.split("\\bottomrule")[0].splitlines() if line.endswith("\\\\")]
        assert len({line.replace("\\&", "").count("&") for line in rows}) == 1
    assert escaped("50 % of a_b ± {1} & [2]") == r"50 \% of a\_b $\pm$ \{1\} \& {[}2{]}"


def test_numbers_and_ticks():
    assert [number(value) for value in (0, 0.25, -3.5, 20_000, 1_500_000)] == [
        "0",
        "0.25",
        "\u22123.5",
        "20K",
        "1.5M",
    ]
    assert ticks(0, 100) == [0, 20, 40, 60, 80, 100]
    assert ticks(-0.3, 0.35) == pytest.approx([-0.2, 0, 0.2])
    assert seed_list([4, 0, 1, 2, None]) == "0\u20132, 4"


def test_impossible_values_are_refused_in_one_line(tmp_path):
    with pytest.raises(UserError, match="there is no directory nowhere"):
        write_report([Path("nowhere")], tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "runs").mkdir()
    with pytest.raises(UserError, match="cannot write to .*file.*; give another --out"):
        write_report([tmp_path / "runs"], tmp_path / "file")


@pytest.mark.slow
def test_a_real_run_from_the_command_line(small, tmp_path):
    train(validated(merge(preset_values("gpl-sac"), small)), tmp_path / "runs/seed_0")
    assert read_run(tmp_path / "runs/seed_0", "seed_0").problems == ()
    command = [sys.executable, "-m", "pessimism", "report", "runs"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout.strip()) == (0, "runs/report/report.html"), result.stderr
    text = (tmp_path / "runs/report/report.md").read_text()
    for part in ("Return on Hopper-v4", "Measured bias on Hopper-v4", "Beta on Hopper-v4", "Return at 120 steps"):
        assert part in text
