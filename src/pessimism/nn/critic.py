"""Critic ensembles: observation and action to `values[N, B, K]`."""

import math

import torch
from torch import Tensor, nn

from pessimism.nn.encoder import Trunk
from pessimism.nn.ensemble import EnsembleLayerNorm, EnsembleLinear, SpectralForm, SpectralLinear, xavier_

LAST_GAIN = 0.01 * math.sqrt(2)  # author's code: first estimates are close to zero


class EnsembleCritic(nn.Module):
    """N independent estimators of the return, evaluated as one."""

    def __init__(self, body: nn.Module, head: EnsembleLinear) -> None:
        super().__init__()
        self.body, self.head = body, head
        self.spectral = [layer for layer in self.modules() if isinstance(layer, SpectralLinear)]

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """[B, obs], [B, act] -> [N, B, K]."""
        values: Tensor = self.head(self.body(torch.cat([obs, action], dim=-1)))
        return values

    def xavier_(self) -> None:
        """Draw the weights anew as SAC, REDQ and MBPO do; spectral layers, whose scale is fixed, stay."""
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

    def forward(self, features: Tensor, action: Tensor) -> Tensor:
        """[B, features], [B, act] -> [N, B, K]."""
        values: Tensor = self.heads(self.trunk(features), action)
        return values

    def normalise_(self) -> None:
        """Let the spectral norms follow the weights."""
        self.heads.normalise_()


class ResidualBlock(nn.Module):
    """LayerNorm, spectrally normalised layer, ReLU, spectrally normalised layer, and a skip around them."""

    def __init__(self, members: int, size: int, spectral: SpectralForm) -> None:
        super().__init__()
        self.norm = EnsembleLayerNorm(members, size)
        self.inner = _square(members, size, spectral)
        self.outer = _square(members, size, spectral)

    def forward(self, inputs: Tensor) -> Tensor:
        """[N, B, size] -> [N, B, size]."""
        hidden = self.inner(self.norm(inputs)).relu()
        return inputs + self.outer(hidden)


def residual_critic(
    inputs: int,
    *,
    members: int = 10,
    atoms: int = 1,
    hidden: int = 256,
    spectral: SpectralForm = "projection",
) -> EnsembleCritic:
    """Build the paper's "modern" critic: one residual block between the first and the last layer."""
    body = nn.Sequential(
        EnsembleLinear(members, inputs, hidden), nn.ReLU(), ResidualBlock(members, hidden, spectral)
    )
    return EnsembleCritic(body, EnsembleLinear(members, hidden, atoms, LAST_GAIN))


def plain_critic(inputs: int, *, members: int = 2, atoms: int = 1, hidden: int = 256) -> EnsembleCritic:
    """Build SAC's classical critic: two hidden layers."""
    body = nn.Sequential(
        EnsembleLinear(members, inputs, hidden),
        nn.ReLU(),
        EnsembleLinear(members, hidden, hidden),
        nn.ReLU(),
    )
    return EnsembleCritic(body, EnsembleLinear(members, hidden, atoms, LAST_GAIN))


def _square(members: int, size: int, spectral: SpectralForm) -> EnsembleLinear:
    if spectral == "none":
        return EnsembleLinear(members, size, size)
    return SpectralLinear(members, size, spectral)
