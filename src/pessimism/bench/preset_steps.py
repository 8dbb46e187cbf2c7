"""Contestants that are presets: all that they learn from one environment step, and its matrix products alone."""

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pessimism.bench.contestants import full_replay
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.config.schema import Config
from pessimism.errors import UserError
from pessimism.nn.compilation import compiler
from pessimism.training.build import build_agent, build_budget

if TYPE_CHECKING:
    from pessimism.bench.worker import Setting, Step

CYCLE = 3  # environment steps after which the policy updates of every preset repeat


def preset_step(setting: "Setting") -> "Step":
    """Return a step of `preset-NAME`, compiled, or its products, `products-NAME`. @WIDTH is that of the critics."""
    kind, _, name = setting.contestant.partition("-")
    name, _, width = name.partition("@")
    config = preset_config(name, setting, int(width) if width else None, compile=kind == "preset")
    if kind == "preset":
        if compiler() is None:
            raise UserError("no C++ compiler found: install g++ or clang++, or set CXX")
        return learning_step(config, setting)
    with Products() as products:
        step = learning_step(config, setting)
        products.seen.clear()
        for _ in range(CYCLE):
            step()
    return products.step()


def preset_config(name: str, setting: "Setting", width: int | None, *, compile: bool) -> Config:
    """Return a preset at the sizes of the task that the setting describes."""
    changes: dict[str, Any] = {"env": "any", "target_entropy": -3.0, "compile": compile}
    changes |= {"batch_size": setting.batch} | ({"critic": {"hidden": width}} if width else {})
    return validated(merge(preset_values(name), changes))


def learning_step(config: Config, setting: "Setting") -> "Step":
    """Return a step that samples the batches of an environment step and learns from them, as the loop does."""
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    replay, budget = full_replay(setting), build_budget(config)
    agent = build_agent(config, (setting.obs_size,), setting.action_size)
    for reward in (-1.0, 1.0):
        agent.observe(reward, ended=True)
    steps = itertools.count(config.random_steps + 1)

    def step() -> None:
        now = next(steps)
        batches = replay.sample(config.updates_per_step, config.batch_size)
        for updates, policy in budget.groups(now):
            agent.update(batches.at(updates), now, policy=policy)

    return step


class Operand(NamedTuple):
    """A matrix, or a batch of them."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def filled(self) -> Tensor:
        """Return random numbers in this layout."""
        return torch.randn(1000).repeat(1 + self._length() // 1000).as_strided(self.shape, self.stride)

    def _length(self) -> int:
        return sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True)) + 1


class Products(TorchDispatchMode):
    """Notes the operands of every matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Operand, Operand]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Run an operation, and note it if it is a product."""
        left = {torch.ops.aten.mm: 0, torch.ops.aten.bmm: 0, torch.ops.aten.addmm: 1}.get(func.overloadpacket)
        if left is not None:
            one, two = args[left], args[left + 1]
            self.seen.append((Operand(one.shape, one.stride()), Operand(two.shape, two.stride())))
        return func(*args, **(kwargs or {}))

    def step(self) -> "Step":
        """Return a step that does a part of the products, all of them in CYCLE steps."""
        operands = {operand: operand.filled() for pair in self.seen for operand in pair}
        pairs = [(operands[left], operands[right]) for left, right in self.seen]
        size = -(-len(pairs) // CYCLE)
        parts = itertools.cycle([pairs[start : start + size] for start in range(0, len(pairs), size)])

        def step() -> None:
            for left, right in next(parts):
                left @ right

        return step
