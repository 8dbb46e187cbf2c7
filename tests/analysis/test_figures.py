"""Figures and data that leave the page: plain SVG, PDF and PNG, CSV and JSON; and what charts draw."""

import csv
import io
import itertools
import json
import re
import shutil
import subprocess
from xml.etree import ElementTree

import numpy as np
import pytest

from pessimism.analysis.report import drawn, write_report
from pessimism.analysis.report.aggregates import aggregates
from pessimism.analysis.report.charts import IntervalChart, Line, LineChart, standalone
from pessimism.analysis.report.content import document
from pessimism.analysis.report.efficiency import steps_to
from pessimism.analysis.report.plain import plain, sheet, text_of
from pessimism.analysis.report.runs import Run
from pessimism.analysis.report.series import elapsed_seconds
from pessimism.analysis.report.study import read_study
from pessimism.analysis.report.text import markdown
from pessimism.analysis.report.wording import interval_text
from pessimism.analysis.statistics import Interval
from synthetic import copy_run, write_run

SVG = "{http://www.w3.org/2000/svg}"
LONG = "SAC, optimistic (beta 0) > SAC, pessimistic (beta 0.5)"


def chart():
    lines = [
        Line("first", 0, [0, 1, 2], [0.0, 2.0, 1.0], [0.0, 1.0, 0.5], [0.5, 3.0, 1.5], single={"a": ([0], [1.0])}),
        Line("other, published", 1, [0, 2], [1.0, 2.0], published=True),
        Line("eighth", 7, [0, 2], [2.0, 0.0]),
    ]
    return LineChart("A chart", "x", "y", lines)


def test_plain_figures_have_colours_instead_of_classes_and_variables():
    text = text_of(plain(standalone(chart())))
    for sign in ("var(", "currentColor", "class=", "<style", "data-series"):
        assert sign not in text
    _, colours = sheet()
    root = ElementTree.fromstring(text)
    strokes = [path.get("stroke") for path in root.iter(f"{SVG}path") if path.get("stroke")]
    assert strokes[:3] == [colours["--s0"], colours["--s1"], colours["--s0"]]  # bands have a fill alone
    bands = [path.get("fill") for path in root.iter(f"{SVG}path") if path.get("opacity") == ".15"]
    assert bands == [colours["--s0"]]
    dashed = [path.get("stroke-dasharray") for path in root.iter(f"{SVG}path") if path.get("stroke-dasharray")]
    assert dashed[:2] == ["2 4", "8 4"]  # published, and the eighth series
    heading = next(text for text in root.iter(f"{SVG}text") if text.text == "A chart")
    assert (heading.get("font-size"), heading.get("font-weight")) == ("13", "600")
    assert len([path for path in root.iter(f"{SVG}path") if path.get("opacity") == ".55"]) == 0  # single runs


@pytest.mark.skipif(
    shutil.which("rsvg-convert") is None, reason="no rsvg-convert here (apt-get install librsvg2-bin)"
)
def test_librsvg_draws_the_colours(tmp_path):
    (tmp_path / "plain.svg").write_text(text_of(plain(standalone(chart()))))
    subprocess.run(["rsvg-convert", "plain.svg", "-o", "plain.png"], cwd=tmp_path, check=True, timeout=60)
    assert_coloured(tmp_path / "plain.png")


def assert_coloured(path):
    """Most of a figure is white, some of it the first series' colour, and next to nothing black."""
    from matplotlib import image

    pixels = (image.imread(path)[..., :3] * 255).round().astype(int)
    blue = np.array([0x00, 0x72, 0xB2])
    assert (np.abs(pixels - blue).max(-1) < 12).mean() > 0.002
    assert (pixels.min(-1) > 240).mean() > 0.7
    assert (pixels.max(-1) < 12).mean() < 0.01


