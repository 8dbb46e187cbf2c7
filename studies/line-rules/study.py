"""Which signal sees the bias, and what bias does each rule for beta leave? On `Line`, where the truth is known.

    python studies/line-rules/study.py run --processes 2     # 20 seeds of all rules at two noise levels: data.csv
    python studies/line-rules/study.py show                  # tables and figure.png of the jobs done so far

The runs of one rule and noise level are one job (`stack.py`), whose rows are kept in `jobs/` until all are there.
"""

import csv
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

os.environ.setdefault("MPLBACKEND", "Agg")
import matplotlib.pyplot as plt
from stack import Setup, Stack

from pessimism.config.strategies import STRATEGIES
from pessimism.tools.script import Parser, start
from pessimism.training.build import build_strategy

HERE = Path(__file__).parent
STEPS, EVERY, SETTLED = 2400, 200, 1400  # steps in all, between records, and after which records count
NOISES = (1.0, 0.1)
RULES: dict[str, dict[str, Any]] = {
    "fixed 0": {"name": "fixed", "beta": 0.0},
    "fixed 0.5": {"name": "fixed", "beta": 0.5},
    "REDQ's rule": {"name": "subset-minimum"},
    "dual TD, 1e-4": {"name": "learned", "lr": 1e-4},
    "dual TD, 1e-2": {"name": "learned", "lr": 1e-2},
    "dual TD, 1e-2, momentum": {"name": "learned", "lr": 1e-2, "beta1": 0.99},
    "validation, 1e-2": {"name": "validation", "lr": 1e-2},
    "ACC": {"name": "acc", "start": 400, "every": 100, "window": 500},
    "calibrated": {"name": "calibrated"},
}
HELD_OUT = 5  # one of so many transitions, for the rule `validation`: the replay holds 300
SIGNALS = {
    "dual_td": "mean TD error",
    "validation_td": "TD error held out",
    "training": "bias of training episodes",
}
COLOURS = dict(zip(RULES, plt.colormaps["tab10"].colors, strict=False))
Row = dict[str, Any]


def run_job(rule: str, noise: float, out: Path) -> None:
    """Run all seeds of one rule at one level of noise, unless its rows are there."""
    path = out / f"{rule.replace(' ', '_').replace(',', '')}_{noise}.csv"
    if path.exists():
        return
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    values = RULES[rule]
    entry = STRATEGIES[values["name"]](**values)
    setup = Setup(noise)
    if entry.holds_out:
        setup = replace(setup, held_out_every=HELD_OUT)
    stack = Stack(
        setup,
        lambda seed: build_strategy(
            entry,
            members=setup.members,
            generator=torch.Generator().manual_seed(seed),
            discount=setup.discount,
            follow_rate=setup.follow_rate,
        ),
    )
    write(path, [{"rule": rule, "noise": noise, **row} for row in stack.run(STEPS, EVERY)])
    print(f"{rule}, noise {noise}: done", flush=True)


def write(path: Path, rows: list[Row]) -> None:
    """Write rows as CSV, whole or not at all."""
    temporary = path.with_suffix(".partial")
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    temporary.rename(path)


