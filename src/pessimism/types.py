"""The words that the layers share: batches, metrics, and what the loop needs of an agent and a replay."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Metrics = dict[str, Tensor]
"""Named 0-dimensional tensors. They become floats in a sink and nowhere earlier."""

Observation = NDArray[np.float32] | NDArray[np.uint8]
"""A state [obs], or a stack of images [stack, H, W, C] with the oldest first; below, `obs` stands for either."""


class Batch(NamedTuple):
    """Transitions with leading axes [B, ...], or [U, B, ...] for the U critic updates of one step."""

    obs: Tensor  # [.., B, obs]
    action: Tensor  # [.., B, act], in (-1, 1)
    reward: Tensor  # [.., B, 1]
    discount: Tensor  # [.., B, 1]: gamma**n, and 0 where the episode terminated
    next_obs: Tensor  # [.., B, obs]

    def at(self, index: int) -> "Batch":
        """Return the batch of one critic update: [U, B, ...] -> [B, ...]."""
        return Batch(*(field[index] for field in self))

    def groups(self, size: int) -> Iterator["Batch"]:
        """Yield the batches of `size` critic updates at a time: [U, B, ...] -> U / size times [size, B, ...]."""
        for fields in zip(*(field.split(size) for field in self), strict=True):
            yield Batch(*fields)


class Transition(NamedTuple):
    """One environment step. `terminated` stops the bootstrap; a time limit does not."""

    obs: Observation
    action: NDArray[np.float32]  # in (-1, 1)
    reward: float
    terminated: bool
    next_obs: Observation
    truncated: bool = False  # by a time limit


class Replay(Protocol):
    """Where the loop puts transitions and takes batches from, and what a checkpoint asks of it.

    Transitions leave through `newest` and come back through `append_rows`; what else a replay has learned
    or made of them is its `state_dict`.
    """

    capacity: int
    added: int
    generator: torch.Generator

    @property
    def file(self) -> Path | None:
        """Where the transitions are kept instead of in memory, for the time of the process."""

    @property
    def nbytes(self) -> int:
        """What the full replay takes, in memory or in `file`."""

    def state_bytes(self, steps: int) -> int:
        """Return what `state_dict` may take after so many environment steps, small parts not counted."""

    def add(self, transition: Transition) -> None:
        """Store one transition."""

    def sample(self, updates: int, batch_size: int) -> Batch:
        """Draw the batches of one environment step: fields [U, B, ...]."""

    def refresh(self, step: int, agent: "Agent") -> Metrics:
        """Prepare for the batches of environment step `step` (models are fitted and rolled out here)."""

    def newest(self, count: int) -> Tensor:
        """Return the last `count` transitions as rows."""

    def append_rows(self, rows: Tensor) -> None:
        """Take back rows that `newest` gave out."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return all state beside the transitions and the generator's, as tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> object:
        """Take the state back, after the transitions."""


class Agent(Protocol):
    """What the loop, the evaluation and the bias meter know of an agent."""

    @property
    def alpha(self) -> Tensor:
        """Weight of the entropy in the soft value, as it is now (0 for agents without one)."""

    def mode(self, obs: Tensor) -> Tensor:
        """Return the deterministic action: [B, obs] -> [B, act]."""

    def sample(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return an exploratory action [B, act] and its log-probability [B, 1]."""

    def value(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the critics' mean estimate, unpenalised: [B, 1]."""

    def update(self, batch: Batch, step: int) -> Metrics:
        """Learn from batches [U, B, ...] of environment step `step`: U critic updates, one of the policy."""

    def episode_finished(self, episode_return: float) -> Metrics:
        """Hear of a training episode's undiscounted return."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that learning has changed, as tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> object:
        """Take the state back."""
