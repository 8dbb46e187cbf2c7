"""Measure what MBPO's model costs: the first fit, then refits after 250 more steps, each with its rollouts.

Prints seconds of processor time beside those of the clock: on a shared machine only the first repeats.
"""

import time
from collections.abc import Callable
from pathlib import Path

from pessimism.config.resolve import merge, read_yaml, resolved
from pessimism.models.rollouts import ModelReplay
from pessimism.tools.script import Parser, start
from pessimism.training.run import assemble
from pessimism.types import Metrics

QUIET = {"compile": False, "evaluation": {"every": 0}, "bias": {"every": 0}}


def timed(what: str, action: Callable[[], Metrics]) -> None:
    """Print how long an action takes, and what it reports."""
    clock, processor = time.perf_counter(), time.process_time()
    metrics = action()
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    report = ", ".join(f"{name.removeprefix('model/')} {value:.3g}" for name, value in metrics.items())
    print(f"{what}: {processor:.1f} s of processor time, {clock:.1f} s by the clock ({report})", flush=True)


def main() -> None:
    """Collect random steps and measure four refreshes; the policy stays as it is."""
    parser = Parser(__doc__)
    parser.add_argument("task", nargs="?", default="Hopper-v4", help="Gymnasium id (Hopper-v4)")
    parser.add_argument("threads", nargs="?", type=int, default=1, help="CPU threads (1)")
    parser.add_argument("--config", type=Path, help="YAML file with other settings")
    asked = parser.parse_args()
    changes = {} if asked.config is None else read_yaml(asked.config)
    own = {"env": asked.task, "threads": asked.threads, **QUIET}
    config = resolved("mbpo", merge(own, changes))
    assembly = assemble(config)
    trainer, source = assembly.trainer, assembly.trainer.replay
    assert isinstance(source, ModelReplay)
    first, every = config.random_steps, source.plan.train_every
    for steps in range(first, first + 4 * every, every):
        trainer.budget = trainer.budget._replace(steps=steps, random_steps=config.steps)
        trainer.run()
        what = f"fit to {len(source.real)} transitions and {source.plan.rollouts} rollouts"
        timed(what, lambda: source.refresh(source.plan.first_step, assembly.agent))
    batches = source.sample(1, config.batch_size)
    timed("one update of critics and policy", lambda: assembly.agent.update(batches, 0))


if __name__ == "__main__":
    start(main)
