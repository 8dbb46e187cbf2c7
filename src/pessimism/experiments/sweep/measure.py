"""How long an environment step of a config takes here: a process that measures the configs it is given.

`python -m pessimism.experiments.sweep.measure` reads {"configs": [...], "seconds": S, "compile": true} from its
standard input and answers with a JSON line for each config (`Cost`). Updates are measured uncompiled, as compiling
takes longer than measuring. If asked, the first config is measured both ways, and the ratio is reported with it.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from pessimism.config.resolve import validated
from pessimism.config.schema import Config
from pessimism.errors import UserError
from pessimism.experiments.sweep.cost import Cost
from pessimism.processes import protocol_channel
from pessimism.training.loop import Every, Trainer
from pessimism.training.run import assemble

SMALL, DRAWN = 500, 60  # random transitions that are learned from; fewer where each is drawn
CHUNK = 4  # environment steps that are timed together
NEVER = Every(0)


def measure(config: Config, seconds: float, compiled: bool) -> Cost:
    """Step and learn for a while."""
    capacity = max(2 * config.batch_size, 2 * SMALL)
    plain = config.model_copy(update={"model": None, "compile": False, "replay_capacity": capacity, "threads": 0})
    assembly = assemble(plain)
    trainer = assembly.trainer
    count = filling(config)
    act = run_for(trainer, count, random=True, updates=1) / count
    spec = trainer.env.env.spec
    obs = torch.from_numpy(trainer.env.reset(0))[None]
    with torch.no_grad():
        mode = min(seconds_of(lambda: trainer.agent.mode(obs)) for _ in range(20))
    learn = learning(trainer, plain, seconds)
    tensors = [*trainer.agent.state_dict().values()]
    return Cost(
        act=act,
        evaluate=act + mode,
        learn=learn,
        compiled=compiled_share(plain) if compiled and config.compile else 0.0,
        episode=(spec.max_episode_steps if spec is not None else None) or 1000,
        row_bytes=trainer.replay.nbytes / trainer.replay.capacity,
        state_bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
    )


def filling(config: Config) -> int:
    """Return how many random steps come before learning."""
    return SMALL if config.pixels is None else DRAWN


def learning(trainer: Trainer, config: Config, seconds: float) -> float:
    """Return the seconds of a step that is learned from.

    A step with many updates is a policy update and so many critic updates more: two small numbers of them tell.
    """
    few = max(1, config.policy_every)
    many = min(4 * few, config.updates_per_step)
    counts = {few, many} if many > few else {config.updates_per_step}
    samples: dict[int, list[float]] = {count: [] for count in counts}
    for count in counts:
        run_for(trainer, CHUNK, random=False, updates=count)  # fills caches
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or not all(samples.values()):
        for count in counts:
            samples[count].append(run_for(trainer, CHUNK, random=False, updates=count) / CHUNK)
    times = {count: statistics.median(values) for count, values in samples.items()}
    if len(times) == 1:
        return times.popitem()[1]
    per_update = max(0.0, times[many] - times[few]) / (many - few)
    return times[few] + per_update * (config.updates_per_step - few)


def compiled_share(config: Config) -> float:
    """Return the time of a compiled step as a share of an uncompiled one."""
    times = []
    updates = max(config.policy_every, min(4, config.updates_per_step))
    for compiled in (False, True):
        trainer = assemble(config.model_copy(update={"compile": compiled})).trainer
        run_for(trainer, filling(config), random=True, updates=1)
        run_for(trainer, 2, random=False, updates=updates)
        times.append(min(run_for(trainer, CHUNK, random=False, updates=updates) for _ in range(3)))
    return times[1] / times[0]


def run_for(trainer: Trainer, steps: int, *, random: bool, updates: int) -> float:
    """Let a trainer take some steps and nothing else; return the seconds."""
    last = trainer.progress.step + steps
    trainer.budget = trainer.budget._replace(
        steps=last,
        random_steps=last if random else 0,
        updates_per_step=updates,
        log_now=NEVER,
        evaluate_now=NEVER,
        measure_now=NEVER,
        save_now=NEVER,
    )
    return seconds_of(trainer.run)


def seconds_of(action: Callable[[], object]) -> float:
    """Return the seconds that something takes.

    One thread's time is the processor's, which does not grow when others use the machine too.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    started = clock()
    action()
    return clock() - started


def main() -> None:
    """Measure what standard input asks for."""
    channel = protocol_channel()
    asked: dict[str, Any] = json.loads(sys.stdin.readline())
    for index, values in enumerate(asked["configs"]):
        try:
            cost = measure(validated(values), asked["seconds"], asked["compile"] and index == 0)
        except UserError as error:
            cost = Cost(error=str(error))
        channel.write(json.dumps(asdict(cost)) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
