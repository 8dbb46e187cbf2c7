"""Where metrics are written, as floats."""

import hashlib
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pessimism import records
from pessimism.config.schema import Config
from pessimism.errors import UserError
from pessimism.extras import install_command, missing
from pessimism.training.directory import replace_file


class Sink(Protocol):
    """Writes the metrics of an environment step."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write named numbers."""

    def close(self) -> None:
        """Flush and close."""


def check_wandb() -> None:
    """Refuse W&B where it is not installed, before anything is written."""
    try:
        import wandb  # noqa: F401
    except ImportError:
        raise missing("W&B", "wandb") from None


class Lines:
    """A text file that lines are appended to; a resumed run cuts it back to its checkpoint."""

    def __init__(self, path: Path, expected: Mapping[str, int] | None = None) -> None:
        """Open the file as it was at a checkpoint: `expected` is its fingerprint there, None where it was empty."""
        self.path, self.problem = path, ""
        size, checksum = (expected["bytes"], expected["crc32"]) if expected else (0, 0)
        with _reported(path):
            self.file = path.open("a+b", buffering=0)
            self.file.seek(0)
            content = self.file.read(size) if size else b""
            if len(content) < size:
                lost, content = size - len(content), content[: content.rfind(b"\n") + 1]
                self.problem = f"{path.name} has lost {lost} bytes since the checkpoint; its other lines are kept"
            elif zlib.crc32(content) != checksum:
                self.problem = f"{path.name} was changed since the checkpoint; it stays as it is"
            self.file.truncate(len(content))
        self.size, self.checksum = len(content), zlib.crc32(content)

    def write(self, line: str) -> None:
        """Append one line."""
        content = line.encode() + b"\n"
        with _reported(self.path):
            if os.fstat(self.file.fileno()).st_nlink == 0:
                raise UserError(f"{self.path} was removed during the run: nothing more can be recorded there")
            rest = content
            while rest:  # a disk that fills up may accept only a part
                rest = rest[self.file.write(rest) :]
        self.size, self.checksum = self.size + len(content), zlib.crc32(content, self.checksum)

    def fingerprint(self) -> dict[str, int]:
        """Return size and checksum so far, on disk."""
        with _reported(self.path):
            os.fsync(self.file.fileno())
        return {"bytes": self.size, "crc32": self.checksum}

    def close(self) -> None:
        """Close the file."""
        self.file.close()


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Report a failed write in one line."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}; the last checkpoint is kept, "
            "make room and run the same command again"
        ) from None


@dataclass
class JsonLinesSink:
    """One JSON object per line. Times go to a separate file: the other is the same in every repetition."""

    metrics: Lines
    timing: Lines

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append the numbers of a step."""
        for lines, clock in ((self.metrics, False), (self.timing, True)):
            part = {name: value for name, value in metrics.items() if name.startswith("time/") == clock}
            if part:
                lines.write(json.dumps({"step": step, **part}, allow_nan=False))

    def close(self) -> None:
        """Close the files."""
        self.metrics.close()
        self.timing.close()


class TensorBoardSink:
    """TensorBoard events; a resumed run marks what came after its checkpoint as gone."""

    def __init__(self, directory: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(directory), purge_step=step + 1 if step else None)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write scalars."""
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush."""
        self.writer.close()


class WandbSink:
    """Weights and Biases; a resumed run continues under its id, which follows from its directory."""

    def __init__(self, project: str, directory: Path, config: Mapping[str, Any]) -> None:
        import wandb

        name = "-".join(str(config[key]) for key in ("algorithm", "env", "seed"))
        # Runs of a sweep may differ in any setting, but never in their directory only.
        place = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:8]
        identity = re.sub(r"[^\w.-]", "_", f"{name}-{place}")
        self.run = wandb.init(
            project=project, name=name, id=identity, dir=str(directory), config=dict(config), resume="allow"
        )

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log scalars."""
        self.run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Finish the run."""
        self.run.finish()


def trackers(config: Config, directory: Path, step: int, say: Callable[[str], None]) -> list[Sink]:
    """Open TensorBoard and W&B. TensorBoard is on by default, so it may be missing."""
    opened: list[Sink] = []
    if config.log.tensorboard:
        try:
            opened.append(TensorBoardSink(directory / records.TENSORBOARD, step))
        except ImportError:
            hint = install_command("tracking")
            say(f"TensorBoard is not installed, so no events are written: {hint}")
    if config.log.wandb:
        opened.append(WandbSink(config.log.wandb, directory, config.model_dump()))
    return opened


class EvaluationFile:
    """`evaluations.npz` in the shape of SB3's EvalCallback."""

    def __init__(self, directory: Path, state: Mapping[str, Any] | None = None) -> None:
        """Continue from the `state` that a checkpoint holds: a file that is missing or damaged is written again."""
        self.path, self.problem = directory / records.EVALUATIONS, ""
        state = state or {"steps": [], "returns": [], "lengths": []}
        self.steps: list[int] = list(state["steps"])
        self.returns: list[list[float]] = list(state["returns"])
        self.lengths: list[list[int]] = list(state["lengths"])
        if self.steps and not self._is_there():
            self.problem = f"{self.path.name} was missing or damaged, and is restored from the checkpoint"
            self._write()

    def _is_there(self) -> bool:
        """Return whether the file holds what the checkpoint says; it may also hold later evaluations."""
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as old:
                count = len(self.steps)
                return (
                    np.array_equal(old["timesteps"][:count], self.steps)
                    and np.array_equal(old["results"][:count], self.returns)
                    and np.array_equal(old["ep_lengths"][:count], self.lengths)
                )
        except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return False

    def state(self) -> dict[str, Any]:
        """Return everything for a checkpoint."""
        return {"steps": self.steps, "returns": self.returns, "lengths": self.lengths}

    def add(self, step: int, returns: list[float], lengths: list[int]) -> None:
        """Add one evaluation and replace the file by the longer one."""
        self.steps.append(step)
        self.returns.append(returns)
        self.lengths.append(lengths)
        self._write()

    def _write(self) -> None:
        buffer = io.BytesIO()
        np.savez(
            buffer,
            timesteps=np.array(self.steps),
            results=np.array(self.returns),
            ep_lengths=np.array(self.lengths),
        )
        with _reported(self.path):
            replace_file(self.path, buffer.getvalue())
