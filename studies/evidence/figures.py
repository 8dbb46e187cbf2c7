"""Make tables and pictures of docs/results.md from the CSV files of collect.py.

    python studies/evidence/figures.py                      # blocks of which all arms have reached 20,000 steps
    python studies/evidence/figures.py --until 10000        # a look at what there is so far

A block is one seed of all arms on one task. Measures and their intervals are those of the protocol.
"""

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("MPLBACKEND", "Agg")
import matplotlib.pyplot as plt

from pessimism.analysis.statistics import interval, mean
from pessimism.tools.script import Parser, start

DATA = Path(__file__).parent / "data"
ARMS = {
    "calibration": {
        "fixed-0": "fixed 0",
        "fixed-0.5": "fixed 0.5",
        "redq": "REDQ's rule",
        "dual-1e-4": "dual TD, 1e-4",
        "dual-1e-2": "dual TD, 1e-2",
        "calibrated": "calibrated",
    },
    "start-low": {"fixed": "fixed 0", "calibrated": "calibrated, from 0", "dual-1e-2": "dual TD, 1e-2, from 0"},
    "start-high": {
        "fixed": "fixed 1.5",
        "calibrated": "calibrated, from 1.5",
        "dual-1e-2": "dual TD, 1e-2, from 1.5",
    },
    "alpha-rate": {"rate-1e-4": "alpha's rate 1e-4", "rate-3e-4": "alpha's rate 3e-4"},
    "hopper-full": {"gpl-sac": "GPL-SAC", "redq": "REDQ", "gpl-sac-calibrated": "GPL-SAC, calibrated"},
}
COLOURS = ["#E69F00", "#56B4E9", "#999999", "#0072B2", "#CC79A7", "#D55E00"]  # Okabe and Ito's
BIAS_FROM, SIGNALS_FROM = 10_000, 7000
UNTIL = {
    "calibration": 20_000,
    "start-low": 20_000,
    "start-high": 20_000,
    "alpha-rate": 20_000,
    "hopper-full": 15_000,
}
# Relative returns are those over this arm's; a suite has one of them.
BASES = ("fixed-0.5", "fixed", "rate-1e-4", "gpl-sac")
BIAS, RETURN = "abs. normalised bias (primary 1)", "relative return (primary 2)"
END, FINAL = "abs. normalised bias, last 3 readings", "return, last 5000 steps"
SIGNALS = {
    "dual_td": "mean TD error",
    "validation_td": "TD error, held out",
    "training": "bias of training episodes",
}
Row = dict[str, Any]
Block = tuple[str, int]  # task, seed
Scores = dict[str, dict[Block, float]]  # arm -> block -> score
Array = np.ndarray[Any, np.dtype[np.float64]]


def read(path: Path) -> list[Row]:
    """Read a CSV file; empty numbers become NaN."""
    words = ("arm", "task", "suite", "state", "instructions", "version")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v if k in words else float(v or "nan") for k, v in row.items()} for row in rows]


class Evidence:
    """The blocks of a suite that are complete up to a step, or all that have begun."""

    def __init__(self, suite: str, data: Path, until: int, *, begun: bool = False) -> None:
        self.suite, self.arms = suite, ARMS[suite]
        runs = [row for row in read(data / "runs.csv") if row["suite"] == suite]
        self.failed = {(r["arm"], r["task"], r["seed"]) for r in runs if r["state"].startswith("failed")}
        reached = {(r["arm"], r["task"], r["seed"]): r["step"] for r in runs}
        candidates = sorted({(r["task"], r["seed"]) for r in runs})
        enough = [
            block
            for block in candidates
            if begun
            or all(reached.get((arm, *block), 0) >= until or (arm, *block) in self.failed for arm in self.arms)
        ]
        self.blocks: list[Block] = enough
        self.rows = [
            row
            for row in read(data / f"{suite}.csv")
            if (row["task"], row["seed"]) in enough and row["step"] <= until
        ]

    @property
    def tasks(self) -> list[str]:
        """Tasks with a complete block."""
        return sorted({task for task, _ in self.blocks})

    def scores(self, column: str, start: int, *, absolute: bool, lower_is_better: bool) -> Scores:
        """Return each run's mean of a column from a step on; a failed run is the worst of its block."""
        found: Scores = {arm: {} for arm in self.arms}
        for block in self.blocks:
            for arm in self.arms:
                values = [
                    row[column]
                    for row in self.rows
                    if (row["arm"], row["task"], row["seed"]) == (arm, *block) and row["step"] >= start
                ]
                usable = np.array([value for value in values if not np.isnan(value)])
                if (arm, *block) not in self.failed:
                    found[arm][block] = float(np.mean(np.abs(usable) if absolute else usable))
            worst = max if lower_is_better else min
            there = [found[arm][block] for arm in self.arms if block in found[arm]]
            for arm in self.arms:
                found[arm].setdefault(block, worst(there))
        return found

    def by_task(self, scores: dict[Block, float]) -> list[Array]:
        """Return one array of scores per task."""
        return [np.array([scores[block] for block in self.blocks if block[0] == task]) for task in self.tasks]


