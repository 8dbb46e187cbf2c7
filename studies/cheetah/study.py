"""Train gpl-drq and drqv2 on dmc/cheetah-run from pixels at a reduced setting, and draw the curves.

Runs that are done are not repeated; the settings below are the only difference to the presets.
"""

import csv
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from pessimism.analysis.curves import read_metrics
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.config.schema import Config
from pessimism.tools.script import Parser, start
from pessimism.training.run import env_factory, run

mpl.use("Agg")
from matplotlib import pyplot

TASK = "dmc/cheetah-run"
REDUCED: dict[str, Any] = {
    "env": TASK,
    "env_kwargs": {"quality": "fast"},
    "steps": 10_000,
    "action_repeat": 4,
    "update_every": 1,
    "pixels": {"size": 64, "filters": 16},
    "hidden": 256,
    "critic": {"hidden": 256},
    "batch_size": 64,
    "lr": 5e-4,
    "random_steps": 500,
    "noise": (1.0, 0.2, 4000),
    "replay_capacity": 100_000,
    "evaluation": {"every": 1000, "episodes": 5},
    "bias": {"every": 2500, "episodes": 2},
    "checkpoint": {"every": 1000},
    "threads": 1,
}
COLOURS = {"gpl-drq": "#1f5fa8", "drqv2": "#b5382a"}
METRICS = ("eval/mean_reward", "eval/std_reward", "train/beta", "bias/mean")
Series = dict[str, tuple[list[int], list[float]]]


def reduced(name: str) -> Config:
    """Return the settings of a preset's run."""
    return validated(merge(preset_values(name, TASK), REDUCED))


def random_return(episodes: int = 20) -> float:
    """Return what uniform random actions earn."""
    env, draw = env_factory(reduced("drqv2"))(), np.random.default_rng(0)
    total = 0.0
    for seed in range(episodes):
        env.reset(seed)
        over = False
        while not over:
            step = env.step(draw.uniform(-1, 1, env.action_size).astype(np.float32))
            total, over = total + step.reward, step.terminated or step.truncated
    return total / episodes


def draw(found: dict[str, Series], random: float, path: Path) -> None:
    """Draw returns, beta and measured bias over frames, as far as they are there."""
    panels = {
        "eval/mean_reward": "return of 5 evaluation episodes",
        "train/beta": "beta",
        "bias/mean": "measured bias",
    }
    panels = {metric: title for metric, title in panels.items() if any(metric in own for own in found.values())}
    figure, axes = pyplot.subplots(1, len(panels), figsize=(0.7 + 3.4 * len(panels), 3.2), layout="constrained")
    repeat = REDUCED["action_repeat"]
    for axis, (metric, title) in zip(axes, panels.items(), strict=True):
        for name, series in found.items():
            steps, values = series.get(metric, ([], []))
            axis.plot([repeat * step for step in steps], values, ".-", color=COLOURS[name], label=name)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("frames", fontsize=8)
        axis.locator_params(axis="x", nbins=4)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].axhline(random, color="#9aa3ab", ls="--", label="random actions")
    axes[0].set_ylim(bottom=0)
    axes[0].legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=100)


def write(found: dict[str, Series], random: float, path: Path) -> None:
    """Write the numbers behind the curves."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["preset", "step", "metric", "value"])
        table.writerow(["random", 0, METRICS[0], f"{random:.3f}"])
        for name, series in found.items():
            for metric in METRICS:
                for step, value in zip(*series.get(metric, ([], [])), strict=True):
                    if step % REDUCED["evaluation"]["every"] == 0:
                        table.writerow([name, step, metric, f"{value:.3f}"])


def stored(path: Path) -> tuple[dict[str, Series], float]:
    """Return the curves of a file that `write` wrote, and what random actions earn."""
    found: dict[str, Series] = {name: {} for name in COLOURS}
    random = 0.0
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["preset"] == "random":
                random = float(row["value"])
                continue
            steps, values = found[row["preset"]].setdefault(row["metric"], ([], []))
            steps.append(int(row["step"]))
            values.append(float(row["value"]))
    return found, random


def main() -> None:
    """Train what is not trained yet, and draw."""
    parser = Parser(__doc__)
    parser.add_argument("runs", nargs="?", type=Path, default=Path("runs/docs"), help="directory (runs/docs)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="where figure and numbers go")
    parser.add_argument(
        "--redraw", action="store_true", help="draw the figure again from curves.csv, train nothing"
    )
    asked = parser.parse_args()
    if asked.redraw:
        draw(*stored(asked.out / "curves.csv"), asked.out / "figure.png")
        return
    runs = {name: read_metrics(run(reduced(name), asked.runs / name / "seed_0").path) for name in COLOURS}
    baseline = random_return()
    draw(runs, baseline, asked.out / "figure.png")
    write(runs, baseline, asked.out / "curves.csv")


if __name__ == "__main__":
    start(main)
