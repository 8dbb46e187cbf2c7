"""Runs beside each other in a terminal."""

import io

import numpy as np
import pytest
from rich.console import Console

from pessimism.analysis.compare import WIDTH, compare, sparkline
from pessimism.cli import main
from pessimism.errors import UserError
from synthetic import write_run


def shown(*paths, width=80):
    out = io.StringIO()
    Console(file=out, width=width).print(compare(paths))
    return out.getvalue()


def test_a_sparkline_rises_from_the_lowest_to_the_highest_block_and_ends_where_its_run_does():
    steps = range(1, 101)
    line = sparkline(steps, list(steps), end=200, low=1, high=100)
    assert len(line) == WIDTH // 2 + 1  # half of the common axis
    assert (line[0], line[-1]) == ("\u2581", "\u2588")
    assert list(line) == sorted(line)
    assert sparkline([50, 150], [1.0, 1.0], end=200, low=0, high=1).strip() == "\u2588" * (
        WIDTH // 2 + 1
    )  # bridged
    assert sparkline([10], [np.nan], end=200, low=0, high=1) == ""


def test_curves_numbers_and_settings_of_two_runs(tmp_path):
    write_run(tmp_path / "runs/a", steps=20_000, top=1000.0)
    write_run(tmp_path / "runs/b", seed=3, steps=20_000, reached=10_000, top=3000.0, critic__members=5)
    text = shown(tmp_path / "runs/a", tmp_path / "runs/b")
    assert max(map(len, text.splitlines())) <= 80
    lines = text.splitlines()
    assert "return, from" in lines[0]
    assert lines[1].startswith("  1 a ")
    assert lines[2].startswith("  2 b ")
    assert lines[1].count("\u2588") == 0  # both on one scale
    cells = {line.rsplit(None, 2)[0].strip(): line.split()[-2:] for line in lines if len(line.split()) > 2}
    assert cells["seed"] == ["0", "3"]
    assert cells["state"] == ["done", "unfinished"]
    assert cells["steps"] == ["20,000", "10,000"]
    assert cells["critic.members"] == ["10", "5"]
    last = np.load(tmp_path / "runs/a/evaluations.npz")["results"][-1].mean()
    assert cells["last return"][0] == f"{last:.4g}"


def test_a_directory_without_a_run_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no run"):
        compare([tmp_path / "empty"])
    assert main(["compare", str(tmp_path / "nowhere")]) == 2
    assert "there is no directory" in capsys.readouterr().err
