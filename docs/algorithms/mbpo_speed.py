"""Measure what MBPO's model costs: a first fit, refits after 250 more steps, and 100,000 rollouts each.

python docs/algorithms/mbpo_speed.py [task] [threads]

Prints seconds of processor time beside those of the clock: on a shared machine only the first repeats.
"""

import sys
import time
from collections.abc import Callable

import torch

from pessimism.config import merge, validated
from pessimism.models.rollouts import ModelReplay
from pessimism.presets import preset_values
from pessimism.run import assemble

QUIET = {"compile": False, "evaluation": {"every": 0}, "bias": {"every": 0}}


def timed(what: str, action: Callable[[], object]) -> None:
    """Print how long an action takes."""
    clock, processor = time.perf_counter(), time.process_time()
    action()
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    print(f"{what}: {processor:.1f} s of processor time, {clock:.1f} s", flush=True)


def main(task: str, threads: int) -> None:
    """Collect random steps and measure three refreshes."""
    config = validated(merge(preset_values("mbpo", task), {"env": task, "threads": threads, **QUIET}))
    assembly = assemble(config)
    trainer, agent = assembly.trainer, assembly.agent
    source = trainer.replay
    assert isinstance(source, ModelReplay)
    trainer.budget = trainer.budget._replace(steps=config.random_steps, random_steps=config.steps)
    trainer.run()
    for refresh in range(3):
        step = config.random_steps + 1 + 250 * refresh
        roll_out, source._roll_out = source._roll_out, lambda agent, length: None  # apart from the fit
        timed(f"fit to {len(source.real)} transitions", lambda: print(source.refresh(step, agent)))  # noqa: B023
        source._roll_out = roll_out
        timed(f"{source.plan.rollouts} rollouts of length 1", lambda: source._roll_out(agent, 1))
        trainer.budget = trainer.budget._replace(steps=trainer.progress.step + 250)
        trainer.run()
    batches = source.sample(config.updates_per_step, config.batch_size)
    timed(
        f"{config.updates_per_step} updates of critics and policy",
        lambda: [agent.update(batch, 0) for batch in batches.groups(1)],
    )


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    main(sys.argv[1] if len(sys.argv) > 1 else "Hopper-v4", int(sys.argv[2]) if len(sys.argv) > 2 else 1)
