"""The words that the layers share: a batch, metrics, and what a training loop needs of an agent."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

Metrics = dict[str, Tensor]
"""Named 0-dimensional tensors. They become floats in a sink and nowhere earlier."""


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
        """Learn from the batches [U, B, ...] of environment step `step`."""

    def episode_finished(self, episode_return: float) -> Metrics:
        """Hear of a training episode's undiscounted return."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that learning has changed, as tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> object:
        """Take the state back."""
