"""The update in C++ with vectors and with tiles, in turns: python docs/native_time.py [SECONDS]."""

import copy
import statistics
import sys
import time

import torch

from pessimism.native.critic import CriticUpdate
from pessimism.native.library import has_tiles
from pessimism.nn.critic import EnsembleCritic, plain_critic, residual_critic
from pessimism.ops import Adam

INPUTS, MEMBERS, BATCH, UPDATES = 23, 10, 256, 20  # HalfCheetah's, and the paper's


def native(critic: EnsembleCritic, *, tiles: bool) -> CriticUpdate:
    """Return the update of a copy of the critic."""
    own = copy.deepcopy(critic)
    averaged = copy.deepcopy(critic).requires_grad_(False)
    return CriticUpdate(own, averaged, Adam(own.parameters(), 3e-4), 0.005, tiles=tiles)


def milliseconds(update: CriticUpdate, part: str) -> float:
    """Time one environment step's worth of calls."""
    inputs, target = torch.randn(BATCH, INPUTS), torch.randn(BATCH, 1)
    started = time.perf_counter()
    for _ in range(UPDATES):
        if part == "values":
            update.target_values(inputs)
        else:
            update.learn(inputs, target)
    return 1000 * (time.perf_counter() - started)


seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
for build in (plain_critic, residual_critic):
    critic = build(INPUTS, members=MEMBERS, hidden=256)
    updates = {"vectors": native(critic, tiles=False)}
    if has_tiles():
        updates["tiles"] = native(critic, tiles=True)
    times: dict[tuple[str, str], list[float]] = {}
    while sum(map(sum, times.values())) < 1000 * seconds / 2:
        for name, update in updates.items():
            for part in ("values", "learn"):
                times.setdefault((name, part), []).append(milliseconds(update, part))
    for (name, part), own in times.items():
        low, middle, high = statistics.quantiles(own, n=4)
        print(f"{build.__name__:15} {name:7} {part:6} {middle:6.1f} ms ({low:.1f} to {high:.1f})")
