"""The update in C++ with each instruction set and precision that runs here, and by torch's compiler, in turns.

Whole steps of an agent for each way; then the calls to C++ alone; then how far values are from double precision.
To see what torch does on a processor without AVX-512, set ATEN_CPU_CAPABILITY=avx2, MKL_ENABLE_INSTRUCTIONS=AVX2
and ONEDNN_MAX_CPU_ISA=AVX2, and compare the ways AVX2 and torch.
"""

import copy
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from pessimism.agents.critic_learner import CompiledLearner, NativeLearner
from pessimism.agents.sac import SACAgent
from pessimism.bench.contestants import build_agent, full_replay
from pessimism.bench.worker import Setting
from pessimism.errors import UserError
from pessimism.native.critic import CriticUpdate
from pessimism.native.library import NoLibraryError, load
from pessimism.nn.critic import Precision
from pessimism.tools.script import Parser, start
from pessimism.values import squared_td_loss

TAU = 0.005


class Way(NamedTuple):
    """How products are computed."""

    target: str  # the instruction set, as compilers name it
    tiles: bool
    precision: Precision = "float32"


def ways() -> dict[str, Way]:
    """Return what runs here, by name."""
    try:
        native, found = load(), {}
    except NoLibraryError as error:
        raise UserError(f"the update in C++ is not available: {error}") from None
    if native.tiles:
        found |= {"AMX": Way("native", True), "AMX bfloat16": Way("native", True, "bfloat16")}
    found[native.vectors] = Way("native", False)
    if native.pairs:
        found[f"{native.vectors} bfloat16"] = Way("native", False, "bfloat16")
    if native.vectors == "AVX-512":
        found["AVX2"] = Way("x86-64-v3", False)
    return found


def native_update(agent: SACAgent, way: Way) -> CriticUpdate:
    """Return the agent's update in C++."""
    agent.critic.precision = way.precision
    networks = (agent.critic, agent.target_critic, agent.learner.optimizer)
    return CriticUpdate(*networks, TAU, squared_td_loss, tiles=way.tiles, target=way.target)


def whole_steps(setting: Setting, known: Mapping[str, Way]) -> dict[str, Callable[[], object]]:
    """Return an agent's step for each way."""
    replay, steps = full_replay(setting), dict[str, Callable[[], object]]()
    for name in (*known, "torch"):
        agent = build_agent(setting)
        assert isinstance(agent.learner, NativeLearner)
        if name == "torch":
            agent.learner = CompiledLearner(agent.critic, agent.pessimism)
        else:
            agent.learner.native = native_update(agent, known[name])
        steps[name] = lambda agent=agent: agent.update(replay.sample(setting.updates, setting.batch), 0)
    return steps


def native_calls(setting: Setting, known: Mapping[str, Way]) -> dict[str, Callable[[], object]]:
    """Return a step's worth of calls to C++."""
    calls, repeat = dict[str, Callable[[], object]](), range(setting.updates)
    inputs = torch.randn(setting.batch, setting.obs_size + setting.action_size)
    target = torch.randn(setting.batch, 1)
    for name, way in known.items():
        update = native_update(build_agent(setting), way)
        calls[f"{name}, values"] = lambda update=update: [update.target_values(inputs) for _ in repeat]
        calls[f"{name}, update"] = lambda update=update: [update.learn(inputs, target) for _ in repeat]
    return calls


def compare(
    critic: str, contestants: Mapping[str, Callable[[], object]], seconds: float, clock: Callable[[], float]
) -> None:
    """Print medians of turns."""
    for step in contestants.values():  # the first compiles
        step(), step()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    while sum(map(sum, times.values())) < 1000 * seconds:
        for name, step in contestants.items():
            started = clock()
            step()
            times[name].append(1000 * (clock() - started))
    for name, own in times.items():
        low, middle, high = statistics.quantiles(own, n=4)
        print(f"{critic:8} {name:24} {middle:6.1f} ms ({low:.1f} to {high:.1f}), median of {len(own)}")


def errors(agent: SACAgent, known: Mapping[str, Way]) -> None:
    """Print the distance to double precision, relative to the size of the values."""
    obs, action = torch.randn(256, 17), torch.randn(256, 6)
    with torch.no_grad():
        exact = copy.deepcopy(agent.target_critic).double()(obs.double(), action.double())
        found = {"torch": agent.target_critic(obs, action)}
    for name, way in known.items():
        found[name] = native_update(agent, way).target_values(torch.cat([obs, action], dim=-1))
    for name, values in found.items():
        off = (values.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()
        print(f"{name:16} is {off:.1e} off")


def main() -> None:
    """Compare both forms of critic."""
    parser = Parser(__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=120, help="time of all steps together (120)")
    parser.add_argument("ways", nargs="*", help="such as AMX, 'AVX-512 bfloat16', AVX2 (all that run here)")
    parser.add_argument(
        "--one-thread", action="store_true", help="and processor time, for a machine that does more"
    )
    asked = parser.parse_args()
    clock = time.perf_counter
    if asked.one_thread:
        torch.set_num_threads(1)
        clock = time.process_time
    known = ways()
    if unknown := set(asked.ways) - set(known):
        raise UserError(f"{unknown.pop()} does not run here, only {', '.join(known)}")
    chosen = {name: known[name] for name in asked.ways or known}
    for form in ("plain", "residual"):
        sizes = Setting(contestant="pessimism-compiled", critic=form)
        compare(form, whole_steps(sizes, chosen), asked.seconds / 4, clock)
        compare(form, native_calls(sizes, chosen), asked.seconds / 4, clock)
    errors(build_agent(Setting(contestant="pessimism-compiled", critic="plain")), chosen)


if __name__ == "__main__":
    start(main)
