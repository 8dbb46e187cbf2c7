"""A probabilistic ensemble of dynamics models (Chua et al., 2018; Janner et al., 2019)."""

import itertools
import math

import torch
from torch import Tensor, nn

from pessimism.nn.optim import Adam

DECAYS = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)  # L2 weight of each layer's matrices, MBPO's code
BOUND_WEIGHT = 0.01  # pulls the variance bounds together


class DynamicsEnsemble(nn.Module):
    """Networks that each predict a Gaussian over (reward, change of observation).

    All N members are one batched product, in fitting and in rollouts. The log-variance is bounded softly by
    learned limits, which the members share. `elites` are the members with the least error on held-out data.
    The optimizer belongs to the model: weights and moments are kept from fit to fit.
    """

    input_mean: Tensor
    input_std: Tensor
    elites: Tensor

    def __init__(
        self,
        obs_size: int,
        action_size: int,
        *,
        members: int = 7,
        elites: int = 5,
        hidden: int = 200,
        lr: float = 1e-3,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        inputs, outputs = obs_size + action_size, 1 + obs_size
        sizes = (inputs, *[hidden] * 4, 2 * outputs)
        self.members = members
        self.weights = nn.ParameterList(_first_weight(members, *pair) for pair in itertools.pairwise(sizes))
        self.biases = nn.ParameterList(torch.zeros(members, 1, size) for size in sizes[1:])
        self.most = nn.Parameter(torch.full((outputs,), 0.5))  # of the log-variance
        self.least = nn.Parameter(torch.full((outputs,), -10.0))
        self.register_buffer("input_mean", torch.zeros(inputs))
        self.register_buffer("input_std", torch.ones(inputs))
        self.register_buffer("elites", torch.arange(elites))
        self.to(device)
        self.optimizer = Adam(self.parameters(), lr)

    def forward(self, inputs: Tensor, members: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of the chosen members: [M, B, in] -> 2 x [M, B, 1 + obs]."""
        hidden = (inputs - self.input_mean) / self.input_std
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = nn.functional.silu(hidden) if depth else hidden
            hidden = torch.baddbmm(bias[members], hidden, weight[members])
        mean, raw = hidden.chunk(2, dim=-1)
        log_var = self.most - nn.functional.softplus(self.most - raw)
        return mean, self.least + nn.functional.softplus(log_var - self.least)

    def standardise(self, inputs: Tensor) -> None:
        """Take the scale of the inputs [n, in] for that of the data."""
        self.input_mean.copy_(inputs.mean(dim=0))
        std = inputs.std(dim=0, correction=0)
        self.input_std.copy_(std.where(std >= 1e-12, 1.0))

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the members' negative log-likelihoods, with weight decay and tight variance bounds.

        [N, B, in], [N, B, 1 + obs] -> scalar; constants of the likelihood are left out.
        """
        mean, log_var = self(inputs)
        likelihood = ((mean - targets).square() * (-log_var).exp() + log_var).mean(dim=(1, 2)).sum()
        weights = zip(DECAYS, self.weights, strict=True)
        decay = sum((0.5 * rate * weight.square().sum() for rate, weight in weights), start=torch.zeros(()))
        return likelihood + decay + BOUND_WEIGHT * (self.most.sum() - self.least.sum())

    @torch.no_grad()
    def errors(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return each member's mean squared error on the same data: [n, in], [n, 1 + obs] -> [N]."""
        mean, _ = self(inputs.expand(self.members, *inputs.shape))
        return (mean - targets).square().mean(dim=(1, 2))

    @torch.no_grad()
    def sample(self, obs: Tensor, action: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return imagined next observations [B, obs] and rewards [B, 1].

        The states are assigned at random to the elites in equal shares: each state is predicted by one elite, and
        the elites are still one batched product. The last shares are filled up with repeated states.
        """
        inputs = torch.cat((obs, action), dim=-1)
        count, elites = len(inputs), len(self.elites)
        order = torch.randperm(count, generator=generator)
        share = math.ceil(count / elites)
        dealt = order[torch.arange(share * elites) % count].view(elites, share).to(inputs.device)
        mean, log_var = (part.flatten(0, 1)[:count] for part in self(inputs[dealt], self.elites))
        noise = torch.randn(count, mean.shape[-1], generator=generator).to(mean.device)
        outcome = torch.empty_like(mean)
        outcome[dealt.flatten()[:count]] = mean + (0.5 * log_var).exp() * noise
        return obs + outcome[:, 1:], outcome[:, :1]


def _first_weight(members: int, inputs: int, outputs: int) -> Tensor:
    std = 1 / (2 * math.sqrt(inputs))
    return nn.init.trunc_normal_(torch.empty(members, inputs, outputs), std=std, a=-2 * std, b=2 * std)
