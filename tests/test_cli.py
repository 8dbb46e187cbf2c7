"""The command line as a real process: what it prints, how it ends, and what it leaves behind."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from pessimism.cli import main

SMALL = """
--random-steps 40 --updates-per-step 2 --batch-size 16 --hidden 16 --critic.hidden 16
--critic.members 3 --compile false --threads 1 --evaluation.episodes 2 --bias.episodes 2
--log.tensorboard false
""".split()

ODD_ENVS = """
import gymnasium, numpy as np
from gymnasium import spaces

class Odd(gymnasium.Env):
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, obs="vector", actions="bounded", poison=None):
        self.count, self.poison = 0, poison
        if obs == "dict":
            self.observation_space = spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2,))})
        if obs == "image":
            self.observation_space = spaces.Box(0, 255, (84, 84, 3), np.uint8)
        if actions == "unbounded":
            self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2), {}

    def step(self, action):
        self.count += 1
        poisoned = self.count == 70
        obs = np.full(2, np.nan) if poisoned and self.poison == "obs" else np.zeros(2)
        reward = np.inf if poisoned and self.poison == "reward" else 1.0
        return obs, reward, False, self.count % 10 == 0, {}

gymnasium.register("Odd-v0", Odd)
"""


def call(*arguments, **keywords):
    command = [sys.executable, "-m", "pessimism", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **keywords)


def refused(*arguments, left=(), **keywords):
    """Run a command that must fail with one line, exit code 2 and no trace; return the line."""
    before = sorted(path.name for path in Path.cwd().iterdir())
    result = call(*arguments, **keywords)
    lines = result.stderr.strip().splitlines()
    assert result.returncode == 2, result.stdout + result.stderr
    assert len(lines) == 1, result.stderr
    after = sorted(path.name for path in Path.cwd().iterdir() if path.name != "__pycache__")
    assert after == sorted({*before, *left})
    return lines[0]


def test_list_shows_algorithms_presets_and_tasks():
    result = call("list")
    assert result.returncode == 0
    for word in ("gpl-sac", "sac-20", "Humanoid-v4", "paper"):
        assert word in result.stdout
    one = call("list", "sac-20", env=os.environ | {"COLUMNS": "200"})
    assert "critic.members" in one.stdout
    assert "App. B.2, SAC-20" in one.stdout


def test_help_names_every_setting():
    result = call("train", "gpl-sac", "--help", env=os.environ | {"COLUMNS": "250"})
    assert result.returncode == 0
    for option in ("--env", "--pessimism.beta", "--critic.members", "--random-steps", "--bias.tail"):
        assert option in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train gpl-sax --env Hopper-v4", "unknown algorithm gpl-sax; did you mean gpl-sac"),
        ("train gpl-sac --env Hopper-v4 --sed 3", "unknown option --sed; did you mean --seed"),
        ("train gpl-sac --env Hopper-v4 --critic.member 3", "did you mean --critic.members"),
        ("train gpl-sac --env Hopper-v4 --seed", "--seed needs a value"),
        ("train gpl-sac", "env is missing"),
        ("train gpl-sac --env Hopper-v4 --steps -3", "steps"),
        ("train gpl-sac --env Hopper-v4 --config nowhere.yaml", "nowhere.yaml cannot be read"),
        ("trian gpl-sac", "invalid choice: 'trian'"),
        ("eval nowhere", "nowhere holds no run"),
        ("plot nowhere", "nowhere holds no run"),
        ("list nothing", "unknown algorithm nothing"),
    ],
)
def test_mistakes_are_answered_with_one_line(arguments, message):
    assert message in refused(*arguments.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--env Hoper-v4", "unknown environment Hoper-v4; did you mean Hopper-v"),
        ("--env CartPole-v1", "Discrete actions"),
        ("--env odd:Odd-v0 --env-kwargs {actions: unbounded}", "unbounded actions"),
        ("--env odd:Odd-v0 --env-kwargs {obs: dict}", "Dict observations"),
        ("--env odd:Odd-v0 --env-kwargs {obs: image}", "image observations"),
        ("--env Hopper-v4 --env-kwargs {gravity: 0}", "cannot be made"),
        ("--env Hopper-v4 --out odd.py/run", "cannot write to odd.py/run"),
        ("--env Hopper-v4 --device cuda", "no CUDA device"),
    ],
)
def test_tasks_that_cannot_be_trained_are_refused(arguments, message):
    Path("odd.py").write_text(ODD_ENVS)
    assert message in refused("train", "gpl-sac", *arguments.split(" ", 3))


@pytest.mark.slow
def test_train_eval_bias_and_what_a_run_leaves():
    result = call("train", "gpl-sac", "--env", "Hopper-v4", "--steps", 90, "--out", "run", *SMALL,
                  "--evaluation.every", 30, "--bias.every", 45, "--checkpoint.every", 40)  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "replay of up to 90 transitions" in result.stdout
    assert "step 60  return" in result.stdout
    names = {path.name for path in Path("run").iterdir()}
    assert {"config.yaml", "manifest.json", "metrics.jsonl", "evaluations.npz", "0.monitor.csv", "DONE"} <= names
    with np.load("run/evaluations.npz") as file:
        assert file["timesteps"].tolist() == [30, 60, 90]
        assert file["results"].shape == file["ep_lengths"].shape == (3, 2)
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert (config["target_entropy"], config["critic"]["members"]) == (-1.0, 3)
    again = call("train", "gpl-sac", "--env", "Hopper-v4", "--steps", 90, "--out", "run", *SMALL,
                 "--evaluation.every", 30, "--bias.every", 45)  # fmt: skip
    assert "is done: 90 steps" in again.stdout
    assert "after 90 steps, 3 episodes" in call("eval", "run", "--episodes", 3).stdout
    assert "predicted" in call("bias", "run", "--episodes", 2).stdout


@pytest.mark.slow
def test_another_config_in_the_same_directory_is_refused_with_the_difference():
    start = ("train", "gpl-sac", "--env", "Hopper-v4", "--steps", 30, "--out", "run", *SMALL)
    assert call(*start).returncode == 0
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    line = refused(*start, "--pessimism.beta", 0.7, "--seed", 1)
    assert "seed: 0 there, 1 asked for" in line
    assert "pessimism.beta: 0.5 there, 0.7 asked for" in line
    assert {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_directory_with_other_things_in_it_is_left_alone():
    Path("thesis").mkdir()
    Path("thesis/chapter.tex").write_text("dear to me")
    assert "holds no run (chapter.tex)" in refused("train", "sac", "--env", "Hopper-v4", "--out", "thesis", *SMALL)
    assert [path.name for path in Path("thesis").iterdir()] == ["chapter.tex"]


@pytest.mark.slow
@pytest.mark.parametrize(("poison", "what"), [("obs", "observation with nan"), ("reward", "reward inf")])
def test_nan_stops_the_run_with_one_line_and_keeps_the_checkpoint(poison, what):
    Path("odd.py").write_text(ODD_ENVS)
    line = refused(
        "train", "gpl-sac", "--env", "odd:Odd-v0", "--env-kwargs", f"{{poison: {poison}}}", "--steps", 200,
        "--out", "run", *SMALL, "--checkpoint.every", 25, "--evaluation.every", 0, "--bias.every", 0, left=["run"],
    )  # fmt: skip
    assert what in line
    assert "step 70, episode 6" in line
    assert sorted(path.name for path in Path("run/checkpoints").iterdir())[-1] == "step_000000050"


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_the_checkpoint_before_it_is_kept():
    """A limit on the size of files stands in for a disk without room: writing fails in the same place."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))  # noqa: E731
    line = refused(
        "train", "sac", "--env", "Hopper-v4", "--steps", 2000, "--out", "run", *SMALL, "--checkpoint.every", 700,
        "--evaluation.every", 0, "--bias.every", 0, "--critic.hidden", 4, "--hidden", 4, left=["run"],
        preexec_fn=limit,
    )  # fmt: skip
    assert "cannot write" in line


