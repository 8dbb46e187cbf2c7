"""The update with tiles, with vectors and by torch's compiler, in turns: python docs/native_time.py [SECONDS].

Whole steps of three agents; then the calls to C++ alone; then how far values are from double precision.
"""

import copy
import statistics
import sys
import time
from collections.abc import Callable

import torch

from pessimism.bench.contestants import build_agent, full_replay
from pessimism.bench.worker import Setting
from pessimism.native.critic import CriticUpdate
from pessimism.native.library import has_tiles
from pessimism.nn.critic import EnsembleCritic

WAYS = ("tiles", "vectors", "torch") if has_tiles() else ("vectors", "torch")


def whole_steps(setting: Setting) -> dict[str, Callable[[], object]]:
    """Return an agent's step for each way."""
    replay, steps = full_replay(setting), {}
    for way in WAYS:
        agent = build_agent(setting)
        assert agent.native is not None
        agent.native.tiles = way == "tiles"
        if way == "torch":
            agent.native = None
        steps[way] = lambda agent=agent: agent.update(replay.sample(setting.updates, setting.batch), 0)
    return steps


def native_calls(setting: Setting) -> dict[str, Callable[[], object]]:
    """Return a step's worth of calls to C++."""
    calls: dict[str, Callable[[], object]] = {}
    repeat = range(setting.updates)
    inputs = torch.randn(setting.batch, setting.obs_size + setting.action_size)
    target = torch.randn(setting.batch, 1)
    for way in WAYS[:-1]:
        update = build_agent(setting).native
        assert update is not None
        update.tiles = way == "tiles"
        calls[f"{way}, values"] = lambda update=update: [update.target_values(inputs) for _ in repeat]
        calls[f"{way}, update"] = lambda update=update: [update.learn(inputs, target) for _ in repeat]
    return calls


def compare(critic: str, contestants: dict[str, Callable[[], object]], seconds: float) -> None:
    """Print medians of turns."""
    for step in contestants.values():  # the first compiles
        step(), step()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    while sum(map(sum, times.values())) < 1000 * seconds:
        for name, step in contestants.items():
            started = time.perf_counter()
            step()
            times[name].append(1000 * (time.perf_counter() - started))
    for name, own in times.items():
        low, middle, high = statistics.quantiles(own, n=4)
        print(f"{critic:8} {name:15} {middle:6.1f} ms ({low:.1f} to {high:.1f}), median of {len(own)}")


def errors(critic: EnsembleCritic, update: CriticUpdate) -> None:
    """Print the distance to double precision, relative to the size of the values."""
    obs, action = torch.randn(256, 17), torch.randn(256, 6)
    with torch.no_grad():
        exact = copy.deepcopy(critic).double()(obs.double(), action.double())
        found = {"torch": critic(obs, action)}
    for way in WAYS[:-1]:
        update.tiles, update.key = way == "tiles", (0, 0, 0, 0)
        found[way] = update.target_values(torch.cat([obs, action], dim=-1))
    for way, values in found.items():
        off = (values.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()
        print(f"{way:7} is {off:.1e} off")


share = (float(sys.argv[1]) if len(sys.argv) > 1 else 120.0) / 4
for form in ("plain", "residual"):
    sizes = Setting(contestant="pessimism-compiled", critic=form)
    compare(form, whole_steps(sizes), share)
    compare(form, native_calls(sizes), share)
one = build_agent(Setting(contestant="pessimism-compiled", critic="plain"))
assert one.native is not None
errors(one.target_critic, one.native)
