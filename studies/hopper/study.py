"""Train every preset on states briefly on Hopper-v4 at a reduced setting, and draw the curves.

Runs that are done are not repeated; the settings below are the only difference to the presets.
"""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from pessimism.analysis.curves import read_metrics
from pessimism.config.presets import STATE_PRESETS
from pessimism.config.resolve import merge, resolved
from pessimism.tools.script import Parser, start
from pessimism.training.run import run

mpl.use("Agg")
from matplotlib import pyplot

TASK = "Hopper-v4"
REDUCED: dict[str, Any] = {
    "env": TASK,
    "steps": 3000,
    "random_steps": 1000,
    "updates_per_step": 5,
    "batch_size": 128,
    "hidden": 64,
    "critic": {"hidden": 64},
    "alpha": 0.2,
    "evaluation": {"every": 500, "episodes": 3},
    "bias": {"every": 2000, "episodes": 3},
    "threads": 1,
    "compile": False,
    "log": {"tensorboard": False},
}
FURTHER: dict[str, dict[str, Any]] = {
    "sac": {"updates_per_step": 1},
    "mbpo": {"model": {"hidden": 64, "rollouts": 10_000}},
}
BLUE, GREY = "#1f5fa8", "#9aa3ab"
Series = dict[str, tuple[list[int], list[float]]]


def train(directory: Path, names: Sequence[str], steps: int) -> dict[str, Series]:
    """Return the metrics of each preset's run."""
    found = {}
    for name in names:
        config = resolved(name, merge(REDUCED | {"steps": steps}, FURTHER.get(name, {})))
        found[name] = read_metrics(run(config, directory / name).path)
        print(name, f"{found[name]['rollout/ep_rew_mean'][1][-1]:.0f}", flush=True)
    return found


def draw(found: dict[str, Series], path: Path) -> None:
    """Draw the returns of training episodes and evaluations, one panel for each preset."""
    rows = math.ceil(len(found) / 5)
    size = (11, 0.4 + 1.9 * rows)
    figure, axes = pyplot.subplots(
        rows, 5, figsize=size, sharex=True, sharey=True, layout="constrained", squeeze=False
    )
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    for axis, (name, series) in zip(axes.flat, found.items(), strict=False):
        axis.plot(*series["rollout/ep_rew_mean"], color=BLUE, lw=1, label="training episodes")
        axis.plot(*series["eval/mean_reward"], "o", ms=3, color="#b5382a", label="evaluation (deterministic)")
        axis.axvspan(0, REDUCED["random_steps"], color=GREY, alpha=0.2, lw=0)
        axis.set_title(name, fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(fontsize=6, frameon=False)
    figure.supxlabel("environment steps (grey: random actions)", fontsize=8)
    figure.supylabel("return", fontsize=8)
    figure.savefig(path, dpi=100)


def write(found: dict[str, Series], path: Path) -> None:
    """Write the numbers behind the curves."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["preset", "step", "metric", "value"])
        for name, series in found.items():
            for metric in ("rollout/ep_rew_mean", "eval/mean_reward", "train/beta"):
                for step, value in zip(*series.get(metric, ([], [])), strict=True):
                    if step % 500 == 0:
                        table.writerow([name, step, metric, f"{value:.3f}"])


def main() -> None:
    """Train what is not trained yet, and draw."""
    parser = Parser(__doc__)
    parser.add_argument("runs", nargs="?", type=Path, default=Path("runs/docs"), help="directory (runs/docs)")
    parser.add_argument("--presets", nargs="+", default=STATE_PRESETS, choices=STATE_PRESETS, metavar="NAME")
    parser.add_argument("--steps", type=int, default=REDUCED["steps"], help="of each run (3000)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="where figure and numbers go")
    asked = parser.parse_args()
    runs = train(asked.runs, asked.presets, asked.steps)
    draw(runs, asked.out / "figure.png")
    write(runs, asked.out / "curves.csv")


if __name__ == "__main__":
    start(main)
