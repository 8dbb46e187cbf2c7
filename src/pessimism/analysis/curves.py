"""A run's learning curve: return, beta and measured bias over environment steps."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from pessimism import records
from pessimism.errors import UserError
from pessimism.extras import missing

LAST = 10**15  # no run has as many steps
INK, BLUE, RED, GREY = "#222222", "#1f5fa8", "#b5382a", "#9aa3ab"


def read_rows(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of a JSON-lines file up to the first that is not whole, and how many lines that leaves."""
    lines = path.read_text(errors="replace").splitlines()
    rows: list[dict[str, Any]] = []
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            break  # a killed run may end in half a line; a resumed one cuts it off
        if not (isinstance(row, dict) and type(row.get("step")) is int and 0 <= row["step"] < LAST):
            break
        rows.append(row)
    return rows, len(lines) - len(rows)


def by_metric(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[list[int], list[float]]]:
    """Return steps and values of each metric."""
    series: dict[str, tuple[list[int], list[float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name != "step":
                steps, values = series.setdefault(name, ([], []))
                steps.append(row["step"])
                values.append(value)
    return series


def read_metrics(run: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Return steps and values of each metric in a run's `metrics.jsonl`."""
    try:
        return by_metric(read_rows(run / records.METRICS)[0])
    except OSError:
        raise UserError(f"{run} holds no run: there is no {records.METRICS}") from None


def plot_run(run: Path) -> Path:
    """Draw the curve into the run's directory and return the image's path."""
    series = read_metrics(run)
    if "eval/mean_reward" not in series:
        raise UserError(f"the run in {run} has no evaluation yet: train it further")
    try:
        import matplotlib as mpl
    except ImportError:
        raise missing("matplotlib", "report") from None
    mpl.use("Agg")
    from matplotlib import pyplot

    config = yaml.safe_load((run / records.CONFIG).read_text())
    figure, axes = pyplot.subplots(3, 1, figsize=(7, 7), sharex=True, layout="constrained")
    _draw_return(axes[0], series)
    _draw_beta(axes[1], series)
    _draw_bias(axes[2], series)
    axes[0].set_title(f"{config['algorithm']} on {config['env']}, seed {config['seed']}", color=INK)
    axes[2].set_xlabel("environment steps")
    for axis in axes:
        axis.axvspan(0, config["random_steps"], color=GREY, alpha=0.15, lw=0, label="_random actions")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    path = run / records.CURVE
    try:
        figure.savefig(path, dpi=140)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    finally:
        pyplot.close(figure)
    return path


def _draw_return(axis: Any, series: dict[str, tuple[list[int], list[float]]]) -> None:  # noqa: ANN401
    steps, means = series["eval/mean_reward"]
    _, stds = series["eval/std_reward"]
    low = [mean - std for mean, std in zip(means, stds, strict=True)]
    high = [mean + std for mean, std in zip(means, stds, strict=True)]
    axis.fill_between(steps, low, high, color=BLUE, alpha=0.2, lw=0)
    axis.plot(steps, means, color=BLUE, marker="." if len(steps) < 40 else None)
    axis.set_ylabel("return\n(evaluation, mean and std)")


def _draw_beta(axis: Any, series: dict[str, tuple[list[int], list[float]]]) -> None:  # noqa: ANN401
    if "train/beta" in series:
        axis.plot(*series["train/beta"], color=BLUE)
    axis.set_ylabel("beta\n(weight of the disagreement)")


def _draw_bias(axis: Any, series: dict[str, tuple[list[int], list[float]]]) -> None:  # noqa: ANN401
    axis.axhline(0, color=INK, lw=0.8)
    if "bias/mean" in series:
        axis.plot(*series["bias/mean"], color=RED, label="measured bias")
    if "bias/dual_td" in series:
        axis.plot(*series["bias/dual_td"], color=GREY, label="dual TD-learning's estimate")
    axis.set_ylabel("bias\n(predicted - observed)")
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False, fontsize="small")