def test_pdf_and_png_are_drawn_from_the_same_elements(tmp_path):
    drawing = plain(standalone(chart()))
    drawn.draw(drawing, tmp_path / "a.pdf", tmp_path / "a.png")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    assert_coloured(tmp_path / "a.png")
    drawn.draw(drawing, tmp_path / "b.pdf", tmp_path / "b.png")
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()


@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="no pdflatex here (apt-get install texlive-latex-base)"
)
@pytest.mark.slow
def test_latex_takes_every_figure_and_the_tables(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"runs/{seed}", "redq", seed=seed, steps=10_000)
    write_report([tmp_path / "runs"], tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out/figures").glob("*.pdf"))
    shown = "\n".join(rf"\includegraphics{{figures/{name}}}\newline" for name in names)
    packages = r"\documentclass{article}\usepackage{graphicx,booktabs,longtable}\begin{document}\scriptsize"
    (tmp_path / "out/paper.tex").write_text(f"{packages}{shown}\\input{{tables.tex}}\\end{{document}}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    result = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stdout[-1500:]
    assert len(names) > 4


def test_a_report_without_matplotlib_has_its_svg_figures(tmp_path, monkeypatch):
    write_run(tmp_path / "runs/0", steps=10_000)
    monkeypatch.setattr(drawn, "available", lambda: False)
    write_report([tmp_path / "runs"], tmp_path / "out")
    assert {path.suffix for path in (tmp_path / "out/figures").iterdir()} == {".svg"}
    monkeypatch.undo()
    write_report([tmp_path / "runs"], tmp_path / "out")
    assert {path.suffix for path in (tmp_path / "out/figures").iterdir()} == {".svg", ".pdf", ".png"}


def test_profiles_are_steps():
    line = Line("a", 0, [0.0, 1.0, 2.0], [1.0, 0.5, 0.0], stepped=True)
    path = re.search(r'class="line" d="([^"]*)"', LineChart("t", "x", "y", [line]).drawing())[1]
    points = [tuple(map(float, part.split())) for part in path[1:].split("L")]
    assert len(points) == 5
    for (x, y), (next_x, next_y) in itertools.pairwise(points):
        assert x == next_x or y == next_y


def test_labels_of_intervals_are_whole_and_no_width_is_seen():
    interval = Interval(0.5, 0.5, 0.5)
    drawing = IntervalChart("t", "x", [(LONG, 0, interval), ("b", 1, Interval(0.2, 0.1, 0.3))]).drawing()
    assert LONG.replace(">", "&gt;") in drawing.split("</title>")[1]
    assert "(no width)" in drawing
    assert drawing.count('class="whisker"') == 6  # each with two caps
    words = " ".join(["word"] * 60)
    texts = re.findall(r'class="label"[^>]*>([^<]*)<', IntervalChart("t", "x", [(words, 0, interval)]).drawing())
    assert " ".join(texts) == words
    assert max(map(len, texts)) < 75
    assert interval_text(Interval(1.0, np.nan, np.nan)) == "1.000 (no interval)"


def test_fewer_than_five_seeds_are_warned_of(tmp_path):
    first = write_run(tmp_path / "0", steps=10_000)
    for seed in range(1, 5):
        copy_run(first, tmp_path / str(seed), seed)
    assert "fewer than five" not in markdown(document(read_study([tmp_path])))
    shutil.rmtree(tmp_path / "4")
    text = markdown(document(read_study([tmp_path])))
    assert "rest on fewer than five seeds: gpl-sac 4 seeds per task" in text
    assert "(no width)" in text  # all seeds are the same here


def test_sample_efficiency_is_the_interquartile_mean_over_all_runs_at_each_step(tmp_path):
    for env, top in (("Hopper-v4", 3300.0), ("Ant-v4", 2900.0)):
        for seed in range(2):
            write_run(tmp_path / env / str(seed), env=env, seed=seed, steps=20_000, top=top)
    write_run(tmp_path / "Ant-v4/2", env="Ant-v4", seed=2, steps=20_000, reached=10_000, top=2900.0)
    study = read_study([tmp_path])
    figure = next(iter(aggregates(study))).figures[0]
    (line,) = figure.chart.lines
    assert list(line.x) == [5000, 10_000]  # as far as all runs go
    scales = {"Hopper-v4": 3300.0, "Ant-v4": 5800.0}
    at_first = sorted(float(run.evaluations.returns[0].mean()) / scales[run.task] for run in study.runs)
    assert line.y[0] == pytest.approx(np.mean(at_first[1:4]))
    assert line.low[0] <= line.y[0] <= line.high[0]


def test_steps_to_a_return_and_minutes():
    assert steps_to([10, 20, 30], [1.0, 5.0, 4.0], 4.5) == 20
    assert steps_to([10, 20, 30], [1.0, 5.0, 4.0], 6.0) is None
    run = Run(None, "a", "done", timing={"time/elapsed": ([100, 200, 300], [4.0, 10.0, 3.0])})  # resumed before 300
    assert elapsed_seconds(run) == ([100, 200, 300], [4.0, 10.0, 13.0])


def test_steps_to_a_return_are_compared_with_published_sac(tmp_path):
    for seed in range(3):
        write_run(tmp_path / str(seed), "gpl-sac", "Humanoid-v4", seed, top=6000.0 if seed else 900.0)
    rows = [line for line in markdown(document(read_study([tmp_path]))).splitlines() if "of 3 |" in line]
    assert any("| 5K |" in line for line in rows)  # the paper's threshold
    last = [cell.strip() for cell in rows[-1].split("|")[1:-1]]
    assert last[4] == "2 of 3"
    assert float(last[6]) == pytest.approx(int(last[5].replace(",", "")) / int(last[3].replace(",", "")), abs=0.05)


def test_all_data_are_in_one_table_and_one_tree(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"runs/{seed}", "redq", seed=seed, steps=100_000, every=50_000)
    write_report([tmp_path / "runs"], tmp_path / "out")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out/data.csv").read_text())))
    assert tuple(rows[0]) == ("source", "algorithm", "task", "seed", "run", "metric", "step", "value")
    episodes = [row for row in rows if row["metric"] == "evaluation episode" and row["seed"] == "1"]
    stored = np.load(tmp_path / "runs/1/evaluations.npz")["results"]
    assert [float(row["value"]) for row in episodes] == stored.reshape(-1).tolist()
    assert {row["source"] for row in rows} == {"run", "paper", "published"}
    (paper,) = [row for row in rows if row["metric"] == "return, mean" and row["source"] == "paper"]
    assert (paper["task"], float(paper["value"])) == ("Hopper-v2", 3007.0)
    tree = json.loads((tmp_path / "out/data.json").read_text())
    assert {figure["name"] for figure in tree["figures"]} == {
        path.stem for path in (tmp_path / "out/figures").glob("*.svg")
    }
    assert [run["seed"] for run in tree["runs"]] == [0, 1]
    assert "Return at 100,000 steps" in {table["title"] for table in tree["tables"]}


def test_failed_runs_show_the_last_line_of_their_output(tmp_path):
    plan = {"directory": "never", "label": "a", "env": "Hopper-v4", "seed": 0}
    (tmp_path / "never").mkdir()
    (tmp_path / "never/output.log").write_text("first\npessimism: unknown environment NoSuch-v0\n\n")
    (tmp_path / "suite.json").write_text(json.dumps({"runs": [plan]}))
    write_run(tmp_path / "half", seed=1, steps=20_000, reached=5000)
    (tmp_path / "half/output.log").write_bytes(b"x" * 10_000 + b"\nreward nan (step 8, episode 1)\n")
    write_run(tmp_path / "whole", seed=2, steps=20_000)
    (tmp_path / "whole/output.log").write_text("done: 20000 steps\n")
    text = markdown(document(read_study([tmp_path]))).replace("\\", "")
    assert "its output.log ends with: pessimism: unknown environment NoSuch-v0" in text
    assert "its output.log ends with: reward nan (step 8, episode 1)" in text
    assert "done: 20000 steps" not in text
