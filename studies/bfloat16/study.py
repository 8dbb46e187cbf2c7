"""What products of bfloat16 cost in return: Hopper-v4, 5 plain critics, 5 updates per step, 3 seeds.

python studies/bfloat16/study.py OUT     (needs a processor with AMX or AVX512_BF16; writes OUT/returns.csv)

Every pair of runs differs in `--precision` alone. `instructions` is what multiplies bfloat16 numbers here,
`processor` the processor time of the whole run, in seconds.
"""

import csv
import json
import sys
import time
from pathlib import Path

from pessimism.config.resolve import resolved
from pessimism.native.library import load
from pessimism.training.run import run

STEPS, SEEDS, PRECISIONS = 3000, (0, 1, 2), ("float32", "bfloat16")
SETTINGS = {
    "env": "Hopper-v4",
    "steps": STEPS,
    "random_steps": 500,
    "updates_per_step": 5,
    "threads": 1,
    "critic": {"form": "plain", "members": 5},
    "evaluation": {"every": 500, "episodes": 10},
    "bias": {"every": STEPS},
    "checkpoint": {"every": STEPS},
    "log": {"tensorboard": False},
}
SHOWN = {"return": "eval/mean_reward", "value": "train/value", "beta": "train/beta", "loss": "train/critic_loss"}


def rows(path: Path) -> list[dict[str, float]]:
    """Return a line for each evaluation of a run, with the newest training metrics before it."""
    newest: dict[str, float] = {}
    found = []
    for line in (path / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        newest |= record
        if SHOWN["return"] in record:
            found.append(
                {"step": newest["step"]} | {name: newest.get(key, float("nan")) for name, key in SHOWN.items()}
            )
    return found


def main(out: Path) -> None:
    """Run all pairs and write the table."""
    lines, instructions = [], "AMX" if load().tiles else "AVX512_BF16"
    for seed in SEEDS:
        for precision in PRECISIONS:
            path, started = out / f"{precision}-{seed}", time.process_time()
            run(resolved("gpl-sac", SETTINGS | {"seed": seed, "precision": precision}), path)
            spent = round(time.process_time() - started, 1)
            fixed = {"instructions": instructions, "precision": precision, "seed": seed, "processor": spent}
            lines += [fixed | row for row in rows(path)]
            with (out / "returns.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, lines[0])
                writer.writeheader()
                writer.writerows(lines)
            print(precision, seed, spent, lines[-1], flush=True)


main(Path(sys.argv[1]))
