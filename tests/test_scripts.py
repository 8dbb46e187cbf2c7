"""The scripts in benchmarks/ and studies/: each explains itself, answers a mistake with one line, and runs."""

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = [
    str(path.relative_to(ROOT))
    for folder in ("benchmarks", "studies")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if '__name__ == "__main__"' in path.read_text()
]
SMALL_MODEL = """
env_kwargs: {max_episode_steps: 20}
random_steps: 30
steps: 60
batch_size: 8
hidden: 8
critic: {hidden: 8}
model: {hidden: 8, rollouts: 20, train_every: 10, patience: 1}
"""


@pytest.fixture
def script(capsys, monkeypatch):
    """Run a script as if from the command line; return exit code, output and errors."""

    def start(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        monkeypatch.syspath_prepend((ROOT / name).parent)  # as the interpreter does
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / name), run_name="__main__")
        return ended.value.code or 0, *capsys.readouterr()

    return start


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_is_the_scripts_own_text(name, script):
    code, out, _ = script(name, "--help")
    assert code == 0
    assert "usage:" in out
    first = (ROOT / name).read_text().removeprefix('"""').splitlines()[0].removesuffix('"""')
    assert " ".join(first.split()[:6]) in " ".join(out.split())


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_mistake_is_one_line(name, script):
    code, out, errors = script(name, "--no-such-option", "1")
    assert (code, out) == (2, "")
    assert len(errors.strip().splitlines()) == 1, errors


def test_walk_counts(script):
    code, out, _ = script("benchmarks/walk.py")
    assert code == 0
    whole, before = out.splitlines()[-2:]
    numbers = [[int(word) for word in line.split() if word.isdigit()] for line in (whole, before)]
    assert all(0 < part < all_of_it for part, all_of_it in zip(numbers[1], numbers[0], strict=True))
    assert 20 < numbers[0][0] < 60
    assert numbers[0][1] > 100


def test_update_time(script):
    code, out, _ = script("benchmarks/update_time.py", 2, 4, 0, "plain", "--eager")
    assert code == 0
    assert out.startswith("median ")


def test_beta_time(script):
    code, out, _ = script("benchmarks/beta_time.py", 0, 2, 4, "--eager")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[::2]] == ["fixed", "learned", "annealed"]


def test_mbpo_time(tmp_path, script):
    (tmp_path / "small.yaml").write_text(SMALL_MODEL)
    code, out, _ = script("benchmarks/mbpo_time.py", "InvertedPendulum-v4", 1, "--config", tmp_path / "small.yaml")
    assert code == 0
    assert out.count("fit to ") == 4


@pytest.mark.skipif(importlib.util.find_spec("dm_control") is None, reason="needs dm_control")
def test_frame_time(script):
    code, out, _ = script("benchmarks/frame_time.py", "states", "standard", "dmc/cartpole-balance", "--seconds", 0)
    assert code == 0
    assert out.startswith("dmc/cartpole-balance")


@pytest.mark.slow
def test_statistics_time(script):
    code, out, _ = script("benchmarks/statistics_time.py")
    assert code == 0
    assert len(out.splitlines()) == 3


def test_study_of_measures(tmp_path, script):
    code, *_ = script("studies/measures/study.py", "--out", tmp_path)
    assert code == 0
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_study_of_concepts(tmp_path, script):
    code, *_ = script("studies/concepts/study.py", "--updates", 100, "--out", tmp_path)
    assert code == 0
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["choosing.png", "reading.png", "signals.png"]


def test_study_of_presets(tmp_path, script):
    options = ("--presets", "sac", "redq", "--steps", 600, "--out", tmp_path)
    code, *_ = script("studies/hopper/study.py", tmp_path / "runs", *options)
    assert code == 0
    assert {line.split(",")[0] for line in (tmp_path / "curves.csv").read_text().splitlines()[1:]} == {
        "sac",
        "redq",
    }
    assert (tmp_path / "figure.png").exists()


def test_sb3_time(script):
    code, out, _ = script("benchmarks/sb3_time.py", "--rounds", 1, "--updates", 1)
    assert code == 0
    assert [line.split()[2] for line in out.splitlines()] == 2 * ["SB3", "minimum", "fixed", "learned"]


def test_a_script_whose_reader_closes_the_pipe_ends_without_a_traceback():
    code = "from pessimism.tools.script import start\nstart(lambda: [print(n) for n in range(10**6)] and 0)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141
