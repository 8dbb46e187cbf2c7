"""The benchmark: its protocol, its arithmetic and its list of products. Nothing here depends on the clock."""

import dataclasses
import io
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from pessimism import bench, processes
from pessimism.bench import limit, peers, turns, worker
from pessimism.bench.contestants import own_step
from pessimism.bench.paper import VARIANTS
from pessimism.bench.pixels import pixel_step
from pessimism.bench.report import Measurement, PaperReport, PaperRow, SpeedReport
from pessimism.bench.shares import run_shares
from pessimism.bench.worker import Setting
from pessimism.errors import UserError
from pessimism.processes import pinned

TINY = Setting(members=2, updates=2, batch=8, hidden=8, replay=100, cores=processes.choose_cores(1))


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=80)


def printed(console):
    return console.file.getvalue()


# --- workers -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_worker_runs_blocks_on_request():
    with turns.started(turns.Entry("tiny", TINY)) as contestant:
        contestant.run(2)
        contestant.run(1)
        process = contestant.process
    assert process.returncode == 0
    measurement = contestant.measurement()
    assert len(measurement.samples) == 2 and min(measurement.samples) > 0
    assert measurement.versions["torch"] == torch.__version__
    assert measurement.peak_mb > 10


@pytest.mark.slow
def test_worker_that_cannot_start_says_why():
    broken = dataclasses.replace(TINY, replay=-1)
    with (
        pytest.raises(UserError, match=r"^broken stopped: RuntimeError: .*negative"),
        turns.started(turns.Entry("broken", broken)),
    ):
        pass


def test_worker_needs_only_the_standard_library_to_begin():
    code = f"import runpy; runpy.run_path({worker.__file__!r})"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_what_libraries_print_does_not_reach_the_protocol():
    code = "from pessimism.bench.worker import *; c = protocol_channel(); print('noise'); send(c, {'seconds': 1.5})"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(result.stdout) == {"seconds": 1.5}
    assert result.stderr == "noise\n"


def test_all_libraries_get_the_same_threads():
    assert processes.pinned(1)["XLA_FLAGS"] == "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    assert {processes.pinned(3)[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")} == {"3"}


def test_turns_rotate_and_share_the_time(console):
    calls = []

    def fake(name, step_seconds):
        def run(steps):
            calls.append((name, steps))

        return SimpleNamespace(ready={"step_seconds": step_seconds}, run=run)

    turns.take_turns([fake("a", 0.5), fake("b", 1.0), fake("c", 100.0)], rounds=2, seconds=12.0, console=console)
    assert calls == [("a", 4), ("b", 2), ("c", 1), ("b", 2), ("c", 1), ("a", 4)]


@pytest.mark.parametrize("threads", [0, 100_000])
def test_impossible_threads_are_refused(threads):
    with pytest.raises(UserError, match="threads must be between 1 and"):
        processes.choose_cores(threads)


# --- contestants ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [variant.setting for variant in VARIANTS], ids=[v.name for v in VARIANTS])
def test_every_row_of_the_paper_learns(setting):
    tiny = dataclasses.replace(setting, batch=8, hidden=8, replay=100)
    step = pixel_step if setting.contestant.startswith("pixels-") else own_step
    if step is pixel_step:  # at its published size, as its presets are; uncompiled, and one small batch
        tiny = dataclasses.replace(tiny, contestant=f"{setting.contestant}-eager", batch=2)
    metrics = step(tiny)()
    assert all(metric.isfinite() for metric in metrics.values())


# --- the limit -----------------------------------------------------------------------------------------------

SMALL = Setting(members=2, updates=3, batch=5, obs_size=4, action_size=2, hidden=8)


def flops(setting):
    counts = {}
    for product in limit.products(setting):
        counts[product.purpose] = counts.get(product.purpose, 0) + product.flops
    return counts


def test_products_of_the_plain_critic():
    critic, policy = 6 * 8 + 8 * 8, 4 * 8 + 8 * 8 + 8 * 4  # weights, the critics' last layer left out
    assert flops(SMALL) == {
        "next actions": 2 * (3 * 5) * policy,
        "target critics": 2 * 2 * 5 * critic * 3,
        "critics": 2 * 2 * 5 * (critic + critic + 8 * 8) * 3,  # forward, weights, inputs of the second layer
        "policy": 2 * 5 * (policy + policy + 8 * 8 + 8 * 4),
        "critics of the policy": 2 * 2 * 5 * (critic + 8 * 8 + 2 * 8),  # down to the action
    }
    assert sum(flops(SMALL).values()) == 35_200


def test_products_of_the_residual_critic():
    residual = dataclasses.replace(SMALL, critic="residual")
    assert sum(flops(residual).values()) == 53_120


