"""Uniform replay of state transitions."""

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pessimism.replay.memory import zeros
from pessimism.types import Agent, Batch, Metrics, Transition


class TransitionReplay:
    """A ring of float32 rows [obs | action | reward | discount | next_obs].

    A transition is one row, so that all U batches of an environment step are one gather. The operating
    system hands out the memory as the ring fills.
    """

    def __init__(
        self, capacity: int, obs_size: int, action_size: int, discount: float, generator: torch.Generator
    ) -> None:
        self.capacity, self.discount, self.generator = capacity, discount, generator
        self.widths = (obs_size, action_size, 1, 1, obs_size)
        self.file = None
        self.added = 0  # transitions ever stored

    @cached_property
    def rows(self) -> Tensor:
        """The ring, made at the first use: its size can be asked for before."""
        return zeros(self.capacity, sum(self.widths), np.float32)

    @property
    def nbytes(self) -> int:
        """Memory that the full ring takes."""
        return 4 * self.capacity * sum(self.widths)

    def state_bytes(self, steps: int) -> int:
        """Return 0: the rows are all there is."""
        return 0

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, transition: Transition) -> None:
        """Store one transition over the oldest."""
        discount = 0.0 if transition.terminated else self.discount
        fields = (transition.obs, transition.action, (transition.reward, discount), transition.next_obs)
        row = np.concatenate(fields, dtype=np.float32)
        self.rows[self.added % self.capacity] = torch.from_numpy(row)
        self.added += 1

    def sample(self, updates: int, batch_size: int) -> Batch:
        """Draw `updates` batches with replacement: fields [U, B, ...]."""
        index = torch.randint(len(self), (updates * batch_size,), generator=self.generator)
        rows = self.rows.index_select(0, index).view(updates, batch_size, sum(self.widths))
        return Batch(*rows.split(self.widths, dim=-1))

    def refresh(self, step: int, agent: Agent) -> Metrics:
        """Do nothing: the transitions are all there is."""
        return {}

    def newest(self, count: int) -> Tensor:
        """Return the last `count` rows in the order in which they were stored."""
        return self.rows[torch.arange(self.added - count, self.added) % self.capacity]

    def append_rows(self, rows: Tensor) -> None:
        """Store rows that `newest` of a replay of this shape gave out."""
        if rows.shape[1] != sum(self.widths):
            raise ValueError(f"rows of width {rows.shape[1]} do not fit a replay of width {sum(self.widths)}")
        self.rows[torch.arange(self.added, self.added + len(rows)) % self.capacity] = rows
        self.added += len(rows)

    def state_dict(self) -> dict[str, Tensor]:
        """Return nothing: the rows are all there is."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take nothing back."""
