"""The examples run as they are."""

import importlib.util
import runpy
import sys
from pathlib import Path

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


@pytest.mark.skipif(importlib.util.find_spec("rl_zoo3") is not None, reason="RL Zoo is installed")
def test_the_zoo_is_asked_for(monkeypatch):
    with pytest.raises(SystemExit, match="pip install rl_zoo3"):
        run(monkeypatch, "zoo.py", "train")
