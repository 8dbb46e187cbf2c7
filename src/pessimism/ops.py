"""Steps that every learner takes: optimise, average, compile."""

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

AGENTS = 1000  # compiled in one process: torch counts each as a recompilation of its class, and stops at 8

P = ParamSpec("P")
R = TypeVar("R")


class Adam(nn.Module):
    """Adam (Kingma and Ba, 2015), as a module whose state is buffers.

    torch.optim.Adam breaks the graph when it is called inside a compiled function; this one does not,
    so that a whole update, from the target to the averaged weights, is one graph. Its state is part of
    the agent's `state_dict` like any other tensor.
    """

    powers: Tensor

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__()
        self.targets = list(parameters)
        self.lr, self.betas, self.eps = lr, betas, eps
        self.means = [torch.zeros_like(target) for target in self.targets]
        self.squares = [torch.zeros_like(target) for target in self.targets]
        for index, (mean, square) in enumerate(zip(self.means, self.squares, strict=True)):
            self.register_buffer(f"mean_{index}", mean)
            self.register_buffer(f"square_{index}", square)
        # Running powers beta**t, in double precision as 1 - 0.999 loses five digits in single, and not
        # 0-dimensional: torch.compile (2.13) takes double scalars for constants and drops their updates.
        self.decay = torch.tensor(betas, dtype=torch.float64, device=self.targets[0].device)
        self.register_buffer("powers", torch.ones_like(self.decay))

    def advance(self) -> Tensor:
        """Count one step. Returns what corrects the bias of the means and of the squares at this step: [2]."""
        self.powers.mul_(self.decay)
        return (1 / (1 - self.powers)).float()

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Move the parameters against the gradients."""
        mean_scale, square_scale = self.advance().unbind()
        first, second = self.betas
        for target, gradient, mean, square in zip(self.targets, gradients, self.means, self.squares, strict=True):
            mean.lerp_(gradient, 1 - first)
            square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
            target.sub_(self.lr * mean_scale * mean / ((square * square_scale).sqrt() + self.eps))

    def minimise(self, loss: Tensor, clip: float = float("inf")) -> None:
        """Take one step down the gradient of `loss`, its global norm clipped to `clip`."""
        gradients = torch.autograd.grad(loss, self.targets)
        if clip != float("inf"):
            norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
            scale = (clip / norm.clamp(min=1e-12)).clamp(max=1.0)
            gradients = tuple(gradient * scale for gradient in gradients)
        self.step(gradients)


@torch.no_grad()
def polyak_(averaged: nn.Module, source: nn.Module, tau: float) -> None:
    """Move the averaged weights by a share tau towards the source: phi' <- (1 - tau) phi' + tau phi."""
    for old, new in zip(averaged.parameters(), source.parameters(), strict=True):
        old.lerp_(new, tau)


def compiler() -> str | None:
    """Return the C++ compiler that torch.compile would use on the CPU, if there is one."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "g++", "clang++", "c++"))), None)


def compiled(function: Callable[P, R], device: torch.device) -> Callable[P, R]:
    """Return `function` as one compiled graph; it may take gradients inside (torch >= 2.13).

    On a processor the calls between the graph's kernels are compiled too: from Python they take 2 % of an
    update. On a GPU they are recorded and played back (CUDA graphs). What is played back leaves its results in
    the same memory each time, so that they are copied.
    """
    recorded = device.type == "cuda"
    option = "triton.cudagraphs" if recorded else "cpp_wrapper"
    graph = torch.compile(function, fullgraph=True, dynamic=False, options={option: True})

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch._dynamo.config.patch(trace_autograd_ops=True, recompile_limit=AGENTS):
            if not recorded:
                return graph(*args, **kwargs)
            torch.compiler.cudagraph_mark_step_begin()
            return tree_map_only(Tensor, Tensor.clone, graph(*args, **kwargs))

    return call


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on the device, without waiting for a GPU to take it."""
    if tensor.device.type != device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
