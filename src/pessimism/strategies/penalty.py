"""Penalties proportional to the critics' disagreement, and GPL, which learns their weight."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pessimism.strategies.base import Pessimism
from pessimism.values import average, pairwise_distance


def no_optimism(step: int) -> float:
    """Return lambda_opt = 0: the actor's pessimism is the target's."""
    return 0.0


class FixedPenalty(Pessimism):
    """The mean estimate minus a constant beta times the disagreement W (Eqns. 4 and 6, Procedure 1).

    With N = 2 and beta = 0.5 this is the clipped minimum. The actor's beta is beta - lambda_opt(step):
    an `optimism` that decays to zero is the paper's pessimism annealing. One number W is subtracted from all
    atoms of a distributional critic (App. D.6).
    """

    optimism: Tensor

    def __init__(
        self,
        beta: float = 0.5,
        *,
        optimism: Callable[[int], float] = no_optimism,
        disagreement: Callable[[Tensor], Tensor] = pairwise_distance,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator)
        self.beta = nn.Parameter(torch.tensor(float(beta)), requires_grad=False)
        self.schedule, self.disagreement = optimism, disagreement
        self.register_buffer("optimism", torch.tensor(float(optimism(0))))  # lambda_opt

    def target_value(self, values: Tensor) -> Tensor:
        """Return mean - beta W, with a graph to beta where it is learned."""
        return average(values) - self.beta * self.disagreement(values)

    def actor_value(self, values: Tensor) -> Tensor:
        """Return mean - (beta - lambda_opt) W."""
        return average(values) - (self.beta.detach() - self.optimism) * self.disagreement(values)

    def advance(self, step: int) -> None:
        """Anneal lambda_opt."""
        self.optimism.fill_(self.schedule(step))

    def update(self, values: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Report beta, W and the mean TD error, which dual TD-learning takes for the bias (Eqn. 8)."""
        return {
            "train/beta": self.beta.detach().clone(),
            "train/optimism": self.optimism.clone(),
            "train/uncertainty": self.disagreement(values).mean(),
            "train/td_error": (target.detach() - values).mean(),
        }


class LearnedPenalty(FixedPenalty):
    """GPL: beta is the dual variable of "the targets are unbiased" (Eqn. 7).

    Dual TD-learning takes target minus prediction, which the critics' loss needs anyway, for the
    bias, and moves beta down the gradient of J(beta) = -beta x bias: targets above the predictions
    raise it, targets below lower it. beta is not clipped and may become negative.
    """

    def __init__(
        self,
        beta: float = 0.5,
        *,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.5, 0.999),
        optimism: Callable[[int], float] = no_optimism,
        disagreement: Callable[[Tensor], Tensor] = pairwise_distance,
    ) -> None:
        super().__init__(beta, optimism=optimism, disagreement=disagreement)
        self.beta.requires_grad_(True)
        self.optimizer = torch.optim.Adam([self.beta], lr=lr, betas=betas)
        # The optimizer works on buffers of this module, so that state_dict() is the whole state.
        self.register_buffer("step", torch.zeros((), device="cpu"))  # torch.optim counts there on every device
        self.register_buffer("exp_avg", torch.zeros_like(self.beta))
        self.register_buffer("exp_avg_sq", torch.zeros_like(self.beta))
        for name in ("step", "exp_avg", "exp_avg_sq"):
            self.optimizer.state[self.beta][name] = self.get_buffer(name)

    def penalty_loss(self, values: Tensor, target: Tensor) -> Tensor:
        """Return J(beta) (Algorithm 1, dual TD-learning)."""
        return -self.beta * (target - values).mean().detach()

    def update(self, values: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Take one dual step."""
        (self.beta.grad,) = torch.autograd.grad(self.penalty_loss(values, target), [self.beta])
        self.optimizer.step()
        return super().update(values, target)


class SquaredBiasPenalty(LearnedPenalty):
    """GPL-SAC-E2E (App. D.2): beta descends the squared bias, with the gradient through the target.

    The equation squares the bias of each transition; `of_expectation` squares the batch's mean bias, the
    other reading of "squared norm of the expected bias".
    """

    def __init__(
        self,
        beta: float = 0.5,
        *,
        of_expectation: bool = False,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.5, 0.999),
        optimism: Callable[[int], float] = no_optimism,
        disagreement: Callable[[Tensor], Tensor] = pairwise_distance,
    ) -> None:
        super().__init__(beta, lr=lr, betas=betas, optimism=optimism, disagreement=disagreement)
        self.of_expectation = of_expectation

    def penalty_loss(self, values: Tensor, target: Tensor) -> Tensor:
        """Return E[B(s, a, s' | beta)^2]."""
        bias = target.mean(dim=-1) - values.mean(dim=(0, 2))  # [B]
        return bias.mean().square() if self.of_expectation else bias.square().mean()
