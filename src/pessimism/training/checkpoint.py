"""Checkpoints, written completely or not at all, and a replay whose transitions are written once.

    checkpoints/step_000001000/{tensors.safetensors, state.json}
    replay/rows_000000000000_000000001000.safetensors, ...

A checkpoint is a directory that is written under a temporary name, flushed, and then renamed. It names the replay
files that belong to it; each holds the transitions since the checkpoint before, so the cost of a checkpoint does
not grow with the replay. Tensors are safetensors, the rest is JSON: nothing is unpickled.
All that is read has a checksum, and its names, shapes and types are those that the settings build.
"""

import math
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from pessimism import records
from pessimism.errors import UserError
from pessimism.training.directory import (
    WRITING,
    TornError,
    fingerprint,
    flush_directory,
    flush_file,
    sealed,
    unsealed,
    verify,
    write_file,
)
from pessimism.types import Replay

FORMAT = 2
TENSORS, STATE = "tensors.safetensors", "state.json"
SEGMENT = {"file", "first", "last", "bytes", "crc32"}  # what a checkpoint says of a replay file
NAME, ROWS = re.compile(r"step_(\d{9,})"), re.compile(r"rows_\d{12,}_\d{12,}\.safetensors")


class Checkpoint(NamedTuple):
    """What a run needs to resume."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]

    def part(self, name: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with `name.`, without it."""
        prefix = f"{name}."
        return {key.removeprefix(prefix): t for key, t in self.tensors.items() if key.startswith(prefix)}


