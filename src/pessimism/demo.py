"""The demonstration: a solved MuJoCo task, its curve and a film, in a few minutes on two cores."""

import time
from pathlib import Path

from rich.console import Console

from pessimism.analysis.curves import plot_run, read_metrics
from pessimism.config import merge, validated
from pessimism.errors import UserError
from pessimism.presets import preset_values
from pessimism.run import run
from pessimism.video import film

# GPL-SAC's settings but for size and a shorter start: half the critics and half the batch, for two cores.
TASK = {
    "env": "InvertedDoublePendulum-v4",
    "steps": 2000,
    "random_steps": 300,
    "critic": {"members": 5},
    "batch_size": 128,
    "evaluation": {"every": 100},
    "bias": {"every": 100},
    "checkpoint": {"every": 100},
    "log": {"every": 10},
}
SOLVED = 9100.0  # Gymnasium's threshold; both poles standing to the time limit bring 9360


def demo(seed: int, out: Path | None, console: Console) -> int:
    """Train, draw, film, and say where everything is. Returns 0 if the task is solved."""
    path = out or Path("runs") / "demo" / f"seed_{seed}"
    config = validated(merge(preset_values("gpl-sac"), {**TASK, "seed": seed}))
    started = time.perf_counter()
    if not run(config, path, console=console).finished:
        return 130
    minutes = (time.perf_counter() - started) / 60
    score = read_metrics(path)["eval/mean_reward"][1][-1]
    solved = score >= SOLVED
    say = [f"{'solved' if solved else 'not solved'}: return {score:.0f} of 9360 after {config.steps} steps"]
    say += [f"trained for {minutes:.1f} minutes", f"curve  {plot_run(path)}"]
    try:
        say.append(f"video  {film(path)}")
    except UserError as error:
        say.append(f"no video: {error}")
    console.print("\n".join(say), highlight=False, soft_wrap=True)
    return 0 if solved else 1
