"""Where metrics go. Tensors have become floats before they arrive here."""

import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from pessimism import records
from pessimism.errors import UserError
from pessimism.types import Metrics


class Sink(Protocol):
    """Takes the metrics of an environment step."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take named numbers."""

    def close(self) -> None:
        """Flush and let go."""


class Lines:
    """A text file that only grows, and that a resumed run cuts back to where its checkpoint was."""

    def __init__(self, path: Path, position: int) -> None:
        self.file = path.open("a+b")
        self.file.truncate(position)
        self.file.seek(0, os.SEEK_END)

    def write(self, line: str) -> None:
        """Append one line."""
        self.file.write(line.encode() + b"\n")
        self.file.flush()

    def position(self) -> int:
        """Return the length so far, on disk."""
        os.fsync(self.file.fileno())
        return self.file.tell()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class JsonLinesSink:
    """One JSON object a line. What the clock says goes to a file of its own, so that the other is exact."""

    def __init__(self, metrics: Lines, timing: Lines) -> None:
        self.metrics, self.timing = metrics, timing

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
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError(
                "TensorBoard is not installed: pip install 'pessimism[tracking]', or --log.tensorboard false"
            ) from None
        self.writer = SummaryWriter(str(directory), purge_step=step + 1 if step else None)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write scalars."""
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush."""
        self.writer.close()


class WandbSink:
    """Weights and Biases; a resumed run goes on under the same id."""

    def __init__(self, project: str, directory: Path, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise UserError("W&B is not installed: pip install 'pessimism[wandb]'") from None
        name = "-".join(str(config[key]) for key in ("algorithm", "env", "seed"))
        identity = re.sub(r"[^\w.-]", "_", name)
        self.run = wandb.init(
            project=project, name=name, id=identity, dir=str(directory), config=dict(config), resume="allow"
        )

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log scalars."""
        self.run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Finish the run."""
        self.run.finish()


class Averages:
    """Running means of metrics, kept as tensors so that nothing waits for the device."""

    def __init__(self) -> None:
        self.sums: dict[str, torch.Tensor] = {}
        self.counts: dict[str, int] = {}

    def add(self, metrics: Metrics) -> None:
        """Take the metrics of one update."""
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value.double()
            self.counts[name] = self.counts.get(name, 0) + 1

    def means(self) -> dict[str, float]:
        """Return the means so far."""
        return {name: float(total) / self.counts[name] for name, total in self.sums.items()}

    def take(self) -> dict[str, float]:
        """Return the means and start anew."""
        means = self.means()
        self.sums, self.counts = {}, {}
        return means

    def state(self) -> dict[str, list[float]]:
        """Return sums and counts for a checkpoint."""
        return {name: [float(total), self.counts[name]] for name, total in self.sums.items()}

    def load(self, state: Mapping[str, Sequence[float]]) -> None:
        """Take sums and counts back."""
        self.sums = {name: torch.tensor(total, dtype=torch.float64) for name, (total, _) in state.items()}
        self.counts = {name: int(count) for name, (_, count) in state.items()}


class EvaluationFile:
    """`evaluations.npz` in the shape of SB3's EvalCallback."""

    def __init__(self, directory: Path, step: int) -> None:
        self.path = directory / records.EVALUATIONS
        self.steps: list[int] = []
        self.returns: list[list[float]] = []
        self.lengths: list[list[int]] = []
        if step and self.path.exists():
            with np.load(self.path, allow_pickle=False) as old:
                count = int((old["timesteps"] <= step).sum())
                self.steps = old["timesteps"][:count].tolist()
                self.returns, self.lengths = (
                    old["results"][:count].tolist(),
                    old["ep_lengths"][:count].tolist(),
                )

    def add(self, step: int, returns: list[float], lengths: list[int]) -> None:
        """Add one evaluation and replace the file by the longer one."""
        self.steps.append(step)
        self.returns.append(returns)
        self.lengths.append(lengths)
        buffer = io.BytesIO()
        np.savez(
            buffer,
            timesteps=np.array(self.steps),
            results=np.array(self.returns),
            ep_lengths=np.array(self.lengths),
        )
        temporary = self.path.with_suffix(".writing")
        temporary.write_bytes(buffer.getvalue())
        temporary.replace(self.path)
