"""Memory for rings, and which of their transitions are given out."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pessimism.errors import UserError


def zeros(rows: int, width: int, kind: type[np.generic], file: Path | None = None) -> Tensor:
    """Return zeros [rows, width], in memory or in a file.

    The operating system hands out memory as it is written to; torch.zeros takes all of it at once. A file is
    sparse until it is full. It loses its name as soon as it is open: its contents come from the checkpoint, and
    its room on the disk is free again when the process ends, however it ends.
    """
    if file is not None:
        return _mapped(file, (rows, width), kind)
    try:
        return torch.from_numpy(np.zeros((rows, width), kind))
    except MemoryError:
        size = rows * width * np.dtype(kind).itemsize / 1e9
        raise UserError(
            f"the system has no {size:.1f} GB of memory for {rows} transitions: give a smaller --replay-capacity"
        ) from None


def draw(valid: range, count: int, generator: torch.Generator, held_out_every: int) -> Tensor:
    """Draw `count` of the valid transitions' numbers, with replacement, none of them held out.

    Every `held_out_every`-th transition is held out: those whose number it divides. The others are numbered
    through, so that nothing is drawn in vain.
    """
    if not held_out_every:
        return valid.start + torch.randint(len(valid), (count,), generator=generator)
    first, last = (number - -(-number // held_out_every) for number in (valid.start, valid.stop))
    index = first + torch.randint(last - first, (count,), generator=generator)
    return index + index // (held_out_every - 1) + 1


def draw_held_out(valid: range, count: int, generator: torch.Generator, held_out_every: int) -> Tensor | None:
    """Draw `count` of the valid numbers that `draw` leaves out; None where there are none."""
    if not held_out_every:
        return None
    first, last = (-(-number // held_out_every) for number in (valid.start, valid.stop))
    if first == last:
        return None
    return held_out_every * (first + torch.randint(last - first, (count,), generator=generator))


def _mapped(file: Path, shape: tuple[int, int], kind: type[np.generic]) -> Tensor:
    try:
        with file.open("xb+") as opened:
            file.unlink()
            return torch.from_numpy(np.memmap(opened, kind, "r+", shape=shape))
    except FileExistsError:
        raise UserError(f"{file} exists: the replay's file must be a new one") from None
    except OSError as error:
        raise UserError(f"cannot make the replay's file {file}: {error.strerror}") from None


def no_sample(n_step: int, steps: int) -> UserError:
    """Return the error of a replay that has no whole transition yet."""
    return UserError(
        f"no transition of {n_step} steps is complete after {steps} environment steps: "
        f"learning must begin later, with --random-steps {n_step + 1} or more"
    )
