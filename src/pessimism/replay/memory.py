"""Memory for rings."""

import numpy as np
import torch
from torch import Tensor

from pessimism.errors import UserError


def zeros(rows: int, width: int, kind: type[np.generic]) -> Tensor:
    """Return zeros [rows, width] that take memory as they are written to; torch.zeros takes all of it at once."""
    try:
        return torch.from_numpy(np.zeros((rows, width), kind))
    except MemoryError:
        size = rows * width * np.dtype(kind).itemsize / 1e9
        raise UserError(
            f"the system hands out no {size:.1f} GB for {rows} transitions: give a smaller --replay-capacity"
        ) from None
