"""The demonstration: a solved MuJoCo task, its curve and a film, in about a minute on two cores."""

import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from pessimism.analysis.curves import plot_run, read_metrics
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.errors import UserError
from pessimism.tools.video import film
from pessimism.training.loop import Callback
from pessimism.training.run import run
from pessimism.training.state import Progress

# GPL-SAC at half its size: half the critics, half their width, half the batch. Fewer random steps and larger
# learning rates, as a run has a hundredth of the paper's steps.
TASK = {
    "env": "InvertedDoublePendulum-v4",
    "steps": 2800,
    "random_steps": 300,
    "hidden": 128,
    "critic": {"members": 5, "hidden": 128},
    "batch_size": 128,
    "lr": 1e-3,
    "alpha_lr": 1e-3,
    "evaluation": {"every": 100},
    "bias": {"every": 100, "episodes": 5},
    "checkpoint": {"every": 100},
    "log": {"every": 10},
    "threads": 1,  # networks are too small for more
}
SOLVED = 9100.0  # Gymnasium's threshold; both poles standing to the time limit bring 9360
IN_A_ROW = 2  # evaluations of five episodes


class UntilSolved(Callback):
    """Ends the run when the task is solved."""

    def __init__(self) -> None:
        self.in_a_row = 0

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Count solved evaluations."""
        if "eval/mean_reward" in metrics:
            self.in_a_row = self.in_a_row + 1 if metrics["eval/mean_reward"] >= SOLVED else 0

    def on_step(self, progress: Progress) -> bool:
        """Return False once there were enough of them."""
        return self.in_a_row < IN_A_ROW


def demo(seed: int, out: Path | None, console: Console) -> int:
    """Train, draw, film, and say where everything is. Returns 0 if the task is solved."""
    path = out or Path("runs") / "demo" / f"seed_{seed}"
    config = validated(merge(preset_values("gpl-sac"), {**TASK, "seed": seed}))
    started = time.perf_counter()
    until_solved = UntilSolved()
    if not solved(path):
        result = run(config, path, callbacks=[until_solved], console=console)
        if not result.finished and until_solved.on_step(Progress()):
            return 130  # interrupted
    steps, returns = read_metrics(path)["eval/mean_reward"]
    minutes = (time.perf_counter() - started) / 60
    lines = [
        f"{'solved' if solved(path) else 'not solved'}: return {returns[-1]:.0f} of 9360 after {steps[-1]} steps",
        f"took   {minutes:.1f} minutes",
        _drawn("curve", plot_run, path),
        _drawn("video", film, path),
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True, markup=False)
    return 0 if solved(path) else 1


def _drawn(what: str, draw: Callable[[Path], Path], run: Path) -> str:
    """Draw something about a run; return a line that says where it is, or why it is not there."""
    try:
        return f"{what}  {draw(run)}"
    except UserError as error:
        return f"no {what}: {error}"


def solved(path: Path) -> bool:
    """Return whether a run's last evaluations solve the task."""
    try:
        _, returns = read_metrics(path)["eval/mean_reward"]
    except (UserError, KeyError):
        return False
    return len(returns) >= IN_A_ROW and min(returns[-IN_A_ROW:]) >= SOLVED
