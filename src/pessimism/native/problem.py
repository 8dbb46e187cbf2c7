"""What is learned or evaluated, as C++ is told: the structure of `problem.hpp`."""

import ctypes
from collections.abc import Iterable, Sequence

from torch import Tensor

from pessimism.nn.critic import Precision

SLOTS = 12  # places of parameters; no form of critic has all of them
PLAIN_SLOTS = (0, 1, 4, 5, 10, 11)  # first, square and last layer: a matrix and a bias each
RESIDUAL_SLOTS = (0, 1, 2, 3, 4, 5, 8, 9, 10, 11)  # also a layer norm before the square layer, and an outer layer
NORMALISED_SLOTS = (0, 1, 2, 3, 4, 5, 6, 7, 10, 11)  # also a layer norm behind the first and the square layer
SIZES = ("members", "batch", "inputs", "hidden", "atoms", "targets", "threads", "tiles", "parts", "drop_below")
CONSTANTS = (
    *("loss_scale", "kappa", "norm_epsilon", "first_rate", "second_rate", "second_decay", "epsilon", "tau"),
    "kept_scale",
)
Pointers = ctypes.c_void_p * SLOTS
Streams = ctypes.c_void_p * 4  # of two layers, where the key and the number of calls are
Masks = ctypes.c_uint32 * 2  # the C++ structure of the same name


class Problem(ctypes.Structure):
    """The C++ structure of the same name."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, Pointers) for name in ("online", "averaged", "means", "squares", "left", "right")),
        *((name, Streams) for name in ("online_streams", "averaged_streams")),
        *((name, ctypes.c_float) for name in CONSTANTS),
    )


class Updates(ctypes.Structure):
    """The C++ structure of the same name."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("count", "estimates")),
        *((name, ctypes.c_void_p) for name in ("read", "chosen", "weights", "inputs", "next_inputs")),
        *((name, ctypes.c_void_p) for name in ("rewards", "discounts", "bonuses", "rates", "square_scales")),
        *((name, ctypes.c_void_p) for name in ("values", "losses", "next_values")),
    )


def parts_of(precision: Precision, *, tiles: bool) -> int:
    """Return how many bfloat16 numbers stand for a float in a product; 0: the float itself."""
    if precision == "bfloat16":
        return 1
    return 3 if tiles else 0


def in_slots(tensors: Iterable[Tensor], places: Sequence[int]) -> list[Tensor | None]:
    """Put a network's parameters, or what belongs to each, into the places that C++ has for them."""
    slots: list[Tensor | None] = [None] * SLOTS
    for place, tensor in zip(places, tensors, strict=True):
        slots[place] = tensor
    return slots


def pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    """Return where a tensor is in memory."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def pointers(slots: Iterable[Tensor | None]) -> "ctypes.Array[ctypes.c_void_p]":
    """Return where the tensors of all places are in memory."""
    return Pointers(*map(pointer, slots))
