"""The examples run as they are."""

import importlib.util
import runpy
import sys
from pathlib import Path

import optuna
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(monkeypatch, name, *arguments):
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_gpl_sac_in_one_file(monkeypatch, capsys):
    run(monkeypatch, "gpl_sac.py", *"--steps 410 --learning-starts 30 --batch 8 --width 8".split())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["200", "400"]
    betas = [float(line.split("beta ")[1].split()[0]) for line in lines]
    assert 0.5 != betas[0] != betas[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_tuning_prunes_through_a_callback(monkeypatch, tmp_path, capsys):
    class Half:
        """Prunes odd trials at their second evaluation."""

        def prune(self, study, trial):
            return trial.number % 2 == 1 and len(trial.intermediate_values) == 2

    monkeypatch.setattr(optuna.pruners, "MedianPruner", lambda **_: Half())
    options = "--trials 2 --steps 50 --hidden 8 --storage".split()
    study = run(monkeypatch, "tune.py", *options, f"sqlite:///{tmp_path}/trials.db")["main"]()  # again: two more
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE", "PRUNED", "COMPLETE", "PRUNED"]
    assert [sorted(trial.intermediate_values) for trial in study.trials] == 2 * [[10, 20, 30, 40, 50], [10, 20]]
    assert study.trials[0].value == study.trials[0].intermediate_values[50]
    assert "best return" in capsys.readouterr().out


@pytest.mark.skipif(importlib.util.find_spec("rl_zoo3") is not None, reason="RL Zoo is installed")
def test_the_zoo_is_asked_for(monkeypatch):
    with pytest.raises(SystemExit, match="pip install rl_zoo3"):
        run(monkeypatch, "zoo.py", "train")
