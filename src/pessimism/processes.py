"""Processes that measure or train: which cores they run on, how many threads they take, how they answer."""

import os
from typing import TextIO

from pessimism.errors import UserError


def pinned(threads: int) -> dict[str, str]:
    """Return the variables that give every library the same number of threads."""
    count, several = str(threads), str(threads > 1).lower()
    xla = f"--xla_cpu_multi_thread_eigen={several} intra_op_parallelism_threads={count}"
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "NPROC": count,  # the size of JAX's thread pool
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {xla}".strip(),  # the last of two flags holds
        "JAX_PLATFORMS": "cpu",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # otherwise a pool of processes that stays
    }


def choose_cores(threads: int | None) -> list[int]:
    """Return the cores that all contestants are pinned to: all that this process may use, unless told."""
    everything = set(range(os.cpu_count() or 1))
    available = sorted(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else everything)
    wanted = len(available) if threads is None else threads
    if not 0 < wanted <= len(available):
        raise UserError(f"threads must be between 1 and {len(available)}, the cores there are; got {wanted}")
    return available[:wanted]


def protocol_channel() -> TextIO:
    """Return standard output for the protocol; what libraries print goes to standard error from now on."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return channel
