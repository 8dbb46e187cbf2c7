"""Policies: observation to action."""

import itertools
import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from pessimism.nn.encoder import Trunk

LogStdForm = Literal["squashed", "clamped", "clamped-10"]
SQUASHED = (-10.0, 2.0)  # author's code
CLAMPED = {"clamped": (-20.0, 2.0), "clamped-10": (-10.0, 2.0)}  # SAC's, REDQ's and MBPO's; XQC's
WITHIN = 1 - 1e-6  # largest action of a noisy policy (DrQ-v2's released code)


def two_hidden_layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Build a policy's network."""
    sizes = (inputs, hidden, hidden, outputs)
    layers = [nn.Linear(before, after) for before, after in itertools.pairwise(sizes)]
    for layer, gain in zip(layers, (1.0, 1.0, 0.01), strict=True):
        nn.init.orthogonal_(layer.weight, gain * math.sqrt(2))  # author's code
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


def _xavier_(net: nn.Module, heads: int) -> None:
    layers = [layer for layer in net.children() if isinstance(layer, nn.Linear)]
    for layer, parts in zip(layers, (1, 1, heads), strict=True):
        for part in layer.weight.chunk(parts):
            nn.init.xavier_uniform_(part)


class Actor(nn.Module):
    """A policy. `mode` and `sample` have no side effects."""

    action_size: int

    def mode(self, obs: Tensor) -> Tensor:
        """Return the deterministic action."""
        raise NotImplementedError

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the action that standard normal `noise` [.., act] leads to, and its log-probability."""
        raise NotImplementedError

    def sample_for_update(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return an action that critics learn from, and its log-probability."""
        return self.sample(obs, noise)

    def learning(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return an action that the policy itself learns from, and its log-probability."""
        return self.sample_for_update(obs, noise)

    def advance(self, step: int) -> None:
        """Called before the updates of an environment step (schedules)."""

    def normalise_(self) -> None:
        """Called after each optimizer step (projections of the weights)."""


class SquashedGaussianActor(Actor):
    """A Gaussian squashed by tanh into (-1, 1), with a state-dependent diagonal standard deviation."""

    net: nn.Module

    def __init__(
        self,
        obs_size: int,
        action_size: int,
        hidden: int = 256,
        log_std: LogStdForm = "squashed",
        *,
        net: nn.Module | None = None,  # [.., obs] -> [.., 2 act]; two hidden layers unless given
    ) -> None:
        super().__init__()
        self.action_size, self.log_std = action_size, log_std
        self.net = two_hidden_layers(obs_size, hidden, 2 * action_size) if net is None else net

    def xavier_(self) -> None:
        """Draw the weights again as SAC, REDQ and MBPO do: Xavier uniform, the last layer's two heads apart."""
        _xavier_(self.net, heads=2)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log standard deviation before the squashing: [.., obs] -> 2 x [.., act]."""
        return self._moments(self.net(obs))

    def mode(self, obs: Tensor) -> Tensor:
        """Return the deterministic action."""
        return self(obs)[0].tanh()

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the action that standard normal `noise` [.., act] leads to, and its log-probability."""
        return self.action_for_update(self.net(obs), noise)

    def action_for_update(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `sample_for_update` does, from the network's outputs [.., 2 act]."""
        mean, log_std = self._moments(outputs)
        raw = mean + log_std.exp() * noise
        gaussian = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh(x)**2) from x itself: the textbook form loses every digit near the bounds.
        squash = 2 * (math.log(2) - raw - nn.functional.softplus(-2 * raw))
        return raw.tanh(), (gaussian - squash).sum(-1, keepdim=True)

    def _moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = outputs.chunk(2, dim=-1)
        if self.log_std != "squashed":
            return mean, raw.clamp(*CLAMPED[self.log_std])
        low, high = SQUASHED
        return mean, low + 0.5 * (high - low) * (raw.tanh() + 1)


class NoisyActor(Actor):
    """A deterministic policy with Gaussian noise whose size follows a schedule (DrQ-v2). It has no entropy."""

    std: Tensor

    def __init__(
        self, obs_size: int, action_size: int, hidden: int, *, noise: Callable[[int], float], clip: float = 0.3
    ) -> None:
        super().__init__()
        self.action_size, self.schedule, self.clip = action_size, noise, clip
        self.net = two_hidden_layers(obs_size, hidden, action_size)
        self.register_buffer("std", torch.tensor(float(noise(0))))

    def xavier_(self) -> None:
        """Draw the weights again, Xavier uniform."""
        _xavier_(self.net, heads=1)

    def mode(self, obs: Tensor) -> Tensor:
        """Return the action without noise."""
        action: Tensor = self.net(obs)
        return action.tanh()

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return an exploratory action [.., act] and zeros [.., 1] for its log-probability."""
        return _bounded(self.mode(obs), self.std * noise)

    def sample_for_update(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the action that updates learn from: its noise is clipped."""
        return self._clipped(self.mode(obs), noise)

    def action_for_update(self, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `sample_for_update` does, from the network's outputs [.., act]."""
        return self._clipped(outputs.tanh(), noise)

    def _clipped(self, mean: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        return _bounded(mean, (self.std * noise).clamp(-self.clip, self.clip))

    def advance(self, step: int) -> None:
        """Follow the noise's schedule."""
        self.std.fill_(self.schedule(step))


def _bounded(mean: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Add noise within the bounds; gradients pass as if there were none (straight-through)."""
    action = (mean + noise).clamp(-WITHIN, WITHIN)
    return mean + (action - mean).detach(), torch.zeros_like(mean[..., :1])


VectorActor = SquashedGaussianActor | NoisyActor
"""A policy on states, or on an encoder's features."""


class PixelActor(Actor):
    """A policy on an encoder's features, through a trunk of its own."""

    def __init__(self, trunk: Trunk, policy: VectorActor) -> None:
        super().__init__()
        self.trunk, self.policy, self.action_size = trunk, policy, policy.action_size

    def mode(self, features: Tensor) -> Tensor:
        """Return the deterministic action."""
        return self.policy.mode(self.trunk(features))

    def sample(self, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return an exploratory action and its log-probability."""
        return self.policy.sample(self.trunk(features), noise)

    def sample_for_update(self, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the action that updates learn from, and its log-probability."""
        return self.policy.sample_for_update(self.trunk(features), noise)

    def advance(self, step: int) -> None:
        """Follow the noise's schedule."""
        self.policy.advance(step)