def test_first_layer_needs_no_gradient_of_its_input_in_the_critics_update():
    backward = [p for p in limit.products(SMALL) if p.purpose == "critics" and p.transposed == "right"]
    assert [(p.rows, p.inner, p.columns) for p in backward] == [(5, 8, 8)]


@pytest.mark.parametrize("transposed", ["neither", "left", "right"])
def test_operands_lie_as_in_the_update(transposed):
    left, right, result = limit.operands(limit.Product("", 2, 3, 4, 5, 1, transposed))
    assert (left.shape, right.shape, result.shape) == ((2, 3, 4), (2, 4, 5), (2, 3, 5))
    assert left.is_contiguous() == (transposed != "left")
    assert right.is_contiguous() == (transposed != "right")


@pytest.mark.parametrize("name", ["limit-batched", "limit-single"])
def test_limits_run(name):
    assert worker.timed(limit.limit_step(dataclasses.replace(SMALL, contestant=name)), 2) > 0


def test_batched_limit_does_every_product_as_often_as_the_step(monkeypatch):
    done = 0

    def count(left, right, *, out):
        nonlocal done
        done += 2 * left.shape[0] * left.shape[1] * left.shape[2] * right.shape[2]

    step = limit.limit_step(dataclasses.replace(SMALL, contestant="limit-batched"))
    monkeypatch.setattr(torch, "bmm", count)
    step()
    assert done == 35_200


# --- the report ----------------------------------------------------------------------------------------------

LINES = [
    Measurement("limit-batched", "plain", [0.1]),
    Measurement("limit-single", "plain", [0.05]),
    Measurement("pessimism-compiled", "plain", [0.3, 0.1, 0.2, 0.2, 0.2], warmup_seconds=12.0),
    Measurement("sb3", "plain", [0.8], note="more work"),
    Measurement("pessimism-eager", "residual", [0.5]),
]


def test_medians_and_quartiles():
    line = Measurement("x", "plain", [0.004, 0.001, 0.002, 0.005, 0.003])
    assert line.milliseconds == pytest.approx(3.0)
    assert line.quartiles == pytest.approx((2.0, 4.0))
    assert LINES[0].quartiles == pytest.approx((100.0, 100.0))


def test_speed_record():
    record = SpeedReport({"members": 10}, LINES, {"sbx (plain)": "sbx (plain) stopped: no module"}).record()
    first, sb3, eager = record["contestants"]
    assert (first["name"], first["critic"]) == ("pessimism-compiled", "plain")
    assert first["ms_per_env_step"] == pytest.approx(200.0)
    assert first["fraction_of_limit"] == pytest.approx(0.5)
    assert first["fraction_of_single_product"] == pytest.approx(0.25)
    assert first["warmup_seconds"] == 12.0
    assert sb3["ratio_to_fastest"] == pytest.approx(4.0)
    assert eager["fraction_of_limit"] is None and eager["ratio_to_fastest"] == 1.0
    assert [line["name"] for line in record["limits"]] == ["limit-batched", "limit-single"]
    json.dumps(record, allow_nan=False)


def test_speed_table_says_what_differs_and_what_is_missing(console):
    SpeedReport({"members": 10, "threads": 2}, LINES, {"sbx": "sbx stopped: [no] module"}).show(console)
    text = printed(console)
    assert "sb3: more work" in text
    assert "left out: sbx stopped: [no] module" in text
    assert "members 10, threads 2" in text
    assert "…" not in text


def test_paper_ratios(console):
    rows = [
        PaperRow("GPL-SAC", 76.1, Measurement("x", "residual", [0.4])),
        PaperRow("plain critic", 51.6, Measurement("x", "plain", [0.2])),
        PaperRow("GPL-QR-SAC (W1)", 86.6, None, "it stopped"),
    ]
    report = PaperReport({}, rows)
    report.show(console)
    _, plain, quantile = report.record()["rows"]
    assert plain["ratio"] == pytest.approx(0.5)
    assert plain["paper_ratio"] == pytest.approx(51.6 / 76.1)
    assert plain["seconds_per_1000_steps"] == pytest.approx(200.0)
    assert quantile["ratio"] is None and quantile["missing"] == "it stopped"
    assert "it stopped" in printed(console)


# --- commands ------------------------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch):
    """Measurements without processes: a step takes a millisecond per critic update."""

    def measure(entries, *, rounds, seconds, console):
        lines = {}
        for entry in entries:
            samples = [entry.setting.updates / 1000] * rounds
            name, critic = entry.setting.contestant, entry.setting.critic
            lines[entry.label] = Measurement(name, critic, samples, note=entry.note)
        return lines, {}

    monkeypatch.setattr(bench, "measure", measure)


