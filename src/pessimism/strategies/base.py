"""The interface between an agent and the way it reads its critics."""

import torch
from torch import Tensor, nn


class Pessimism(nn.Module):
    """Reads an ensemble's return estimates: values [N critics, B batch, K atoms] -> [B, K].

    An agent asks for `target_value` and `actor_value`, and reports what happens through the four hooks.
    `generator` is the strategy's own random stream; whoever checkpoints a run keeps its state.
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.generator = generator or torch.Generator()

    def target_value(self, values: Tensor) -> Tensor:
        """Return the value that the TD target bootstraps from (values of the target critics)."""
        raise NotImplementedError

    def actor_value(self, values: Tensor) -> Tensor:
        """Return the value that the policy climbs."""
        raise NotImplementedError

    def advance(self, step: int) -> None:
        """Hear of the environment step that the next update belongs to (schedules)."""

    def redraw(self) -> None:
        """Hear that a critic update comes next (random choices, which its compiled graph cannot make)."""

    def update(self, values: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Learn from the TD errors of the last critic update, once per policy update.

        values [N, B, K] are detached; target [B, K] carries a graph to the strategy's own parameters.
        """
        return {}

    def episode_finished(self, episode_return: float) -> dict[str, Tensor]:
        """Hear of a training episode's return (bandits choose here)."""
        return {}