def shown(by_task: list[Array], form: str = ".2f") -> str:
    """Return the mean of scores, one array per task, with its interval; one seed per task gives no interval."""
    value = interval(mean, by_task)
    point = f"{value.point:{form}}"
    return (
        point
        if all(len(scores) == 1 for scores in by_task)
        else f"{point} [{value.low:{form}}, {value.high:{form}}]"
    )


def measures(evidence: Evidence) -> dict[str, Scores]:
    """Return the measures of the protocol."""
    for row in evidence.rows:
        row["relative_bias"] = row["bias"] / max(abs(row["soft_return"]), 10.0)
    returns = evidence.scores("return", 0, absolute=False, lower_is_better=False)
    last = max(row["step"] for row in evidence.rows)
    final = evidence.scores("return", int(last) - 4000, absolute=False, lower_is_better=False)
    base = next(arm for arm in BASES if arm in evidence.arms)
    scale = {
        task: np.mean([returns[base][block] for block in evidence.blocks if block[0] == task])
        for task in evidence.tasks
    }
    relative = {
        arm: {block: score / scale[block[0]] for block, score in of_arm.items()} for arm, of_arm in returns.items()
    }
    bias = evidence.scores("normalized_bias", BIAS_FROM, absolute=True, lower_is_better=True)
    plain = evidence.scores("relative_bias", BIAS_FROM, absolute=True, lower_is_better=True)
    signed = evidence.scores("normalized_bias", BIAS_FROM, absolute=False, lower_is_better=True)
    end = evidence.scores("normalized_bias", int(last) - 2000, absolute=True, lower_is_better=True)
    return {
        BIAS: bias,
        RETURN: relative,
        "abs. relative bias": plain,
        "signed normalised bias": signed,
        END: end,
        FINAL: final,
    }


