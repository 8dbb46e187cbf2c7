"""Never lost: a run killed with SIGKILL again and again ends as one that was never interrupted, bit for bit."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pessimism.config.presets import STATE_PRESETS
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.nn.compilation import compiler
from pessimism.training.checkpoint import CheckpointStore
from pessimism.training.run import run
from sameness import assert_same_run, final_tensors

COMMAND = """
train {preset} --env Hopper-v4 --steps 1500 --random-steps 100 --updates-per-step 2 --batch-size 32
--hidden 32 --critic.hidden 32 --critic.members 3 --compile false --threads 1 --evaluation.every 200
--evaluation.episodes 2 --bias.every 300 --bias.episodes 2 --checkpoint.every 40 --log.every 30
"""


def start(preset, out):
    arguments = [*COMMAND.format(preset=preset).split(), "--out", out]
    return subprocess.Popen([sys.executable, "-m", "pessimism", *arguments], stdout=subprocess.DEVNULL)


def wait_for_a_checkpoint_being_written(process, out):
    while process.poll() is None:
        if any(Path(out, "checkpoints").glob("*.writing")):
            return
        time.sleep(0.0002)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["gpl-sac", "gpl-xqc", "gpl-droq"])
def test_killed_at_any_moment_a_run_ends_the_same(preset):
    whole = start(preset, "whole")
    assert whole.wait(timeout=200) == 0
    chance = random.Random(0)
    kills = {"anywhere": 0, "while writing": 0}
    while (process := start(preset, "broken")).poll() is None:
        if kills["while writing"] < 2:
            wait_for_a_checkpoint_being_written(process, "broken")
            kind = "while writing"
        elif kills["anywhere"] < 3:
            time.sleep(chance.uniform(1.5, 5.0))  # from before the first step to far into the run
            kind = "anywhere"
        else:
            assert process.wait(timeout=200) == 0
            break
        if process.poll() is None:
            process.kill()
            kills[kind] += 1
        process.wait()
    assert kills["while writing"] >= 1
    assert kills["anywhere"] + kills["while writing"] >= 3
    assert_same_run("whole", "broken")


@pytest.mark.parametrize("algorithm", STATE_PRESETS)
def test_a_run_cut_into_pieces_is_the_same_run(small, algorithm):
    def train(steps, out):
        values = merge(preset_values(algorithm), {**small, "steps": steps, "updates_per_step": 2})
        assert run(validated(values), Path(out)).finished

    for steps in (39, 40, 73, 120):  # before learning starts, at its start, within an episode, the end
        train(steps, "pieces")
    train(120, "whole")
    for out in ("pieces", "whole"):  # how often it was asked is the only difference
        assert (Path(out) / "DONE").exists()
    assert_same_run("whole", "pieces")


KILLED = """
import json, os, signal, sys
from pathlib import Path
from pessimism import Callback
from pessimism.config.resolve import validated
from pessimism.training.run import run

class Kill(Callback):
    def on_step(self, progress):
        if progress.step == 80:
            os.kill(os.getpid(), signal.SIGKILL)

run(validated(json.loads(sys.argv[1])), Path("broken"), callbacks=[Kill()])
"""


@pytest.mark.slow
def test_killed_within_an_episode_that_is_learned_from_at_its_end(small):
    task = {"env": "pessimism.envs.toys:pessimism-toys/Constant-v0", "env_kwargs": {"length": 30}}
    config = validated(merge(preset_values("gpl-sac"), {**small, **task, "learn_at": "episode", "steps": 130}))
    killed = subprocess.run([sys.executable, "-c", KILLED, config.model_dump_json()], check=False)
    assert killed.returncode == -signal.SIGKILL
    checkpoint, _ = CheckpointStore(Path("broken"), keep=2).load(None)
    assert (checkpoint.step, checkpoint.state["learned"]) == (75, 60)
    assert run(config, Path("broken")).finished
    assert run(config, Path("whole")).finished
    assert_same_run("whole", "broken")


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("preset", "critic"),
    [
        pytest.param("gpl-sac", {"members": 3, "spectral": "reparameterised"}, id="gpl-sac-torch"),
        pytest.param("gpl-sac", {"members": 3}, id="gpl-sac-C++"),
        *(pytest.param(name, {}, id=f"{name}-C++") for name in ("gpl-droq", "gpl-dropout", "gpl-rlpd")),
    ],
)
def test_a_compiled_run_resumes_exactly_and_has_the_eager_runs_curve(small, preset, critic):
    def train(steps, out, compile):
        changes = {"steps": steps, "compile": compile, "critic": {"hidden": 32, **critic}}
        assert run(validated(merge(preset_values(preset), {**small, **changes})), Path(out)).finished

    train(60, "pieces", compile=True)
    train(90, "pieces", compile=True)
    train(90, "whole", compile=True)
    assert_same_run("whole", "pieces")
    train(90, "eager", compile=False)
    compiled, eager = (
        [json.loads(line) for line in Path(out, "metrics.jsonl").read_text().splitlines()]
        for out in ("whole", "eager")
    )
    for one, two in zip(compiled, eager, strict=True):
        assert one == pytest.approx(two, rel=1e-3, abs=1e-4)


def test_evaluation_and_bias_meter_leave_training_as_it_is(small):
    for out, every in (("with", 20), ("without", 0)):
        changes = {**small, "evaluation": {"every": every, "episodes": 2}, "bias": {"every": every, "episodes": 2}}
        run(validated(merge(preset_values("gpl-sac"), changes)), Path(out))
    first, second = final_tensors("with"), final_tensors("without")
    assert all(first[name].equal(second[name]) for name in first)
