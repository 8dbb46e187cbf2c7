"""Pictures of the evidence."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from blocks import Array, Evidence

os.environ.setdefault("MPLBACKEND", "Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from pessimism.analysis.reference import curves_of

GREY = "#999999"
COLOURS = ["#E69F00", "#56B4E9", GREY, "#0072B2", "#CC79A7", "#D55E00", "#009E73"]  # Okabe and Ito's
SIGNALS_FROM = 7000
SIGNALS = {
    "dual_td": "mean TD error",
    "validation_td": "TD error, held out",
    "training": "bias of training episodes",
}


def coloured(evidence: Evidence) -> Iterator[tuple[str, str, str]]:
    """Yield each arm with its label and its colour. Grey is for REDQ's rule, which the backbones do not have."""
    colours = sorted(COLOURS, key=lambda colour: colour == GREY) if evidence.suite == "backbones" else COLOURS
    for (arm, label), colour in zip(evidence.arms.items(), colours, strict=False):
        yield arm, label, colour


def draw_curves(evidence: Evidence, path: Path) -> None:
    """Draw return, bias and beta over time, a column per task, or side by side; lines are means over seeds."""
    panels = {"return": "return", "normalized_bias": "normalised bias, by the meter", "beta": "beta"}
    tasks = evidence.tasks
    shape, size = ((3, len(tasks)), (4.6 * len(tasks), 8.4)) if len(tasks) > 1 else ((1, 3), (13, 3.4))
    figure, axes = plt.subplots(*shape, figsize=size, squeeze=False, layout="constrained")
    axes = axes.reshape(3, len(tasks))
    for column, task in enumerate(tasks):
        for line, (name, title) in enumerate(panels.items()):
            axis = axes[line, column]
            for arm, label, colour in coloured(evidence):
                rows = [r for r in evidence.rows if (r["arm"], r["task"]) == (arm, task) and not np.isnan(r[name])]
                steps = sorted({row["step"] for row in rows if name == "return" or row["step"] > 5000})
                values = [[row[name] for row in rows if row["step"] == step] for step in steps]
                wide = 2.6 if "calibrated" in arm else 1.5
                axis.plot(steps, [np.mean(v) for v in values], color=colour, label=label, linewidth=wide)
                if steps:
                    low, high = [min(v) for v in values], [max(v) for v in values]
                    axis.fill_between(steps, low, high, color=colour, alpha=0.08, linewidth=0)
            if name == "return":
                draw_published(axis, task, evidence.until)
            if name == "normalized_bias":
                axis.axhline(0, color="0.4", linewidth=0.8)
            axis.set_title(f"{task}: {title}", fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1] if len(tasks) > 1 else axes[:, 0]:
        axis.set_xlabel("environment steps")
    axes[0, 0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def draw_published(axis: Axes, task: str, until: int, method: str = "REDQ", style: str = "--") -> None:
    """Draw a public curve. REDQ's and DroQ's begin at 10,000 steps."""
    curve = curves_of(task, method)[0]
    steps = [step for step in curve.steps if step < until] + [until]
    returns = np.interp(steps, curve.steps, curve.means)
    axis.plot(steps, returns, style, color="0.2", linewidth=1.2, label=f"{method}, published ({curve.seeds} seeds)")


def draw_start(evidence: Evidence, path: Path) -> None:
    """Draw beta, bias and return over time side by side: means over seeds, and single runs."""
    panels = {"beta": "beta", "bias": "bias measured on fresh episodes", "return": "return"}
    colours = {"fixed": "0.45", "dual-1e-2": "#0072B2", "calibrated": "#D55E00"}
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    for axis, (name, title) in zip(axes, panels.items(), strict=True):
        for arm, colour in colours.items():
            rows = [row for row in evidence.rows if row["arm"] == arm and not np.isnan(row[name])]
            steps = sorted({row["step"] for row in rows if row["step"] > 5000})
            for seed in {row["seed"] for row in rows}:
                single = [(r["step"], r[name]) for r in rows if r["seed"] == seed and r["step"] > 5000]
                axis.plot(*zip(*single, strict=True), color=colour, linewidth=0.7, alpha=0.4)
            means = [np.mean([row[name] for row in rows if row["step"] == step]) for step in steps]
            axis.plot(steps, means, color=colour, linewidth=2.4, label=evidence.arms[arm])
        if name == "bias":
            axis.axhline(0, color="0.2", linewidth=0.8)
        axis.set_title(f"{evidence.tasks[0]}: {title}", fontsize=10)
        axis.set_xticks([6000, 10_000, 15_000, 20_000])
        axis.set_xlabel("environment steps")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def draw_signals(evidence: Evidence, path: Path) -> None:
    """Draw the meter's bias against what each signal shows."""
    tasks = evidence.tasks
    size = (9.2, 3.6 * len(tasks))
    figure, axes = plt.subplots(len(tasks), 2, figsize=size, squeeze=False, sharey="row", layout="constrained")
    for line, task in enumerate(tasks):
        for column, signal in enumerate(("dual_td", "training")):
            axis = axes[line, column]
            for arm, label, colour in coloured(evidence):
                rows = [
                    r for r in evidence.rows if (r["arm"], r["task"]) == (arm, task) and r["step"] >= SIGNALS_FROM
                ]
                x, y = [r[signal] for r in rows], [r["bias"] for r in rows]
                if rows:
                    axis.scatter(x, y, s=22, color=colour, alpha=0.8, linewidth=0, label=label)
            axis.axhline(0, color="0.4", linewidth=0.8)
            axis.axvline(0, color="0.4", linewidth=0.8)
            axis.set_title(f"{task}: what the {SIGNALS[signal]} shows", fontsize=10)
            axis.set_xlabel(SIGNALS[signal])
            axis.set_ylabel("bias measured on fresh episodes" if column == 0 else "")
            axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


class Beside(NamedTuple):
    """An arm of another suite, drawn for comparison."""

    evidence: Evidence
    arm: str
    label: str
    colour: str


def draw_minutes(evidence: Evidence, others: Sequence[Beside], path: Path) -> None:
    """Draw return over steps and over minutes of processor time, a row per task; lines are means over seeds."""
    tasks = evidence.tasks
    size = (11, 3.6 * len(tasks))
    figure, axes = plt.subplots(len(tasks), 2, figsize=size, squeeze=False, sharey="row", layout="constrained")
    for line, task in enumerate(tasks):
        for arm, label, colour in coloured(evidence):
            draw_line(axes[line], evidence.finished(arm, task), label, colour)
        for other in others:
            draw_line(axes[line], other.evidence.finished(other.arm, task), other.label, other.colour)
        draw_published(axes[line, 0], task, evidence.until)
        draw_published(axes[line, 0], task, evidence.until, "DroQ", ":")
        for axis, what in zip(axes[line], ("environment steps", "minutes of one core"), strict=True):
            axis.set_title(task, fontsize=10)
            axis.set_xlabel(what)
            axis.spines[["top", "right"]].set_visible(False)
        axes[line, 0].set_ylabel("return")
        axes[line, 0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def draw_line(pair: Sequence[Axes], runs: list[dict[str, Array]], label: str, colour: str) -> None:
    """Draw an arm's mean return over steps and over minutes, with the range over seeds."""
    timed = [run for run in runs if not np.isnan(run["processor"]).any()]
    if not timed:
        return
    returns, seeds = np.array([run["return"] for run in timed]), len(timed)
    minutes = np.mean([run["processor"] for run in timed], axis=0) / 60
    name = f"{label}, {seeds} seed{'s' * (seeds > 1)}"
    for axis, x in zip(pair, (timed[0]["step"], minutes), strict=True):
        axis.plot(x, returns.mean(axis=0), color=colour, linewidth=1.8, label=name)
        axis.fill_between(x, returns.min(axis=0), returns.max(axis=0), color=colour, alpha=0.12, linewidth=0)
