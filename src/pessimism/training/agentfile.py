"""A trained agent as one file: tensors, a header of texts, and a checksum over both."""

import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from pessimism.errors import UserError
from pessimism.training.checkpoint import separate
from pessimism.training.directory import WRITING, flush_directory, flush_file, new_file

CHECKSUM = "crc32"  # its name in the header


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write one safetensors file with a header of texts, whole or not at all.

    Missing directories are made, and a link is followed. A path that exists and is not a regular file is refused.
    """
    try:
        target = new_file(path)
        temporary, own = target.with_name(target.name + WRITING), separate(tensors)
        save_file(own, temporary, {**metadata, CHECKSUM: _checksum(own, metadata)})
        flush_file(temporary)
        temporary.replace(target)
        flush_directory(target.parent)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UserError(f"cannot write {path}: {reason}") from None


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a file of `save_tensors`; anything else, or a damaged one, is refused. Nothing in it is executed."""
    if not path.exists():
        raise UserError(f"{path} cannot be read: there is no such file")
    if not path.is_file():
        raise UserError(f"{path} is not a regular file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a safetensors file"
        raise UserError(f"{path} cannot be read: {reason}") from None
    expected = metadata.pop(CHECKSUM, None)
    if expected is None:
        raise UserError(f"{path} has no checksum: it is not an agent that this version saved")
    if expected != _checksum(tensors, metadata):
        raise UserError(f"{path} is damaged: its checksum does not fit its contents")
    return tensors, metadata


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Return a checksum of names, types, shapes, numbers and header."""
    checksum = zlib.crc32(repr(sorted(metadata.items())).encode())
    for name, tensor in sorted(tensors.items()):
        checksum = zlib.crc32(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode(), checksum)
        checksum = zlib.crc32(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), checksum)
    return f"{checksum:08x}"
