"""Adam as a module, and Polyak averaging."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


class Adam(nn.Module):
    """Adam (Kingma and Ba, 2015), as a module whose state is buffers.

    torch.optim.Adam breaks the graph when it is called inside a compiled function; this one does not:
    a whole update, from the target to the averaged weights, is one graph. Its state is part of
    the agent's `state_dict` like any other tensor. The learning rate is `lr` times `share`, which a schedule may
    change: it is a function of the environment step and no state.
    """

    powers: Tensor
    share: Tensor

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__()
        self.targets = list(parameters)
        self.lr, self.betas, self.eps = lr, betas, eps
        self.means = [torch.zeros_like(target) for target in self.targets]
        self.squares = [torch.zeros_like(target) for target in self.targets]
        for index, (mean, square) in enumerate(zip(self.means, self.squares, strict=True)):
            self.register_buffer(f"mean_{index}", mean)
            self.register_buffer(f"square_{index}", square)
        # Running powers beta**t, in double precision as 1 - 0.999 loses five digits in single, and not
        # 0-dimensional: torch.compile (2.13) takes double scalars for constants and drops their updates.
        self.decay = torch.tensor(betas, dtype=torch.float64, device=self.targets[0].device)
        self.register_buffer("powers", torch.ones_like(self.decay))
        self.register_buffer("share", self.decay.new_ones(2), persistent=False)

    def advance(self) -> Tensor:
        """Count one step. Returns the factors of the means and of the squares at this step: [2].

        They correct the bias of both, and the schedule's share of the learning rate is in the first.
        """
        self.powers.mul_(self.decay)
        return (self.share / (1 - self.powers)).float()

    def advance_by(self, steps: int) -> list[tuple[float, float]]:
        """Count so many steps. Returns what `advance` returns at each of them, in double precision."""
        powers, (share, one) = self.powers.tolist(), self.share.tolist()
        factors = []
        for _ in range(steps):
            powers = [power * decay for power, decay in zip(powers, self.betas, strict=True)]
            factors.append((share / (1 - powers[0]), one / (1 - powers[1])))
        self.powers.copy_(self.powers.new_tensor(powers))
        return factors

    def schedule_(self, share: float) -> None:
        """Set the share of the learning rate from here on."""
        self.share[0] = share

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Move the parameters against the gradients."""
        mean_scale, square_scale = self.advance().unbind()
        first, second = self.betas
        for target, gradient, mean, square in zip(self.targets, gradients, self.means, self.squares, strict=True):
            mean.lerp_(gradient, 1 - first)
            square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
            target.sub_(self.lr * mean_scale * mean / ((square * square_scale).sqrt() + self.eps))

    def minimise(self, loss: Tensor, clip: float = float("inf")) -> None:
        """Take one step down the gradient of `loss`, its global norm clipped to `clip`."""
        gradients = torch.autograd.grad(loss, self.targets)
        if clip != float("inf"):
            norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
            scale = (clip / norm.clamp(min=1e-12)).clamp(max=1.0)
            gradients = tuple(gradient * scale for gradient in gradients)
        self.step(gradients)


@torch.no_grad()
def polyak_(averaged: nn.Module, source: nn.Module, tau: float) -> None:
    """Move the averaged weights by a share tau towards the source: phi' <- (1 - tau) phi' + tau phi."""
    for old, new in zip(averaged.parameters(), source.parameters(), strict=True):
        old.lerp_(new, tau)
