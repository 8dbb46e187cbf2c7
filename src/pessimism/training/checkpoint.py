"""Checkpoints that are whole or not there, and a replay that is written once.

    checkpoints/step_000001000/{tensors.safetensors, state.json}
    replay/rows_000000000000_000000001000.safetensors, ...

A checkpoint is a directory that is written aside, flushed, and then renamed. It names the replay files
that belong to it; each holds the transitions that came since the checkpoint before, so that the cost of
a checkpoint does not grow with the replay. Tensors are safetensors, the rest is JSON: nothing is unpickled.
"""

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from pessimism import records
from pessimism.errors import UserError
from pessimism.types import Replay

FORMAT = 1
TENSORS, STATE = "tensors.safetensors", "state.json"
WRITING = ".writing"


class Checkpoint(NamedTuple):
    """What a run needs to go on."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]

    def part(self, name: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with `name.`, without it."""
        prefix = f"{name}."
        return {key.removeprefix(prefix): t for key, t in self.tensors.items() if key.startswith(prefix)}


class TornError(Exception):
    """A checkpoint that is not whole, or not one of ours."""


class CheckpointStore:
    """The checkpoints of one run directory."""

    def __init__(self, directory: Path, keep: int) -> None:
        self.checkpoints = directory / records.CHECKPOINTS
        self.replay = directory / records.REPLAY
        self.keep = keep
        self.state: dict[str, Any] = {}  # of the checkpoint that was loaded
        self.segments: list[dict[str, Any]] = []  # replay files of the newest checkpoint, oldest first

    def save(self, checkpoint: Checkpoint, replay: Replay) -> None:
        """Write a checkpoint, then remove what no kept one needs."""
        temporary = self.checkpoints / f"step_{checkpoint.step:09d}{WRITING}"
        try:
            for leftover in self.checkpoints.glob(f"*{WRITING}"):  # of a process that was killed while writing
                shutil.rmtree(leftover)
            temporary.mkdir(parents=True)
            self.replay.mkdir(exist_ok=True)
            segments = self._save_rows(replay)
            _write_tensors(temporary / TENSORS, _separate(checkpoint.tensors))
            state = {"format": FORMAT, "segments": segments, "tensors": _fingerprint(temporary / TENSORS)}
            _write(temporary / STATE, json.dumps({**state, **checkpoint.state}, allow_nan=False).encode())
            final = temporary.with_suffix("")
            if final.exists():  # a run that went on from an older checkpoint comes by here again
                shutil.rmtree(final)
            temporary.rename(final)
            _flush_directory(self.checkpoints)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise UserError(
                f"cannot write the checkpoint of step {checkpoint.step} in {self.checkpoints}: "
                f"{error.strerror}; the one before is kept, make room and run the same command again"
            ) from None
        self.segments = segments
        self._prune()

    def load(self, replay: Replay | None) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest whole checkpoint, its transitions put into `replay`, and a line for each torn one."""
        found = [path for path in sorted(self.checkpoints.glob("step_*"), reverse=True) if not path.suffix]
        torn: list[str] = []
        for path in found:
            try:
                checkpoint = self._read(path)
                if replay is not None:
                    self._load_rows(checkpoint.state["segments"], replay)
            except TornError as error:
                torn.append(f"checkpoint {path.name} is skipped: {error}")
                continue
            self.state, self.segments = checkpoint.state, checkpoint.state["segments"]
            return checkpoint, torn
        if found:
            raise UserError(
                f"no checkpoint in {self.checkpoints} can be read ({torn[0]}); "
                "nothing was changed: restore one, or give another --out to start again"
            )
        return None, torn

    def _read(self, path: Path) -> Checkpoint:
        try:
            state = json.loads((path / STATE).read_bytes())
            if state["format"] != FORMAT:
                raise TornError(f"it has format {state['format']}, this version reads {FORMAT}")
            _verify(path / TENSORS, state["tensors"])
            return Checkpoint(int(path.name.removeprefix("step_")), load_file(path / TENSORS), state)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise TornError(" ".join(str(error).split()) or type(error).__name__) from None

    def _save_rows(self, replay: Replay) -> list[dict[str, Any]]:
        """Write the transitions since the last checkpoint; return the files that hold the whole replay."""
        oldest = max(0, replay.added - replay.capacity)
        segments = [segment for segment in self.segments if segment["last"] > oldest]
        first = max(oldest, segments[-1]["last"] if segments else 0)
        if replay.added > first:
            path = self.replay / f"rows_{first:012d}_{replay.added:012d}.safetensors"
            _write_tensors(path, {"rows": replay.newest(replay.added - first)})
            segments.append({"file": path.name, "first": first, "last": replay.added, **_fingerprint(path)})
        return segments

    def _load_rows(self, segments: list[dict[str, Any]], replay: Replay) -> None:
        for segment in segments:
            _verify(self.replay / segment["file"], segment)
        replay.added = segments[0]["first"] if segments else 0
        for segment in segments:
            replay.append_rows(load_file(self.replay / segment["file"])["rows"])

    def _prune(self) -> None:
        kept = sorted(self.checkpoints.glob("step_*"))[-self.keep :]
        for path in set(self.checkpoints.glob("step_*")) - set(kept):
            shutil.rmtree(path)
        needed = {
            segment["file"] for path in kept for segment in json.loads((path / STATE).read_bytes())["segments"]
        }
        for path in self.replay.glob("rows_*"):
            if path.name not in needed:
                path.unlink()


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write one safetensors file with a header of texts, whole or not at all."""
    temporary = path.with_name(path.name + WRITING)
    save_file(_separate(tensors), temporary, dict(metadata))
    temporary.replace(path)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a file of `save_tensors`; anything else is refused, and never executed."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        return load_file(path), metadata
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a safetensors file"
        raise UserError(f"{path} cannot be read: {reason}") from None


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give each tensor memory of its own, as safetensors asks."""
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    temporary = path.with_name(path.name + WRITING)
    try:
        save_file(tensors, temporary)
    except SafetensorError as error:  # the library wraps the system's errors
        raise OSError(0, " ".join(str(error).split())) from None
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _fingerprint(path: Path) -> dict[str, int]:
    checksum, size = 0, 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            checksum, size = zlib.crc32(block, checksum), size + len(block)
    return {"bytes": size, "crc32": checksum}


def _verify(path: Path, expected: Mapping[str, Any]) -> None:
    if not path.exists():
        raise TornError(f"{path.name} is missing")
    if _fingerprint(path) != {"bytes": expected["bytes"], "crc32": expected["crc32"]}:
        raise TornError(f"{path.name} is not what was written")


def generator_states(generators: Mapping[str, torch.Generator]) -> dict[str, Tensor]:
    """Return the state of each random stream under its name."""
    return {f"generator.{name}": generator.get_state() for name, generator in generators.items()}


def load_generators(generators: Mapping[str, torch.Generator], tensors: Mapping[str, Tensor]) -> None:
    """Set each random stream back."""
    for name, generator in generators.items():
        generator.set_state(tensors[name])
