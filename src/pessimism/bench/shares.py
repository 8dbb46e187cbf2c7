"""Where the time of a real run goes: the update against everything around it, at the paper's setting."""

import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from rich.console import Console

from pessimism.bench.report import write_json
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.config.schema import Config
from pessimism.terminal import new_table
from pessimism.training.directory import RunDirectory
from pessimism.training.recorder import Recorder
from pessimism.training.run import Assembly, assemble

P = ParamSpec("P")
R = TypeVar("R")
EPISODE = 1000  # random steps before the first update: one episode of HalfCheetah


class Stopwatch:
    """Adds up the time that a function takes."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0

    def around(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, timed."""

        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - started
                self.calls += 1

        return timed

    @property
    def milliseconds(self) -> float:
        """Mean of a call."""
        return 1000 * self.seconds / max(1, self.calls)


def run_shares(
    *,
    steps: int = 60,
    json_path: Path | None = None,
    console: Console | None = None,
    **changes: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Train GPL-SAC on HalfCheetah-v4 for `steps` updates and print what each part takes of a step."""
    console = console or Console()
    base = {"env": "HalfCheetah-v4", "random_steps": EPISODE, "steps": EPISODE + steps}
    config = validated(merge(preset_values("gpl-sac"), base | changes))
    with tempfile.TemporaryDirectory() as folder, console.status("training"):
        parts = measure_parts(assemble(config), Path(folder) / "run")
    total = sum(parts.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    table = new_table("Where the time of a step goes", ("part",), ("ms", "share"))
    for name, milliseconds in parts.items():
        table.add_row(name, f"{milliseconds:.2f}", f"{100 * milliseconds / total:.2f} %")
    table.add_row(
        "all but the update", f"{total - parts['update']:.2f}", f"{100 * (1 - parts['update'] / total):.2f} %"
    )
    table.caption = f"{config.env}, {config.algorithm}, {steps} steps; peak memory {peak:.0f} MB"
    console.print(table)
    record = {"ms_per_env_step": parts, "peak_mb": peak, "config": config.model_dump()}
    if json_path is not None:
        write_json(json_path, record)
    return record


def measure_parts(assembly: Assembly, path: Path) -> dict[str, float]:
    """Train in a real run directory; return milliseconds per environment step, rare parts spread out."""
    config, trainer = assembly.config, assembly.trainer
    names = (
        "update",
        "environment",
        "policy",
        "sampling",
        "storing",
        "evaluation",
        "bias meter",
        "logging",
        "checkpoint",
    )
    watches = {name: Stopwatch() for name in names}
    recorder = Recorder(RunDirectory(path), config)
    with recorder.directory.taken(config, assembly.entropy_source):
        recorder.attach(trainer, [], [])
        budget = trainer.budget
        trainer.budget = budget._replace(steps=EPISODE + 2)  # the first update compiles
        trainer.run()
        trainer.budget = budget
        for name, owner, method in (
            ("update", trainer.agent, "update"),
            ("environment", trainer.env, "step"),
            ("policy", trainer.agent, "sample"),
            ("sampling", trainer.replay, "sample"),
            ("storing", trainer.replay, "add"),
        ):
            setattr(owner, method, watches[name].around(getattr(owner, method)))
        trainer.run()
        once(watches, trainer, recorder)
        recorder.close()
    return spread_out(watches, config)


def once(watches: dict[str, Stopwatch], trainer: Any, recorder: Recorder) -> None:  # noqa: ANN401
    """Time one evaluation, one measurement of the bias, one line of the log and one checkpoint."""
    step = trainer.progress.step
    evaluation = watches["evaluation"].around(trainer.evaluator)(trainer.agent, step)
    watches["bias meter"].around(trainer.bias_meter)(trainer.agent, step)
    for sink in recorder.sinks:
        watches["logging"].around(sink.write)(step, evaluation.metrics())
    watches["checkpoint"].around(trainer.hooks.save)(trainer.checkpoint())


def spread_out(watches: dict[str, Stopwatch], config: Config) -> dict[str, float]:
    """Return the mean milliseconds per environment step, at the periods of the config."""
    periods = {
        "evaluation": config.evaluation.every,
        "bias meter": config.bias.every,
        "logging": config.log.every,
        "checkpoint": config.checkpoint.every,
    }
    return {name: watch.milliseconds / periods.get(name, 1) for name, watch in watches.items()}
