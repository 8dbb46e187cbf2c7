"""Compiled functions, and what they need: a C++ compiler and a cache."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

AGENTS = 1000  # compiled in one process: torch counts each as a recompilation of its class, and stops at 8

P = ParamSpec("P")
R = TypeVar("R")


def compiler() -> str | None:
    """Return the C++ compiler that torch.compile would use on the CPU, if there is one."""
    usual = "clang++" if sys.platform == "darwin" else "g++"
    return shutil.which(os.environ.get("CXX", usual))  # as torch looks for it: no other one if CXX does not exist


def cache_problem() -> str:
    """Return why torch cannot keep what it compiles, or an empty text."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    try:
        place = Path(cache_dir())
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return ""
    except OSError as error:
        return f"{os.environ.get('TORCHINDUCTOR_CACHE_DIR', 'the cache')} cannot be written ({error.strerror})"


def compiled(function: Callable[P, R], device: torch.device) -> Callable[P, R]:
    """Return `function` as one compiled graph; it may take gradients inside (torch >= 2.13).

    On a processor the calls between the graph's kernels are compiled too: from Python they take 2 % of an
    update. On a GPU they are recorded and replayed (CUDA graphs). A replayed graph writes its results to
    the same memory each time, so they are copied.
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
