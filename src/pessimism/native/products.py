"""Products of float32 matrices in C++, as an operation that graphs of torch can call."""

import ctypes

import torch
from torch import Tensor

from pessimism.native.library import NoLibraryError, load

SIZES = ("members", "rows", "inner", "columns", "threads")


class Stack(ctypes.Structure):
    """The C++ structure of the same name: matrices of the same size."""

    _fields_ = (("data", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("member", "line", "transposed")))


class Batched(ctypes.Structure):
    """The C++ structure of the same name: a product of two stacks."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in SIZES),
        ("left", Stack),
        ("right", Stack),
        ("result", ctypes.c_void_p),
    )


def available() -> bool:
    """Return whether products in C++ run here with the threads that torch has."""
    try:
        library = load()
    except NoLibraryError:
        return False
    return library.parallel or torch.get_num_threads() == 1


def product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply matrices [R, K] and [K, C], or stacks of them [N, R, K] and [N, K, C], in float32 on a processor."""
    single = left.dim() == 2
    if single:
        left, right = left[None], right[None]
    (members, rows, inner), columns = left.shape, right.shape[2]
    result = torch.empty(members, rows, columns)
    left, right = _in_lines(left), _in_lines(right)  # kept until the call returns
    sizes = (members, rows, inner, columns, torch.get_num_threads())
    problem = Batched(*sizes, _stack(left), _stack(right), result.data_ptr())
    load().functions.batched_product(ctypes.byref(problem))
    return result[0] if single else result


def _in_lines(matrices: Tensor) -> Tensor:
    """Return matrices whose rows or columns are lines in memory, copied only if they are not."""
    return matrices if 1 in matrices.stride()[1:] else matrices.contiguous()


def _stack(matrices: Tensor) -> Stack:
    member, row, column = matrices.stride()
    return Stack(matrices.data_ptr(), member, row if column == 1 else column, int(column != 1))


# Any layout of the operands will do, so that torch need not copy them.
torch.library.define("pessimism::product", "(Tensor left, Tensor right) -> Tensor", tags=torch.Tag.flexible_layout)
torch.library.impl("pessimism::product", "CPU", product)


torch.library.register_fake(
    "pessimism::product", lambda left, right: left.new_empty(*left.shape[:-1], right.shape[-1])
)
