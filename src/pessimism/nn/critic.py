"""Critic ensembles: observation and action to return distributions [N, B, K]."""

import copy
import math
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from pessimism.nn.encoder import Trunk
from pessimism.nn.ensemble import EnsembleLinear, ResidualBlock, SpectralForm, SpectralLinear, product, xavier_
from pessimism.values import Atoms, Values

Precision = Literal["float32", "bfloat16"]  # of the products in the critics' update
LAST_GAIN = 0.01 * math.sqrt(2)  # author's code: first estimates are close to zero


class Categorical(nn.Module):
    """Reads a head's outputs [N, B, K] as logits of K evenly spaced returns."""

    support: Tensor

    def __init__(self, atoms: int, lowest: float, highest: float) -> None:
        super().__init__()
        self.register_buffer("support", torch.linspace(lowest, highest, atoms), persistent=False)

    def forward(self, outputs: Tensor) -> Atoms:
        """Return atoms with weights."""
        return Atoms(self.support.expand_as(outputs), outputs.log_softmax(dim=-1))


Support = tuple[float, float]
"""The lowest and the highest return of a categorical head."""


class Pairs(NamedTuple):
    """States and actions that a critic update evaluates: the batch's own, and those that follow."""

    obs: Tensor  # [B, obs]
    action: Tensor  # [B, act]
    next_obs: Tensor  # [B, obs]
    next_action: Tensor  # [B, act], of the policy


class EnsembleCritic(nn.Module):
    """N independent estimators of the return, evaluated as one.

    Calling it is evaluation: nothing is random and nothing changes. Critics with batch statistics or dropout
    differ from that in updates, and replace `current`, `following` and `judged`. The head's outputs [N, B, K] are
    equally likely returns or, with a `support`, logits.
    """

    def __init__(self, body: nn.Sequential, head: EnsembleLinear, support: Support | None = None) -> None:
        super().__init__()
        self.body, self.head = body, head
        self.read = nn.Identity() if support is None else Categorical(head.weight.shape[-1], *support)
        self.precision: Precision = "float32"
        self.spectral = [layer for layer in self.modules() if isinstance(layer, SpectralLinear)]

    def forward(self, obs: Tensor, action: Tensor) -> Values:
        """[B, obs], [B, act] -> [N, B, K]."""
        values: Values = self.read(self.head(self.body(torch.cat([obs, action], dim=-1))))
        return values

    def current(self, pairs: Pairs) -> Values:
        """Return the predictions that TD-learning moves: [N, B, K]."""
        values: Values = self(pairs.obs, pairs.action)
        return values

    def following(self, pairs: Pairs) -> Values:
        """Return the estimates that its targets are made of: [N, B, K]."""
        values: Values = self(pairs.next_obs, pairs.next_action)
        return values

    def judged(self, obs: Tensor, action: Tensor) -> Values:
        """Return the estimates that the policy climbs: [B, obs], [B, act] -> [N, B, K]."""
        values: Values = self(obs, action)
        return values

    def averaged(self) -> Self:
        """Return the target critics: a copy whose weights follow by Polyak averaging."""
        return copy.deepcopy(self).requires_grad_(False)

    def xavier_(self) -> None:
        """Draw the weights again as SAC, REDQ and MBPO do, except in spectral layers, whose scale is fixed."""
        for layer in self.modules():
            if isinstance(layer, EnsembleLinear) and layer not in self.spectral:
                xavier_(layer.weight)

    def normalise_(self) -> None:
        """Let the spectral norms follow the weights. Called once after each optimizer step."""
        for layer in self.spectral:
            layer.normalise_()


class PixelCritic(nn.Module):
    """Critics on an encoder's features, all through one trunk."""

    def __init__(self, trunk: Trunk, heads: EnsembleCritic) -> None:
        super().__init__()
        self.trunk, self.heads = trunk, heads

    @property
    def head(self) -> EnsembleLinear:
        """The last layer."""
        return self.heads.head

    def forward(self, features: Tensor, action: Tensor) -> Values:
        """[B, features], [B, act] -> [N, B, K]."""
        values: Values = self.heads(self.trunk(features), action)
        return values

    judged = forward

    def normalise_(self) -> None:
        """Let the spectral norms follow the weights."""
        self.heads.normalise_()


class ResidualCritic(EnsembleCritic):
    """A critic whose body ends in a residual block, with its last two layers merged.

    There is no activation between the block's outer layer and the head, so (H W) V = H (W V): the two layers'
    matrices are multiplied first. As V is narrow, no batch is ever multiplied with the square W, forward or
    backward. That saves half of the critic's operations.
    """

    def __init__(
        self, first: nn.Module, block: ResidualBlock, head: EnsembleLinear, support: Support | None = None
    ) -> None:
        super().__init__(nn.Sequential(first, nn.ReLU(), block), head, support)

    def forward(self, obs: Tensor, action: Tensor) -> Values:
        """[B, obs], [B, act] -> [N, B, K], equal to `head(body(...))` up to rounding."""
        first, relu, block = self.body
        assert isinstance(block, ResidualBlock)
        inputs = relu(first(torch.cat([obs, action], dim=-1)))
        kernel = product(block.outer.kernel(), self.head.kernel())  # [N, size, K]
        values: Values = self.read(self.head(inputs + block.outer.bias) + product(block.hidden(inputs), kernel))
        return values


def residual_critic(
    inputs: int,
    *,
    members: int = 10,
    atoms: int = 1,
    hidden: int = 256,
    spectral: SpectralForm = "projection",
    support: Support | None = None,
) -> EnsembleCritic:
    """Build the paper's "modern" critic: one residual block between the first and the last layer."""
    return ResidualCritic(
        EnsembleLinear(members, inputs, hidden),
        ResidualBlock(members, hidden, spectral),
        EnsembleLinear(members, hidden, atoms, LAST_GAIN),
        support,
    )


def plain_critic(
    inputs: int,
    *,
    members: int = 2,
    atoms: int = 1,
    hidden: int = 256,
    support: Support | None = None,
) -> EnsembleCritic:
    """Build SAC's classical critic: two hidden layers."""
    body = nn.Sequential(
        EnsembleLinear(members, inputs, hidden),
        nn.ReLU(),
        EnsembleLinear(members, hidden, hidden),
        nn.ReLU(),
    )
    return EnsembleCritic(body, EnsembleLinear(members, hidden, atoms, LAST_GAIN), support)
