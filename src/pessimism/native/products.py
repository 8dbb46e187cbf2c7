"""Products of float32 matrices in C++, as operations that graphs of torch can call."""

import ctypes
from functools import partial

import torch
from torch import Tensor

from pessimism.native.library import NoLibraryError, load
from pessimism.nn.critic import Precision

SIZES = ("members", "rows", "inner", "columns", "threads", "rounded")
NO_BFLOAT16 = "the processor has neither AMX nor AVX512_BF16, which multiply bfloat16 numbers"
NO_OPENMP = "the compiler has no OpenMP: --threads 1 would take it"


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


def refusal(precision: Precision) -> str | None:
    """Return why products in C++ do not run here with the threads that torch has, or None if they do."""
    try:
        library = load()  # may have to build it
    except NoLibraryError as error:
        return str(error)
    if precision == "bfloat16" and not library.bfloat16:
        return NO_BFLOAT16
    return None if library.parallel or torch.get_num_threads() == 1 else NO_OPENMP


def product(left: Tensor, right: Tensor, precision: Precision = "float32") -> Tensor:
    """Multiply matrices [R, K] and [K, C], or stacks of them [N, R, K] and [N, K, C], of float32 on a processor.

    With the precision bfloat16 operands are rounded to it; sums are float32.
    """
    single = left.dim() == 2
    if single:
        left, right = left[None], right[None]
    (members, rows, inner), columns = left.shape, right.shape[2]
    result = torch.empty(members, rows, columns)
    left, right = _in_lines(left), _in_lines(right)  # kept until the call returns
    sizes = (members, rows, inner, columns, torch.get_num_threads(), int(precision == "bfloat16"))
    problem = Batched(*sizes, _stack(left), _stack(right), result.data_ptr())
    load().functions.batched_product(ctypes.byref(problem))
    return result[0] if single else result


def _in_lines(matrices: Tensor) -> Tensor:
    """Return matrices whose rows or columns are lines in memory, copied only if they are not."""
    return matrices if 1 in matrices.stride()[1:] else matrices.contiguous()


def _stack(matrices: Tensor) -> Stack:
    member, row, column = matrices.stride()
    return Stack(matrices.data_ptr(), member, row if column == 1 else column, int(column != 1))


OPERATIONS: dict[Precision, str] = {"float32": "product", "bfloat16": "rounded_product"}

for _precision, _name in OPERATIONS.items():
    # Any layout of the operands will do, so that torch need not copy them.
    torch.library.define(
        f"pessimism::{_name}", "(Tensor left, Tensor right) -> Tensor", tags=torch.Tag.flexible_layout
    )
    torch.library.impl(f"pessimism::{_name}", "CPU", partial(product, precision=_precision))
    torch.library.register_fake(
        f"pessimism::{_name}", lambda left, right: left.new_empty(*left.shape[:-1], right.shape[-1])
    )
