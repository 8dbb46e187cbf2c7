"""One update of DrQ-v2 in the style of its published implementation: what `bench --pixels` compares with.

Written from the description (Yarats et al., 2022): shifts by grid sampling, images with their channels
first, two heads as modules of their own, torch's optimizers, nothing compiled. Also the plain reference that
the tests hold the library's own update against.
"""

import copy
import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from pessimism.types import Batch

PADDING = 4
CLIP = 0.3
WITHIN = 1 - 1e-6


def grid_shift(images: Tensor, place: Tensor) -> Tensor:
    """Shift [B, C, H, W] (floats) by whole pixels, as grid sampling on a padded image; place [B, 2] is y, x."""
    size = images.shape[-1]
    padded = functional.pad(images, (PADDING,) * 4, "replicate")
    whole = size + 2 * PADDING
    line = torch.linspace(-1 + 1 / whole, 1 - 1 / whole, whole)[:size]
    base = torch.stack([line.repeat(size, 1), line.repeat(size, 1).mT], dim=-1)  # [H, W, (x, y)]
    shift = place.flip(-1).float() * 2 / whole  # [B, (x, y)]
    grid = base + shift[:, None, None]
    return functional.grid_sample(padded, grid, padding_mode="zeros", align_corners=False)


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, outputs),
    )


def _trunk(inputs: int, features: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, features), nn.LayerNorm(features), nn.Tanh())


class TwinCritic(nn.Module):
    """A trunk and two heads."""

    def __init__(self, inputs: int, action_size: int, features: int, hidden: int) -> None:
        super().__init__()
        self.trunk = _trunk(inputs, features)
        self.first, self.second = (_mlp(features + action_size, hidden, 1) for _ in range(2))

    def forward(self, features: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return both estimates: 2 x [B, 1]."""
        inputs = torch.cat([self.trunk(features), action], dim=-1)
        return self.first(inputs), self.second(inputs)


class PublishedDrQ:
    """DrQ-v2's networks, optimizers and update."""

    def __init__(self, size: int, action_size: int, *, features: int = 50, hidden: int = 1024) -> None:
        channels = (9, 32, 32, 32, 32)
        layers: list[nn.Module] = []
        for index in range(4):
            layers += [nn.Conv2d(channels[index], 32, 3, stride=1 if index else 2), nn.ReLU(inplace=True)]
        self.encoder = nn.Sequential(*layers)
        inputs = 32 * ((size - 3) // 2 + 1 - 6) ** 2
        self.actor = nn.Sequential(_trunk(inputs, features), _mlp(features, hidden, action_size), nn.Tanh())
        self.critic = TwinCritic(inputs, action_size, features, hidden)
        for module in (*self.encoder, *self.actor.modules(), *self.critic.modules()):
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(module.weight, math.sqrt(2) if isinstance(module, nn.Conv2d) else 1.0)
                nn.init.zeros_(cast(Tensor, module.bias))
        self.target = copy.deepcopy(self.critic)
        networks = (self.encoder, self.critic, self.actor)
        self.optimizers = [torch.optim.Adam(network.parameters(), lr=1e-4) for network in networks]

    def encode(self, images: Tensor) -> Tensor:
        """[B, 9, H, W] (0 to 255) -> [B, features], channels first."""
        features: Tensor = self.encoder(images / 255.0 - 0.5)
        return features.flatten(1)

    def act(self, features: Tensor, noise: Tensor, std: float) -> Tensor:
        """Return the action with clipped noise, straight through the bounds."""
        action: Tensor = self.actor(features) + (noise * std).clamp(-CLIP, CLIP)
        return action + (action.clamp(-WITHIN, WITHIN) - action).detach()

    def target_value(self, batch: Batch, next_features: Tensor, noise: Tensor, std: float) -> Tensor:
        """Return r + gamma^n min(Q1', Q2'): [B, 1]."""
        with torch.no_grad():
            first, second = self.target(next_features, self.act(next_features, noise, std))
            return batch.reward + batch.discount * torch.min(first, second)

    def update(
        self, batch: Batch, places: tuple[Tensor, Tensor], noises: tuple[Tensor, Tensor], std: float
    ) -> Tensor:
        """Shift images [B, 9, H, W] (bytes) and learn from them; return the critics' loss."""
        obs, next_obs = grid_shift(batch.obs.float(), places[0]), grid_shift(batch.next_obs.float(), places[1])
        return self.learn(batch._replace(obs=obs, next_obs=next_obs), noises, std)

    def learn(self, batch: Batch, noises: tuple[Tensor, Tensor], std: float) -> Tensor:
        """Take one update on shifted images; return the critics' loss."""
        encoder_step, critic_step, actor_step = self.optimizers
        features = self.encode(batch.obs)
        with torch.no_grad():
            next_features = self.encode(batch.next_obs)
        target = self.target_value(batch, next_features, noises[0], std)
        first, second = self.critic(features, batch.action)
        loss = functional.mse_loss(first, target) + functional.mse_loss(second, target)
        encoder_step.zero_grad(set_to_none=True)
        critic_step.zero_grad(set_to_none=True)
        loss.backward()
        critic_step.step()
        encoder_step.step()
        self.update_actor(features.detach(), noises[1], std, actor_step)
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                old.copy_(0.01 * new + 0.99 * old)
        return loss.detach()

    def update_actor(self, features: Tensor, noise: Tensor, std: float, optimizer: torch.optim.Optimizer) -> None:
        """Climb the lower of the two estimates."""
        first, second = self.critic(features, self.act(features, noise, std))
        loss = -torch.min(first, second).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