def rules_table(evidence: Evidence, found: dict[str, Scores]) -> str:
    """Return all measures of all arms over all tasks, then task by task."""
    counted = ", ".join(f"{task} {sum(block[0] == task for block in evidence.blocks)}" for task in evidence.tasks)
    lines = [f"Seeds: {counted}. Mean [95 % interval, from two seeds on].", ""]
    lines += [f"| rule | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    for arm, label in evidence.arms.items():
        cells = []
        for name, scores in found.items():
            form = ".0f" if name == FINAL else ".2f"
            cells.append(shown(evidence.by_task(scores[arm]), form))
        lines.append(f"| {label} | {' | '.join(cells)} |")
    lines += ["", f"| rule | {' | '.join(f'{task}: bias, return' for task in evidence.tasks)} |"]
    lines.append(f"|---|{'---|' * len(evidence.tasks)}")
    returns = evidence.scores("return", 0, absolute=False, lower_is_better=False)
    for arm, label in evidence.arms.items():
        bias = [values.mean() for values in evidence.by_task(found[BIAS][arm])]
        reward = [values.mean() for values in evidence.by_task(returns[arm])]
        lines.append(f"| {label} | {' | '.join(f'{b:.2f}, {r:.0f}' for b, r in zip(bias, reward, strict=True))} |")
    return "\n".join(lines)


def differences_table(evidence: Evidence, found: dict[str, Scores]) -> str:
    """Return paired differences: the same task and seed in two arms."""
    bases = [arm for arm in (*BASES, "dual-1e-4", "dual-1e-2") if arm in evidence.arms]
    compared = (END, FINAL) if evidence.suite.startswith("start-") else (BIAS, RETURN)
    lines = [f"| rule | minus | {' | '.join(compared)} |", "|---|---|---|---|"]
    for arm, label in evidence.arms.items():
        for base in bases:
            if base == arm:
                continue
            cells = []
            for name in compared:
                scores, form = found[name], "+.0f" if name == FINAL else "+.2f"
                paired = {block: scores[arm][block] - scores[base][block] for block in evidence.blocks}
                cells.append(shown(evidence.by_task(paired), form))
            lines.append(f"| {label} | {evidence.arms[base]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def signals_table(evidence: Evidence) -> str:
    """Return how well each signal sees the meter's bias."""
    lines = ["| task | signal | readings | same sign | correlation | slope |", "|---|---|---|---|---|---|"]
    for task in [*evidence.tasks, "all"]:
        for signal, label in SIGNALS.items():
            pairs = np.array(
                [
                    (row[signal], row["bias"])
                    for row in evidence.rows
                    if task in (row["task"], "all")
                    and row["step"] >= SIGNALS_FROM
                    and not np.isnan(row[signal] + row["bias"])
                ]
            )
            if len(pairs) < 3:
                continue
            same = np.mean(np.sign(pairs[:, 0]) == np.sign(pairs[:, 1]))
            covariance = np.cov(pairs.T)
            correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
            slope = covariance[0, 1] / covariance[0, 0]
            lines.append(f"| {task} | {label} | {len(pairs)} | {same:.0%} | {correlation:+.2f} | {slope:+.3g} |")
    return "\n".join(lines)


def draw_curves(evidence: Evidence, path: Path) -> None:
    """Draw return, bias and beta over time, a column per task; lines are means over seeds."""
    panels = {"return": "return", "normalized_bias": "normalised bias, by the meter", "beta": "beta"}
    tasks = evidence.tasks
    figure, axes = plt.subplots(3, len(tasks), figsize=(4.6 * len(tasks), 8.4), squeeze=False, layout="constrained")
    for column, task in enumerate(tasks):
        for line, (name, title) in enumerate(panels.items()):
            axis = axes[line, column]
            for (arm, label), colour in zip(evidence.arms.items(), COLOURS, strict=False):
                rows = [r for r in evidence.rows if (r["arm"], r["task"]) == (arm, task) and not np.isnan(r[name])]
                steps = sorted({row["step"] for row in rows if name == "return" or row["step"] > 5000})
                values = [[row[name] for row in rows if row["step"] == step] for step in steps]
                wide = 2.6 if "calibrated" in arm else 1.5
                axis.plot(steps, [np.mean(v) for v in values], color=colour, label=label, linewidth=wide)
                if steps:
                    low, high = [min(v) for v in values], [max(v) for v in values]
                    axis.fill_between(steps, low, high, color=colour, alpha=0.08, linewidth=0)
            if name == "normalized_bias":
                axis.axhline(0, color="0.4", linewidth=0.8)
            axis.set_title(f"{task}: {title}", fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("environment steps")
    axes[0, 0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


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
            for (arm, label), colour in zip(evidence.arms.items(), COLOURS, strict=False):
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


def main() -> None:
    """Print the tables and draw the pictures of each suite that has a complete block."""
    parser = Parser(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="directory of the CSV files")
    parser.add_argument("--out", type=Path, default=DATA.parent, help="where tables.md and the pictures go")
    parser.add_argument("--until", type=int, help="steps that count (default: 20000, and 15000 for hopper-full)")
    parser.add_argument(
        "--first-look", action="store_true", help="only the signals, from all runs that have begun, complete or not"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    text = []
    for suite, until in UNTIL.items():
        if not (args.data / f"{suite}.csv").exists():
            continue
        if args.first_look:
            begun = Evidence(suite, args.data, args.until or until, begun=True)
            draw_signals(begun, args.out / f"{suite}-first-look.png")
            text.append(signals_table(begun))
            continue
        evidence = Evidence(suite, args.data, args.until or until)
        text.append(f"## {suite}, to {args.until or until:,} steps: {len(evidence.blocks)} complete blocks")
        if not evidence.blocks:
            continue
        found = measures(evidence)
        text += [rules_table(evidence, found), differences_table(evidence, found), signals_table(evidence)]
        if suite.startswith("start-"):
            draw_start(evidence, args.out / f"{suite}.png")
            continue
        draw_curves(evidence, args.out / f"{suite}.png")
        draw_signals(evidence, args.out / f"{suite}-signals.png")
    if not args.first_look:
        (args.out / "tables.md").write_text("\n\n".join(text) + "\n")
    print("\n\n".join(text))


if __name__ == "__main__":
    start(main)