def test_speed_command(measured, monkeypatch, console, tmp_path):
    monkeypatch.setattr(bench, "peers_python", lambda directory, console: directory / "python")
    bench.run_speed(rounds=2, peers=tmp_path, json_path=tmp_path / "speed.json", console=console)
    lines = json.loads((tmp_path / "speed.json").read_text())["contestants"]
    own = {(name, critic) for name in ("pessimism-compiled", "pessimism-eager") for critic in ("plain", "residual")}
    assert {(line["name"], line["critic"]) for line in lines} == own | {("sbx", "plain"), ("sb3", "plain")}
    assert {line["fraction_of_limit"] for line in lines} == {1.0}
    assert "sb3: more work than asked: updates the policy 20 times instead of once" in printed(console)


def test_speed_is_measured_without_peers(measured, console, tmp_path):
    (tmp_path / "bin").mkdir()
    report = bench.run_speed(peers=tmp_path, console=console)
    assert {line.name for line in report.contestants} == {"pessimism-compiled", "pessimism-eager"}
    assert "continuing without the peers" in printed(console)


def test_paper_command(measured, console, tmp_path):
    report = bench.run_paper(rounds=1, json_path=tmp_path / "paper.json", console=console)
    ratios = {row.name: report.ratio(row) for row in report.rows}
    assert (ratios["GPL-SAC"], ratios["GPL-DrQ"], ratios["REDQ"]) == (1.0, 1.0, 1.0)
    theirs = {row.name: report.paper_ratio(row) for row in report.rows}
    assert theirs["REDQ"] == pytest.approx(183.8 / 76.1)
    assert theirs["DrQv2"] == pytest.approx(111.2 / 111.3)
    pixels = next(row for row in report.rows if row.name == "GPL-DrQ")
    assert pixels.seconds == pytest.approx(0.5)  # a millisecond every two steps
    assert ratios["UTD = 5"] == pytest.approx(0.25) and ratios["N = 2"] == pytest.approx(1.0)
    assert len(json.loads((tmp_path / "paper.json").read_text())["rows"]) == 17


@pytest.mark.parametrize(("name", "value"), [("members", 1), ("updates", 0), ("batch", 0), ("rounds", 0)])
def test_impossible_sizes_are_refused(name, value, console):
    with pytest.raises(UserError, match=f"{name} must be at least"):
        bench.run_speed(**{name: value}, console=console)


def test_file_in_no_directory_is_refused_at_once(console, tmp_path):
    with pytest.raises(UserError, match="there is no directory"):
        bench.run_speed(json_path=tmp_path / "none" / "speed.json", console=console)


# --- the peers' environment ----------------------------------------------------------------------------------


def test_directory_without_the_peers_is_left_alone(console, tmp_path):
    (tmp_path / "precious").touch()
    with pytest.raises(UserError, match=r"not an environment with torch 2\.13\.0"):
        peers.peers_python(tmp_path, console)
    assert (tmp_path / "precious").exists()


def test_environment_that_cannot_be_made_leaves_nothing_behind(monkeypatch, console, tmp_path):
    def run(command):
        (tmp_path / "peers").mkdir(exist_ok=True)
        if "pip" in command:
            raise UserError("no network")
        return ""

    monkeypatch.setattr(peers, "run", run)
    with pytest.raises(UserError, match="no network"):
        peers.peers_python(tmp_path / "peers", console)
    assert not (tmp_path / "peers").exists()


def test_last_line_of_a_failing_command_is_the_error():
    code = "import sys; sys.exit('first\\nlast')"
    with pytest.raises(UserError, match=r"^cannot make the peers' environment: last$"):
        peers.run([sys.executable, "-c", code])


@pytest.mark.slow
def test_shares_of_a_real_run_add_up(tmp_path):
    small = {"critic": {"members": 2, "hidden": 8}, "hidden": 8, "batch_size": 8, "updates_per_step": 1}
    record = run_shares(
        steps=5, json_path=tmp_path / "shares.json", console=Console(quiet=True), compile=False, threads=1, **small
    )
    parts = record["ms_per_env_step"]
    assert {"update", "environment", "sampling", "logging", "evaluation", "checkpoint"} <= parts.keys()
    assert all(value > 0 for value in parts.values())
    assert json.loads((tmp_path / "shares.json").read_text())["ms_per_env_step"] == parts


def test_flags_that_are_set_for_xla_reach_the_contestants(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX2")
    flags = pinned(2)["XLA_FLAGS"].split()
    assert "--xla_cpu_max_isa=AVX2" in flags
    assert flags[-1] == "intra_op_parallelism_threads=2"
