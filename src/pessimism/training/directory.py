"""A run is a directory, held by one process at a time; its files are written whole and checked when read."""

import contextlib
import fcntl
import json
import os
import platform
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import yaml

from pessimism import records
from pessimism.config.resolve import differences, dump_yaml, validated
from pessimism.config.schema import Config
from pessimism.errors import UserError

WRITING = ".writing"  # ends the name of a file or directory until it is whole
# What a run that was killed while it started may leave; a directory with nothing else in it is still free.
OURS = (records.LOCK, records.OUTPUT, records.CONFIG + WRITING)


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held: os.stat_result | None = None  # the lock's file, as it was when it was taken

    @contextmanager
    def taken(self, config: Config, entropy_source: str) -> Iterator[None]:
        """Hold the directory for a run of `config`; refuse if another run has it."""
        existing = read_config(self.path) if (self.path / records.CONFIG).exists() else None
        if existing is not None and (changed := differences(existing, config)):
            raise UserError(
                f"{self.path} holds a run with other settings ({'; '.join(changed)}); "
                "nothing was changed: give another --out, or the settings of that run"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            foreign = [file.name for file in self.path.iterdir() if file.name not in OURS]
            if existing is None and foreign:
                raise UserError(f"{self.path} is not empty and holds no run ({foreign[0]}): give another --out")
            lock = (self.path / records.LOCK).open("w")
        except OSError as error:
            raise UserError(f"cannot write to {self.path}: {error.strerror}; give another --out") from None
        with lock:
            self._lock(lock)
            self.held = os.fstat(lock.fileno())
            self._replace(records.CONFIG, dump_yaml(config, entropy_source).encode())
            if not (self.path / records.MANIFEST).exists():
                self._replace(records.MANIFEST, (json.dumps(manifest(config), indent=2) + "\n").encode())
            yield

    def check_held(self) -> None:
        """Refuse to write into a directory that was removed, moved or replaced while the run was under way."""
        lock = self.path / records.LOCK
        if self.held and not (lock.exists() and os.path.samestat(lock.stat(), self.held)):
            raise UserError(
                f"{self.path} was removed or replaced during the run: nothing more can be recorded there, "
                "and what was in it is gone unless it was moved"
            )

    @property
    def done(self) -> dict[str, Any] | None:
        """The summary of a finished run; None if it is missing or damaged: the last checkpoint then decides."""
        path = self.path / records.DONE
        try:
            return unsealed(path, older=frozenset(("step", "episodes"))) if path.exists() else None
        except TornError:
            return None

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Mark the run as finished."""
        self.check_held()
        self._replace(records.DONE, sealed(summary))

    def _replace(self, name: str, content: bytes) -> None:
        try:
            replace_file(self.path / name, content)
        except OSError as error:
            raise UserError(f"cannot write {self.path / name}: {error.strerror}") from None

    def _lock(self, file: IO[str]) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process trains in {self.path}: wait for it, or give another --out") from None


def read_config(path: Path) -> Config:
    """Return the settings of the run in a directory."""
    file = path / records.CONFIG
    try:
        values = yaml.safe_load(file.read_text())
    except FileNotFoundError:
        raise UserError(f"{path} holds no run: there is no {records.CONFIG}") from None
    except RecursionError:
        raise UserError(f"{file} cannot be read: it is nested too deeply") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UserError(f"{file} is not a config of this library")
    try:
        return validated(values)
    except UserError as error:
        raise UserError(f"{file} cannot be used: {error}") from None


def manifest(config: Config) -> dict[str, Any]:
    """Return what the numbers of a run depend on beside its settings: versions, machine, threads."""
    import torch  # late: commands that only read a directory do not load torch

    has_amx = bool(torch.cpu.get_capabilities().get("amx_bf16"))
    packages = ("pessimism", "torch", "numpy", "gymnasium", "mujoco")
    return {
        "versions": {name: metadata.version(name) for name in packages} | {"python": platform.python_version()},
        "machine": {
            "system": platform.platform(),
            "processor": platform.processor() or platform.machine(),
            "instructions": [torch.backends.cpu.get_cpu_capability()] + ["AMX"] * has_amx,
        },
        "threads": torch.get_num_threads(),
        "device": config.device,
        "env": {"id": config.env, "kwargs": config.env_kwargs},
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


class TornError(Exception):
    """A file whose content is not what was written."""


def new_file(path: Path) -> Path:
    """Return the place that a file named by the user is written to, and make its directories.

    A link is followed: renaming onto it would replace the link. A device or a directory is refused.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            raise UserError(f"{path} is not a regular file: give another name")
        target.parent.mkdir(parents=True, exist_ok=True)
    except RuntimeError:
        raise UserError(f"cannot write {path}: its links lead in a circle") from None
    return target


def replace_file(path: Path, content: bytes) -> None:
    """Write a file completely or not at all: under a temporary name, flushed, then renamed."""
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
    """Flush the entries of a directory, where the file system supports it."""
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
    """Refuse a file that is missing, or whose fingerprint has changed."""
    if not path.is_file():
        raise TornError(f"{path.name} is missing")
    if fingerprint(path) != {"bytes": expected["bytes"], "crc32": expected["crc32"]}:
        raise TornError(f"{path.name} is not what was written")
