"""Prior data: steps that were taken before the run, and a replay that fills a share of every batch with them."""

import zlib
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pessimism.replay.transitions import TransitionReplay, drawable
from pessimism.types import Array, Batch


class Recorded(NamedTuple):
    """T steps in the order in which they were taken."""

    obs: Array  # [T, obs]
    action: Array  # [T, act], in (-1, 1)
    reward: NDArray[np.float64]  # [T]
    terminated: NDArray[np.bool_]  # [T]
    ended: NDArray[np.bool_]  # [T]: the episode ended with this step, by termination or by a time limit
    next_obs: Array  # [T, obs]

    @property
    def checksum(self) -> str:
        """A checksum of all numbers. The same steps have the same one, whatever file they came from."""
        checksum = 0
        for field in self:
            checksum = zlib.crc32(np.ascontiguousarray(field).data, checksum)
        return f"{checksum:08x}"

    def rows(self, discount: float, n_step: int) -> Tensor:
        """Return the steps as rows of a `TransitionReplay`, with windows of up to `n_step` steps: [T, width]."""
        first = np.arange(len(self.reward))
        last, length = first, np.zeros_like(first)
        total, inside = np.zeros(len(first)), np.ones(len(first), bool)
        for k in range(n_step):
            now = np.minimum(first + k, first[-1])
            total += np.where(inside, discount**k * self.reward[now], 0.0)
            last, length = np.where(inside, now, last), length + inside
            inside = inside & ~self.ended[now]
        following = np.where(self.terminated[last], 0.0, discount**length)
        columns = (self.obs, self.action, total[:, None], following[:, None], self.next_obs[last])
        return torch.from_numpy(np.concatenate(columns, axis=1, dtype=np.float32))


class PriorReplay(TransitionReplay):
    """A replay whose batches are partly prior data, drawn evenly from `prior` [T, width].

    Until the run has as many transitions of its own as their part of a batch, prior data fill the rest of it:
    learning can begin with the first step.
    """

    def __init__(self, *arguments: Any, prior: Tensor, share: float, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **options)
        self.prior, self.share = prior, share

    def sample(self, updates: int, batch_size: int) -> Batch:
        """Draw batches whose first rows are prior data and the others the run's own: fields [U, B, ...]."""
        rest = batch_size - round(self.share * batch_size)
        own = min(rest, drawable(self._valid(), self.held_out_every))
        count = batch_size - own
        numbers = torch.randint(len(self.prior), (updates * count,), generator=self.generator)
        rows = self.prior.index_select(0, numbers).view(updates, count, sum(self.widths))
        prior = Batch(*rows.split(self.widths, dim=-1))
        if not own:
            return prior
        parts = zip(prior, super().sample(updates, own), strict=True)
        return Batch(*(torch.cat(fields, dim=1) for fields in parts))