@pytest.mark.slow
def test_ctrl_c_keeps_the_state_and_says_how_to_resume():
    command = [sys.executable, "-m", "pessimism", "train", "gpl-sac", "--env", "Hopper-v4", "--steps", "100000",
               "--out", "run", *SMALL, "--checkpoint.every", "1000000"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (Path("run") / "metrics.jsonl").exists() or Path("run/metrics.jsonl").stat().st_size < 2000:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command resumes it" in out
    assert not err
    assert len(list(Path("run/checkpoints").iterdir())) == 1


@pytest.mark.slow
def test_one_run_is_trained_by_one_process():
    start = ["train", "gpl-sac", "--env", "Hopper-v4", "--steps", "100000", "--out", "run", *SMALL]
    process = subprocess.Popen([sys.executable, "-m", "pessimism", *start], stdout=subprocess.DEVNULL)
    try:
        while not Path("run/manifest.json").exists():
            time.sleep(0.05)
        assert "another process trains in run" in refused(*start)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_settings_come_from_a_file_and_the_command_line_overrides_it():
    Path("mine.yaml").write_text(
        textwrap.dedent("""
            env: Hopper-v4
            steps: 20
            lr: 1e-3
            critic: {members: 4}
            pessimism: {name: fixed, beta: 0.25}
        """)
    )
    result = call("train", "gpl-sac", "--critic.hidden", 8, "--config", "mine.yaml", "--steps", 25, "--out", "run")
    assert result.returncode == 0, result.stderr
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert (config["steps"], config["lr"], config["critic"]["members"]) == (25, 1e-3, 4)
    assert (config["pessimism"]["name"], config["pessimism"]["beta"]) == ("fixed", 0.25)
    Path("typo.yaml").write_text("crtic: {members: 4}")
    assert "unknown setting crtic" in refused("train", "gpl-sac", "--env", "Hopper-v4", "--config", "typo.yaml")


def test_an_algorithm_is_not_a_setting_of_another(capsys):
    assert main(["train", "gpl-sac", "--env", "Hopper-v4", "--algorithm", "redq"]) == 2
    assert capsys.readouterr().err.startswith("pessimism: algorithm = redq does not go with gpl-sac")
