"""Does dual TD-learning see the bias? Learned and fixed beta on an MDP whose true soft values are known.

    python studies/line/study.py                # all of docs/bias-study.md, about a quarter of an hour on one core

Every run has two parts. First an agent learns in the ordinary way. Then policy, entropy weight and replay
are held still while the critics go on with the same updates, until they have settled.
"""

import csv
import os
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

os.environ.setdefault("MPLBACKEND", "Agg")
import matplotlib.pyplot as plt

from pessimism.config.resolve import validated
from pessimism.config.schema import Config
from pessimism.envs.toys import Line, LineValues, factory
from pessimism.strategies import FixedPenalty
from pessimism.tools import script
from pessimism.training.bias import measure
from pessimism.training.evaluate import run_episodes
from pessimism.training.loop import Callback, Hooks
from pessimism.training.run import Assembly, assemble
from pessimism.training.state import Progress, stream, stream_seed

OUT = Path(__file__).parent
LINE: dict[str, Any] = {"length": 200, "noise": 0.1, "reward_noise": 1.0}
DISCOUNT, EVERY, EPISODES = 0.95, 100, 10
LEARNING, SETTLING = 1200, 400  # steps of the two parts, 10 critic updates each

VARIANTS: dict[str, dict[str, Any]] = {
    "learned, rate 1e-4": {"name": "learned", "lr": 1e-4},
    "learned, rate 1e-2": {"name": "learned", "lr": 1e-2},
    "fixed 0": {"name": "fixed", "beta": 0.0},
    "fixed 0.5": {"name": "fixed", "beta": 0.5},
}
# Okabe and Ito's colours, told apart with any colour vision; line styles for prints without colour.
STYLES = dict(
    zip(VARIANTS, [("#0072B2", "-"), ("#009E73", "-."), ("#E69F00", "--"), ("#D55E00", ":")], strict=True)
)

PANELS = {
    "beta": "beta",
    "on_policy": "true bias of the predictions, on policy (exact)",
    "td_error": "what dual TD-learning sees: target - prediction",
}
Row = dict[str, Any]


def settings(pessimism: dict[str, Any], seed: int) -> Config:
    """Small critics, ten updates per step and a short memory of noisy rewards: errors for a policy to exploit."""
    return validated(
        {
            "env": "Line",
            "seed": seed,
            "steps": LEARNING,
            "random_steps": 200,
            "updates_per_step": 10,
            "batch_size": 32,
            "replay_capacity": 300,
            "discount": DISCOUNT,
            "tau": 0.02,
            "lr": 1e-3,
            "hidden": 32,
            "alpha": 0.02,
            "critic": {"form": "plain", "members": 4, "hidden": 64},
            "pessimism": pessimism,
            "evaluation": {"every": 0},
            "bias": {"every": 0},
            "log": {"every": EVERY},
            "compile": False,
            "threads": 1,
        }
    )