class CheckpointStore:
    """The checkpoints of one run directory."""

    def __init__(self, directory: Path, keep: int) -> None:
        self.checkpoints = directory / records.CHECKPOINTS
        self.replay = directory / records.REPLAY
        self.keep = keep
        self.state: dict[str, Any] = {}  # of the checkpoint that was loaded
        self.segments: list[dict[str, Any]] = []  # replay files of the newest checkpoint, oldest first
        self.whole: set[Path] = set()  # checkpoints and replay files that were written or verified here

    def save(self, checkpoint: Checkpoint, replay: Replay) -> None:
        """Write a checkpoint, then remove what no kept one needs."""
        temporary = self.checkpoints / f"step_{checkpoint.step:09d}{WRITING}"
        try:
            for leftover in self.checkpoints.glob(f"*{WRITING}"):  # of a process that was killed while writing
                shutil.rmtree(leftover)
            temporary.mkdir(parents=True)
            self.replay.mkdir(exist_ok=True)
            segments = self._save_rows(replay)
            _write_tensors(temporary / TENSORS, separate(checkpoint.tensors))
            state = {"format": FORMAT, "segments": segments, "tensors": fingerprint(temporary / TENSORS)}
            write_file(temporary / STATE, sealed({**state, **checkpoint.state}))
            final = temporary.with_suffix("")
            if final.exists():  # left by a run that has since resumed from an older checkpoint
                shutil.rmtree(final)
            temporary.rename(final)
            flush_directory(self.checkpoints)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise UserError(
                f"cannot write the checkpoint of step {checkpoint.step} in {self.checkpoints}: "
                f"{error.strerror}; the one before is kept, make room and run the same command again"
            ) from None
        self.segments = segments
        self.whole.add(final)
        self._prune(final)

    def load(
        self, replay: Replay | None, expected: Callable[[], Mapping[str, Tensor]] | None = None
    ) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest whole checkpoint, its transitions put into `replay`, and a line for each torn one.

        The tensors of the checkpoint must have the names, shapes and types of the `expected` ones. Nothing is
        changed before everything is checked.
        """
        torn: list[str] = []
        for path in self._found():
            try:
                checkpoint = self._read(path)
                if expected is not None and (problem := misfit(expected(), checkpoint.tensors, GROWING)):
                    raise TornError(problem)
                if replay is not None:
                    self._load_rows(checkpoint.state["segments"], replay)
            except TornError as error:
                torn.append(f"checkpoint {path.name} is skipped: {error}")
                continue
            self.state, self.segments = checkpoint.state, checkpoint.state["segments"]
            return checkpoint, torn
        if torn:
            raise UserError(
                f"no checkpoint in {self.checkpoints} can be read ({torn[0]}); "
                "nothing was changed: restore one, or give another --out to start again"
            )
        return None, torn

    def rows(self) -> Tensor:
        """Return all transitions of the newest whole checkpoint, oldest first, as a replay gave them out."""
        checkpoint, _ = self.load(None)
        if checkpoint is None or not self.segments:
            raise UserError(f"the run in {self.checkpoints.parent} has no transitions in a checkpoint yet")
        try:
            self._verify_rows(self.segments)
            return torch.cat([load_file(self.replay / segment["file"])["rows"] for segment in self.segments])
        except (TornError, KeyError, RuntimeError, SafetensorError) as error:
            said = " ".join(str(error).split())
            raise UserError(f"the replay of {self.checkpoints.parent} cannot be read: {said}") from None

    def _found(self) -> list[Path]:
        """Return the directories that are named as checkpoints, the newest first."""
        found = [path for path in self.checkpoints.glob("step_*") if NAME.fullmatch(path.name)]
        return sorted(found, key=_step, reverse=True)

    def _read(self, path: Path) -> Checkpoint:
        state = unsealed(path / STATE)
        try:
            if state["format"] != FORMAT:
                raise TornError(f"it has format {state['format']}, this version reads {FORMAT}")
            verify(path / TENSORS, state["tensors"])
            if [set(segment) for segment in state["segments"]] != [SEGMENT] * len(state["segments"]):
                raise TornError("it does not name its replay files")
            return Checkpoint(_step(path), load_file(path / TENSORS), state)
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
            self.whole.add(path)
            segments.append({"file": path.name, "first": first, "last": replay.added, **fingerprint(path)})
        return segments

    def _load_rows(self, segments: list[dict[str, Any]], replay: Replay) -> None:
        self._verify_rows(segments)
        first, last = (segments[0]["first"], segments[-1]["last"]) if segments else (0, 0)
        for segment in segments:
            count = segment["last"] - segment["first"]
            if not _holds_rows(self.replay / segment["file"], count, replay.newest(0)):
                raise TornError(f"{segment['file']} does not hold {count} transitions of this task")
        if last - first != sum(segment["last"] - segment["first"] for segment in segments):
            raise TornError("its replay files do not follow each other")
        replay.restart(first)
        for segment in segments:
            replay.append_rows(load_file(self.replay / segment["file"])["rows"])

    def _verify_rows(self, segments: list[dict[str, Any]]) -> None:
        for segment in segments:
            path = self.replay / segment["file"]
            if not ROWS.fullmatch(segment["file"]):
                raise TornError(f"{segment['file']} is not the name of a replay file")
            if path not in self.whole:
                verify(path, segment)
                self.whole.add(path)

    def _is_whole(self, path: Path) -> bool:
        if path not in self.whole:
            try:
                self._verify_rows(self._read(path).state["segments"])
            except TornError:
                return False
            self.whole.add(path)
        return True

    def _prune(self, newest: Path) -> None:
        """Remove what is older than the newest whole checkpoints, and the replay files that none needs.

        A torn checkpoint does not count, and one that is newer than the kept ones is left alone: the run replaces
        it when it gets there.
        """
        found = self._found()
        kept = {newest, *[path for path in found if self._is_whole(path)][: self.keep]}
        oldest = min(map(_step, kept))
        for path in found:
            if _step(path) < oldest:
                shutil.rmtree(path)
        needed = {segment["file"] for path in kept for segment in unsealed(path / STATE)["segments"]}
        for path in self.replay.glob("rows_*"):
            if path.name not in needed:
                path.unlink()


def _holds_rows(path: Path, count: int, like: Tensor) -> bool:
    """Return whether a replay file holds `count` rows of the shape and type of `like`, without reading them."""
    with safe_open(path, framework="pt") as file:
        if list(file.keys()) != ["rows"]:
            return False
        rows = file.get_slice("rows")
        shape, none = rows.get_shape(), rows[0:0]
    return bool(shape == [count, *like.shape[1:]] and none.dtype == like.dtype)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step_"))


GROWING = ("episode.", "replay.")  # tensors whose first axis depends on how far the run is


def misfit(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], growing: tuple[str, ...] = ()) -> str:
    """Return how tensors from a file differ from those that the settings build, or an empty text.

    Names, types and shapes are compared, but for the first axis of the `growing` ones; and all are numbers.
    """
    for name in sorted(expected.keys() ^ found.keys()):
        return f"the tensor {name} is {'missing' if name in expected else 'unknown'}"
    for name, tensor in found.items():
        first = 1 if name.startswith(growing or "\0") else 0
        wanted, there = expected[name].shape[first:], tensor.shape[first:]
        if tensor.dtype != expected[name].dtype or there != wanted or tensor.dim() != expected[name].dim():
            kinds = (f"{one.dtype} {tuple(one.shape)}".removeprefix("torch.") for one in (expected[name], tensor))
            return "the tensor {} has to be {}, not {}".format(name, *kinds)
        if not is_finite(tensor):
            return f"the tensor {name} holds what is not a number"
    return ""


def is_finite(tensor: Tensor) -> bool:
    """Return whether all entries are numbers. A single one may be -inf: log alpha where there is no entropy."""
    if not tensor.is_floating_point():
        return True
    return bool(torch.isfinite(tensor).all() if tensor.dim() else tensor < math.inf)


def separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give each tensor its own memory, as safetensors requires."""
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    temporary = path.with_name(path.name + WRITING)
    try:
        save_file(tensors, temporary)
    except SafetensorError as error:  # the library wraps the system's errors
        raise OSError(0, " ".join(str(error).split())) from None
    flush_file(temporary)
    temporary.replace(path)
