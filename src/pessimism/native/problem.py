"""What is learned or evaluated, as C++ is told: the structure of `problem.hpp`."""

import ctypes
from collections.abc import Iterable, Sequence

from torch import Tensor

from pessimism.nn.critic import Precision

SLOTS = 10  # parameters of a residual critic; a plain one has no layer norm (2, 3) and no outer layer (6, 7)
PLAIN_SLOTS = (0, 1, 4, 5, 8, 9)
SIZES = ("members", "batch", "inputs", "hidden", "atoms", "targets", "threads", "tiles", "parts")
CONSTANTS = ("loss_scale", "kappa", "norm_epsilon", "first_rate", "second_rate", "second_decay", "epsilon", "tau")
Pointers = ctypes.c_void_p * SLOTS


class Problem(ctypes.Structure):
    """The C++ structure of the same name."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, Pointers) for name in ("online", "averaged", "means", "squares", "left", "right")),
        *((name, ctypes.c_float) for name in CONSTANTS),
    )


def parts_of(precision: Precision, *, tiles: bool) -> int:
    """Return how many bfloat16 numbers stand for a float in a product; 0: the float itself."""
    if precision == "bfloat16":
        return 1
    return 3 if tiles else 0


def in_slots(tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """Put a network's parameters, or what belongs to each, into the places that C++ has for them."""
    slots: list[Tensor | None] = [None] * SLOTS
    for slot, tensor in zip(range(SLOTS) if len(tensors) == SLOTS else PLAIN_SLOTS, tensors, strict=True):
        slots[slot] = tensor
    return slots


def pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    """Return where a tensor is in memory."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def pointers(slots: Iterable[Tensor | None]) -> "ctypes.Array[ctypes.c_void_p]":
    """Return where the tensors of all places are in memory."""
    return Pointers(*map(pointer, slots))