class Study(Callback):
    """Sets what the agent believes beside what is true, every `EVERY` steps."""

    def __init__(self, assembly: Assembly, variant: str) -> None:
        self.agent, self.replay = assembly.agent, assembly.trainer.replay
        assert isinstance(self.agent.pessimism, FixedPenalty)  # of which the learned one is a kind
        self.penalty = self.agent.pessimism
        self.variant, self.seed = variant, assembly.config.seed
        self.envs = [assembly.make_env() for _ in range(EPISODES)]
        self.rows: list[Row] = []
        self.td_error: float | None = None

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Keep the mean TD error since the last record; there is none while actions are random."""
        self.td_error = metrics.get("train/td_error")

    def on_step(self, progress: Progress) -> None:
        """Record when it is time."""
        if progress.step % EVERY == 0 and self.td_error is not None:
            self.record(progress.step, self.td_error, "learning")

    @torch.no_grad()
    def record(self, step: int, td_error: float, phase: str) -> None:
        """Compare with the exact values of the policy as it is now."""
        agent = self.agent
        true_value = LineValues(Line(**LINE), agent, DISCOUNT)
        generator = stream(self.seed, "study", step)
        seeds = [stream_seed(self.seed, "study-episodes", step, index) for index in range(EPISODES)]
        episodes = run_episodes(self.envs, seeds, lambda obs: agent.sample(obs, generator))
        meter = measure(agent, episodes, discount=DISCOUNT, tail=0.01, generator=generator)
        visited = torch.cat([e.obs for e in episodes]), torch.cat([e.action for e in episodes])

        rows = self.replay.newest(min(self.replay.added, self.replay.capacity))
        obs, action, reward, discount, next_obs = rows.split((1, 1, 1, 1, 1), dim=1)
        next_action, log_prob = agent.sample(next_obs, generator)
        next_value = self.penalty.target_value(agent.target_critic(next_obs, next_action))
        target = reward + discount * (next_value - agent.alpha * log_prob)
        truth = true_value(obs, action)
        self.rows.append(
            {
                "variant": self.variant,
                "seed": self.seed,
                "phase": phase,
                "step": step,
                "beta": float(self.penalty.beta),
                "on_policy": float((agent.value(*visited) - true_value(*visited)).mean()),
                "meter": meter.mean,
                "replay": float((agent.value(obs, action) - truth).mean()),
                "target": float((target - truth).mean()),
                "td_error": td_error,
                "disagreement": float(self.penalty.disagreement(agent.critic(obs, action)).mean()),
                "true_value": float(true_value(*visited).mean()),
            }
        )


def run(variant: str, seed: int) -> list[Row]:
    """Learn, then settle; return the records."""
    assembly = assemble(settings(VARIANTS[variant], seed), factory(Line, **LINE))
    study = Study(assembly, variant)
    assembly.trainer.hooks = Hooks(callbacks=[study])
    assembly.trainer.run()

    agent, config = assembly.agent, assembly.config
    agent.actor_optimizer.lr = agent.alpha_optimizer.lr = 0.0
    for start in range(LEARNING, LEARNING + SETTLING, EVERY):
        errors = []
        for step in range(start + 1, start + EVERY + 1):
            batch = assembly.trainer.replay.sample(config.updates_per_step, config.batch_size)
            errors.append(float(agent.update(batch, step)["train/td_error"]))
        study.record(start + EVERY, fmean(errors), "settling")
    print(f"{variant}, seed {seed}: done", flush=True)
    return study.rows


def summary(rows: list[Row]) -> list[Row]:
    """Average the last 500 steps of learning and the last 200 of settling, and set the seeds side by side."""
    spans = {"learning": LEARNING - 500, "settling": LEARNING + SETTLING - 200}
    lines: list[Row] = []
    for phase, start in spans.items():
        for variant in VARIANTS:
            part = [
                row for row in rows if (row["variant"], row["phase"]) == (variant, phase) and row["step"] > start
            ]
            line: Row = {"phase": phase, "variant": variant}
            for name in (
                "beta",
                "on_policy",
                "meter",
                "replay",
                "target",
                "td_error",
                "disagreement",
                "true_value",
            ):
                by_seed = defaultdict(list)
                for row in part:
                    by_seed[row["seed"]].append(row[name])
                means = [fmean(values) for values in by_seed.values()]
                line[name] = round(fmean(means), 4)
                line[f"{name}_sd"] = round(stdev(means), 4) if len(means) > 1 else 0.0
            lines.append(line)
    return lines


def agreement(rows: list[Row], seen: str, true: str, start: int, end: int) -> str:
    """Say how closely one column follows another over the records in (start, end]."""
    part = [(row[seen], row[true]) for row in rows if start < row["step"] <= end]
    pairs = torch.tensor(part, dtype=torch.float64)  # [records, 2]
    same = float((pairs[:, 0].sign() == pairs[:, 1].sign()).double().mean())
    correlation = float(torch.corrcoef(pairs.T)[0, 1])
    left, right, difference = pairs[:, 0].mean(), pairs[:, 1].mean(), pairs[:, 0] - pairs[:, 1]
    return (
        f"{seen} for {true}, steps {start} to {end}: same sign {same:.0%}, correlation {correlation:+.2f}, "
        f"means {left:+.3f} and {right:+.3f}, difference {difference.mean():+.3f} ± {difference.std():.3f}"
    )


def write(path: Path, rows: list[Row]) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def draw(rows: list[Row], path: Path) -> None:
    """Draw mean and middle half of the seeds over time, and what is seen against what is true."""
    figure, axes = plt.subplots(2, 2, figsize=(11, 7.2), layout="constrained")
    for axis, (name, title) in zip(axes.flat, PANELS.items(), strict=False):
        for variant, (colour, style) in STYLES.items():
            by_step: dict[int, list[float]] = defaultdict(list)
            for row in rows:
                if row["variant"] == variant:
                    by_step[row["step"]].append(row[name])
            values = torch.tensor(list(by_step.values()), dtype=torch.float64)  # [steps, seeds]
            low, high = values.quantile(torch.tensor([0.25, 0.75], dtype=torch.float64), dim=1)
            axis.plot(list(by_step), values.mean(1), style, color=colour, label=variant, linewidth=1.8)
            axis.fill_between(list(by_step), low, high, color=colour, alpha=0.12, linewidth=0)
        axis.axvspan(LEARNING, LEARNING + SETTLING, color="0.93", zorder=0)
        axis.axhline(0, color="0.4", linewidth=0.8)
        axis.set_title(title, fontsize=11)
        axis.set_xlabel("environment steps (grey: policy and data held still)")
    axes[0, 0].legend(frameon=False, title="beta", loc="upper left")
    axes[0, 0].set_ylim(-0.2, 1.2)

    scatter = axes[1, 1]
    for (variant, (colour, _)), marker in zip(STYLES.items(), "o^sD", strict=True):
        seen, true = ([row[name] for row in rows if row["variant"] == variant] for name in ("td_error", "target"))
        scatter.scatter(seen, true, s=14, marker=marker, color=colour, alpha=0.6, linewidth=0)
    scatter.axhline(0, color="0.4", linewidth=0.8)
    scatter.axvline(0, color="0.4", linewidth=0.8)
    scatter.set_title("seen against true, all records", fontsize=11)
    scatter.set_xlabel("target - prediction, mean over 100 steps")
    scatter.set_ylabel("true bias of the TD targets")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run the study and write its files."""
    parser = script.Parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each variant")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time; changes no number")
    parser.add_argument("--out", type=Path, default=OUT, help="where the figure and the tables go")
    args = parser.parse_args()
    jobs = [(variant, seed) for seed in range(args.seeds) for variant in VARIANTS]
    with ProcessPoolExecutor(args.processes) as pool:
        rows = [row for found in pool.map(run, *zip(*jobs, strict=True)) for row in found]
    args.out.mkdir(parents=True, exist_ok=True)
    write(args.out / "records.csv", rows)
    write(args.out / "summary.csv", summary(rows))
    draw(rows, args.out / "figure.png")
    for line in summary(rows):
        numbers = ", ".join(f"{k} {v:+.3f}" for k, v in line.items() if isinstance(v, float))
        print(f"{line['phase']}, {line['variant']}: {numbers}")
    end = LEARNING + SETTLING
    for first, last in ((200, 300), (LEARNING - 500, LEARNING), (end - 200, end)):
        print(agreement(rows, "td_error", "target", first, last))
    print(agreement(rows, "meter", "on_policy", 300, end))


if __name__ == "__main__":
    script.start(main)
