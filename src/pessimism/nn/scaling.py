"""A scale for rewards, with which a critic with a bounded support fits any task."""

import torch
from torch import Tensor, nn


class RewardScale(nn.Module):
    """The standard deviation of the running discounted return of the training episodes (XQC's released code).

    Rewards are divided by its current value when they are learned from. What is stored keeps the task's own
    units. All state is buffers.
    """

    running: Tensor
    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, discount: float) -> None:
        super().__init__()
        self.discount = discount
        for name in ("running", "count", "mean", "squares"):  # squares: summed squared distances from the mean
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    def observe(self, reward: float, ended: bool) -> None:
        """Count a step. Where an episode ends, the return starts again with its last reward, as in XQC's code."""
        self.running.mul_(0.0 if ended else self.discount).add_(reward)
        self.count.add_(1)
        distance = self.running - self.mean
        self.mean.add_(distance / self.count)  # Welford's update
        self.squares.add_(distance * (self.running - self.mean))

    @property
    def unit(self) -> Tensor:
        """What one unit of the critics is worth in the task's rewards: [], positive."""
        return ((self.squares / self.count.clamp(min=1)).sqrt() + 1e-8).float()
