"""Files that are whole or not there, and that are checked when they are read."""

import contextlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WRITING = ".writing"  # ends the name of a file or directory until it is whole


class TornError(Exception):
    """A file that is not what was written."""


def replace_file(path: Path, content: bytes) -> None:
    """Write a file aside, flush it to the disk and rename it: whole or not there."""
    temporary = path.with_name(path.name + WRITING)
    write_file(temporary, content)
    temporary.replace(path)
    flush_directory(path.parent)


def write_file(path: Path, content: bytes) -> None:
    """Write a file and flush it to the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def flush_file(path: Path) -> None:
    """Flush a file that another library wrote."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Flush the names in a directory, where its file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


def sealed(values: Mapping[str, Any]) -> bytes:
    """Return values as JSON with a checksum of their own."""
    text = json.dumps(values, allow_nan=False)
    return json.dumps({**values, "crc32": zlib.crc32(text.encode())}, allow_nan=False).encode() + b"\n"


def unsealed(path: Path, older: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Read a file of `sealed` values; one with exactly the names `older` may be without a checksum."""
    try:
        values = json.loads(path.read_bytes())
        if older and values.keys() == older:
            return dict(values)
        expected = values.pop("crc32")
        if expected == zlib.crc32(json.dumps(values).encode()):
            return dict(values)
    except OSError as error:
        raise TornError(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise TornError(f"{path.name} is not what was written")


def fingerprint(path: Path) -> dict[str, int]:
    """Return a file's size and checksum."""
    checksum, size = 0, 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            checksum, size = zlib.crc32(block, checksum), size + len(block)
    return {"bytes": size, "crc32": checksum}


def verify(path: Path, expected: Mapping[str, Any]) -> None:
    """Refuse a file that is missing, or another than the one whose fingerprint was taken."""
    if not path.is_file():
        raise TornError(f"{path.name} is missing")
    if fingerprint(path) != {"bytes": expected["bytes"], "crc32": expected["crc32"]}:
        raise TornError(f"{path.name} is not what was written")
