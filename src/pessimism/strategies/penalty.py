"""Penalties proportional to the critics' disagreement, and GPL, which learns their weight."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from pessimism.strategies.base import OrderedSum, Pessimism
from pessimism.values import Values, average, expectation, moved, pairwise_distance, rank_weights, td_error


def no_optimism(step: int) -> float:
    """Return lambda_opt = 0: the actor's pessimism is the target's."""
    return 0.0


class FixedPenalty(Pessimism):
    """The mean estimate minus a constant beta times the disagreement W (Eqns. 4 and 6, Procedure 1).

    With N = 2 and beta = 0.5 this is the clipped minimum. The actor's beta is beta - lambda_opt(step):
    an `optimism` that decays to zero is the paper's pessimism annealing. With an `actor_share` other than 1 it is
    that share of beta, minus lambda_opt; with 0 the actor climbs the mean, as in REDQ. One number W is
    subtracted from all atoms of a distributional critic (App. D.6).
    """

    optimism: Tensor

    def __init__(
        self,
        beta: float = 0.5,
        *,
        optimism: Callable[[int], float] = no_optimism,
        disagreement: Callable[[Values], Tensor] = pairwise_distance,
        actor_share: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator)
        self.beta = nn.Parameter(torch.tensor(float(beta)), requires_grad=False)
        self.schedule, self.disagreement, self.actor_share = optimism, disagreement, actor_share
        self.register_buffer("optimism", torch.tensor(float(optimism(0))))  # lambda_opt

    def target_value(self, values: Values) -> Values:
        """Return mean - beta W, with a graph to beta where it is learned."""
        penalty = self.beta * self.disagreement(values)
        return moved(average(values), lambda location: location - penalty)

    def target_order(self, count: int) -> OrderedSum | None:
        """Return the weights 1 / N - beta w, where w are those of the mean pairwise distance."""
        if self.disagreement is not pairwise_distance:
            return None
        beta = self.beta.item()
        return OrderedSum(range(count), [1 / count - beta * weight for weight in rank_weights(count)])

    def actor_value(self, values: Values) -> Values:
        """Return mean - (share x beta - lambda_opt) W."""
        penalty = (self.actor_share * self.beta.detach() - self.optimism) * self.disagreement(values)
        return moved(average(values), lambda location: location - penalty)

    def advance(self, step: int) -> None:
        """Anneal lambda_opt."""
        self.optimism.fill_(self.schedule(step))

    def update(self, values: Values, target: Values) -> dict[str, Tensor]:
        """Report beta and W beside the mean TD error."""
        weights = {"train/beta": self.beta.detach().clone(), "train/optimism": self.optimism.clone()}
        return super().update(values, target) | weights | self.measured(values)

    def measured(self, values: Values) -> dict[str, Tensor]:
        """Report W."""
        return {"train/uncertainty": self.disagreement(values).mean()}


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
        beta1: float = 0.5,
        optimism: Callable[[int], float] = no_optimism,
        disagreement: Callable[[Values], Tensor] = pairwise_distance,
        actor_share: float = 1.0,
    ) -> None:
        super().__init__(beta, optimism=optimism, disagreement=disagreement, actor_share=actor_share)
        self.beta.requires_grad_(True)
        self.optimizer = torch.optim.Adam([self.beta], lr=lr, betas=(beta1, 0.999))
        # The optimizer works on buffers of this module: state_dict() is the whole state.
        self.register_buffer("step", torch.zeros((), device="cpu"))  # torch.optim counts there on every device
        self.register_buffer("exp_avg", torch.zeros_like(self.beta))
        self.register_buffer("exp_avg_sq", torch.zeros_like(self.beta))
        for name in ("step", "exp_avg", "exp_avg_sq"):
            self.optimizer.state[self.beta][name] = self.get_buffer(name)

    def penalty_loss(self, values: Values, target: Values) -> Tensor:
        """Return J(beta) (Algorithm 1, dual TD-learning)."""
        return -self.beta * td_error(values, target).mean().detach()

    def update(self, values: Values, target: Values) -> dict[str, Tensor]:
        """Take one dual step."""
        self._descend(values, target)
        return super().update(values, target)

    def _descend(self, values: Values, target: Values) -> None:
        (self.beta.grad,) = torch.autograd.grad(self.penalty_loss(values, target), [self.beta])
        self.optimizer.step()


class SquaredBiasPenalty(LearnedPenalty):
    """GPL-SAC-E2E (App. D.2): beta descends the squared bias, with the gradient through the target.

    The equation squares the bias of each transition; with `square="expectation"` it is the batch's mean bias
    that is squared, the other reading of "squared norm of the expected bias".
    """

    def __init__(
        self,
        beta: float = 0.5,
        *,
        square: Literal["transitions", "expectation"] = "transitions",
        lr: float = 1e-4,
        beta1: float = 0.5,
        optimism: Callable[[int], float] = no_optimism,
        disagreement: Callable[[Values], Tensor] = pairwise_distance,
        actor_share: float = 1.0,
    ) -> None:
        super().__init__(
            beta, lr=lr, beta1=beta1, optimism=optimism, disagreement=disagreement, actor_share=actor_share
        )
        self.square = square

    def penalty_loss(self, values: Values, target: Values) -> Tensor:
        """Return E[B(s, a, s' | beta)^2]."""
        bias = expectation(target).flatten() - expectation(values).mean(dim=(0, 2))  # [B]
        return bias.square().mean() if self.square == "transitions" else bias.mean().square()


class ValidationPenalty(LearnedPenalty):
    """Dual TD-learning on transitions that no critic is fitted to, after the idea of VPL (Nauman et al., 2025).

    Of VPL's rule only the abstract is public: a small validation buffer decides the pessimism. What is done
    here: a fixed share of the transitions is held out of all critic updates; once per environment step,
    beta takes a dual step on the mean TD error, target minus prediction, of a batch of them.
    """

    def update(self, values: Values, target: Values) -> dict[str, Tensor]:
        """Report only: the critics were fitted to these transitions."""
        return FixedPenalty.update(self, values, target)

    def validate(self, values: Values, target: Values) -> dict[str, Tensor]:
        """Take one dual step."""
        self._descend(values, target)
        return super().validate(values, target)
