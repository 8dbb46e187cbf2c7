"""An agent whose bias is known."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from pessimism.types import Batch, Episode, Hindsight, Metrics


class UniformAgent:
    """Acts evenly on [-width, width], so that each action's log-probability is -log(2 width); learns nothing."""

    def __init__(self, value: Callable[[Tensor], Tensor], *, alpha: float = 0.0, width: float = 1.0) -> None:
        self.predict, self.width = value, width
        self.alpha = torch.tensor(alpha, dtype=torch.float64)
        self.log_prob = -math.log(2 * width)
        self.updates: list[int] = []

    def mode(self, obs: Tensor) -> Tensor:
        """Stay in the middle."""
        return torch.zeros(len(obs), 1)

    def sample(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw."""
        action = self.width * (2 * torch.rand(len(obs), 1, generator=generator) - 1)
        return action, torch.full((len(obs), 1), self.log_prob, dtype=torch.float64)

    target_action = sample

    def values(self, obs: Tensor, action: Tensor) -> Tensor:
        """Predict from the observation alone, in double precision: one critic."""
        return self.predict(obs.double())[None]

    def observe(self, reward: float, ended: bool) -> None:
        """Take no notice."""

    def update(self, batch: Batch, step: int, *, policy: bool = True) -> Metrics:
        """Count."""
        self.updates.append(step)
        return {}

    def validate(self, batch: Batch) -> Metrics:
        """Say nothing."""
        return {}

    def episode_finished(self, episode: Episode, hindsight: Hindsight | None) -> Metrics:
        """Say nothing."""
        return {}

    def state_dict(self) -> dict[str, Tensor]:
        """Have no state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take none."""
