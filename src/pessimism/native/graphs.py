"""Functions compiled by torch."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from pessimism.native.products import refusal
from pessimism.nn.critic import Precision

AGENTS = 1000  # compiled in one process: torch counts each as a recompilation of its class, and stops at 8

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R], device: torch.device, precision: Precision = "float32") -> Callable[P, R]:
    """Return `function` as one compiled graph; it may take gradients inside (torch >= 2.13).

    `precision` is that of its matrix products, where C++ computes them.

    On a processor the calls between the graph's kernels are compiled too: from Python they take 2 % of an
    update. On a GPU they are recorded and replayed (CUDA graphs). A replayed graph writes its results to
    the same memory each time, so they are copied.
    """
    recorded = device.type == "cuda"
    options: dict[str, Any] = {"triton.cudagraphs" if recorded else "cpp_wrapper": True}
    if device.type == "cpu" and refusal(precision) is None:
        from pessimism.native.replacement import InCpp  # late: it loads torch's compiler

        options["post_grad_custom_post_pass"] = InCpp(precision)
    graph = torch.compile(function, fullgraph=True, dynamic=False, options=options)

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch._dynamo.config.patch(trace_autograd_ops=True, recompile_limit=AGENTS):
            if not recorded:
                return graph(*args, **kwargs)
            torch.compiler.cudagraph_mark_step_begin()
            return tree_map_only(Tensor, Tensor.clone, graph(*args, **kwargs))

    return call