def read(path: Path) -> list[Row]:
    """Read rows back, with numbers as numbers."""
    with path.open(newline="") as file:
        return [{k: v if k == "rule" else float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def interval(values: np.ndarray[Any, Any], draws: int = 2000) -> tuple[float, float, float]:
    """Return the mean over seeds and its 95 % bootstrap interval."""
    random = np.random.default_rng(0)
    means = values[random.integers(len(values), size=(draws, len(values)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(values.mean()), float(low), float(high)


def by_seed(rows: list[Row], column: str, *, absolute: bool = False) -> np.ndarray[Any, Any]:
    """Return each seed's mean over its records: [seeds]."""
    seeds = sorted({row["seed"] for row in rows})
    picked = [[row[column] for row in rows if row["seed"] == seed] for seed in seeds]
    return np.array([np.mean(np.abs(values) if absolute else values) for values in picked])


def rule_table(rows: list[Row]) -> str:
    """Return for each rule and noise level what bias is left after settling."""
    lines = [
        "| noise | rule | beta | true bias | mean abs true bias | against fixed 0.5 |",
        "|---|---|---|---|---|---|",
    ]
    for noise in NOISES:
        late = [row for row in rows if row["noise"] == noise and row["step"] > SETTLED]
        base = by_seed([row for row in late if row["rule"] == "fixed 0.5"], "bias", absolute=True)
        for rule in RULES:
            part = [row for row in late if row["rule"] == rule]
            if not part or not len(base):
                continue
            beta, bias = by_seed(part, "beta"), interval(by_seed(part, "bias"))
            size = by_seed(part, "bias", absolute=True)
            cells = [
                "" if rule == "REDQ's rule" else f"{beta.mean():.2f} ± {beta.std(ddof=1):.2f}",
                "{:+.2f} [{:+.2f}, {:+.2f}]".format(*bias),
                "{:.2f} [{:.2f}, {:.2f}]".format(*interval(size)),
                "{:+.2f} [{:+.2f}, {:+.2f}]".format(*interval(size - base)),
            ]
            lines.append(f"| {noise} | {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


def signal_table(rows: list[Row]) -> str:
    """Return how well each signal sees the true bias, record by record.

    The runs of `validation`, some of which diverge, count for its own signal only.
    """
    lines = ["| noise | signal | records | same sign | correlation | slope |", "|---|---|---|---|---|---|"]
    for noise in NOISES:
        for signal, label in SIGNALS.items():
            pairs = np.array(
                [
                    (row[signal], row["bias"])
                    for row in rows
                    if row["noise"] == noise
                    and row["step"] > SETTLED
                    and not np.isnan(row[signal])
                    and (signal == "validation_td") == row["rule"].startswith("validation")
                ]
            )
            if not len(pairs):
                continue
            same = np.mean(np.sign(pairs[:, 0]) == np.sign(pairs[:, 1]))
            covariance = np.cov(pairs.T)
            correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
            slope = covariance[0, 1] / covariance[0, 0]
            lines.append(f"| {noise} | {label} | {len(pairs)} | {same:.0%} | {correlation:+.2f} | {slope:+.2f} |")
    return "\n".join(lines)


def draw(rows: list[Row], path: Path) -> None:
    """Draw beta and the true bias over time, and what each signal shows against the truth."""
    figure, axes = plt.subplots(2, 4, figsize=(15, 7), layout="constrained")
    for line, noise in zip(axes, NOISES, strict=True):
        part = [row for row in rows if row["noise"] == noise]
        for rule in RULES:
            of_rule = [row for row in part if row["rule"] == rule]
            steps = sorted({row["step"] for row in of_rule})
            for axis, column in ((line[0], "beta"), (line[1], "bias")):
                if column == "beta" and rule == "REDQ's rule":
                    continue
                means = [np.mean([row[column] for row in of_rule if row["step"] == step]) for step in steps]
                wide = 2.6 if rule == "calibrated" else 1.3
                axis.plot(steps, means, color=COLOURS[rule], label=rule, linewidth=wide)
        line[0].set_title(f"beta, reward noise {noise}", fontsize=10)
        line[1].set_title("true bias of the predictions, on policy", fontsize=10)
        line[1].axhline(0, color="0.4", linewidth=0.8)
        for axis, signal in ((line[2], "dual_td"), (line[3], "training")):
            late = [row for row in part if row["step"] > SETTLED]
            axis.scatter([r[signal] for r in late], [r["bias"] for r in late], s=4, alpha=0.4, color="#0072B2")
            axis.axhline(0, color="0.4", linewidth=0.8)
            axis.axvline(0, color="0.4", linewidth=0.8)
            axis.set_title(f"true bias against {SIGNALS[signal]}", fontsize=10)
        for axis in line[:2]:
            axis.set_xlabel("environment steps")
    axes[0, 0].legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Run the jobs, or show what they gave."""
    parser = Parser(__doc__)
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("--processes", type=int, default=1, help="jobs at a time; changes no number")
    parser.add_argument("--out", type=Path, default=HERE, help="where data.csv, figure.png and jobs/ are")
    args = parser.parse_args()
    if args.what == "run":
        folder = args.out / "jobs"
        folder.mkdir(parents=True, exist_ok=True)
        jobs = [(rule, noise, folder) for noise in NOISES for rule in RULES]
        with ProcessPoolExecutor(args.processes) as pool:
            list(pool.map(run_job, *zip(*jobs, strict=True)))
    if (args.out / "jobs").exists():
        folder = args.out / "jobs"
        write(args.out / "data.csv", [row for path in sorted(folder.glob("*.csv")) for row in read(path)])
    rows = read(args.out / "data.csv")
    print(signal_table(rows), rule_table(rows), sep="\n\n")
    draw(rows, args.out / "figure.png")


if __name__ == "__main__":
    start(main)
