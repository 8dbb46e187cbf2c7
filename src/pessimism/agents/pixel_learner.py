"""TD-learning of critics together with the encoder that they see images through, in eager torch or compiled."""

import copy
from collections.abc import Sequence
from typing import NamedTuple, Unpack

import torch
from torch import Tensor

from pessimism.agents.critic_learner import CriticStep, Learned, LearnerOptions, td_target
from pessimism.native.graphs import compiled
from pessimism.nn.actor import PixelActor
from pessimism.nn.critic import PixelCritic
from pessimism.nn.encoder import Contrast, ConvEncoder, Crop
from pessimism.nn.optim import Adam, polyak_
from pessimism.strategies import Pessimism
from pessimism.types import Batch, Metrics
from pessimism.values import squared_td_loss


class Views(NamedTuple):
    """The random numbers of one update: windows of the images, and the noise of the next actions."""

    place: Tensor  # [B, 2]: of the observations
    next_place: Tensor  # [B, 2]: of the next observations, drawn separately
    noise: Tensor  # [B, act]
    other_place: Tensor | None  # [B, 2]: of the observations again, for the contrastive loss


class PixelLearner:
    """Updates encoder and critics on the TD loss and, for CURL, on a contrastive loss after it.

    The policy's next actions are part of the update, as the encoder changes from one update to the next. With
    `encoder_tau` the target critics see an averaged copy of the encoder, without it the encoder itself.
    """

    def __init__(
        self,
        *,
        encoder: ConvEncoder,
        crop: Crop,
        actor: PixelActor,
        critic: PixelCritic,
        pessimism: Pessimism,
        encoder_tau: float = 0.0,
        contrast: Contrast | None = None,
        compile: bool = False,
        **options: Unpack[LearnerOptions],
    ) -> None:
        self.encoder, self.crop, self.actor, self.critic, self.pessimism = encoder, crop, actor, critic, pessimism
        self.td_loss, self.tau = options.get("td_loss", squared_td_loss), options.get("tau", 0.005)
        self.encoder_tau, self.contrast = encoder_tau, contrast
        self.average_with = options.get("average_with", "critic")
        self.target_critic = copy.deepcopy(critic).requires_grad_(False)
        self.target_encoder = copy.deepcopy(encoder).requires_grad_(False) if encoder_tau else None
        lr = options.get("lr", 3e-4)
        self.optimizer = Adam([*encoder.parameters(), *critic.parameters()], lr)
        if contrast is not None:
            seen = [*encoder.parameters(), *critic.trunk.parameters()]
            # CURL's released code steps the encoder twice on one gradient, by two optimizers.
            self.view_optimizer = Adam(seen, lr)
            self.contrast_optimizer = Adam([*seen, *contrast.parameters()], lr)
        device = critic.head.weight.device
        self.update = compiled(self._update, device) if compile else self._update
        self.update_views = compiled(self._update_views, device) if compile else self._update_views

    def learn(self, batch: Batch, views: Sequence[Views], log_alpha: Tensor) -> Learned:
        """Update on one batch [B, ...] of images after the other, each with its windows and noise."""
        metrics: Metrics = {}
        for index, view in enumerate(views):
            self.pessimism.redraw()
            now = batch.at(index)
            step, features, bonus = self.update(now, view, log_alpha)
            if view.other_place is not None:
                metrics = self.update_views(now.obs, view.place, view.other_place)
        if self.average_with == "policy":  # which is updated once after these updates
            self._average()
        return Learned(step, now._replace(obs=features), bonus, metrics)

    def _update(self, batch: Batch, views: Views, log_alpha: Tensor) -> tuple[CriticStep, Tensor, Tensor]:
        """Move encoder and critics towards one target. Returns features [B, F] and bonus [B, 1] with the step."""
        with torch.no_grad():
            next_image = self.crop(batch.next_obs, views.next_place)  # [B, stack * C, size, size]
            next_features = self.encoder(next_image)
            next_action, next_log_prob = self.actor.sample_for_update(next_features, views.noise)
            seen = next_features if self.target_encoder is None else self.target_encoder(next_image)
            next_values = self.target_critic(seen, next_action)  # [N, B, K]
            bonus = -log_alpha.exp() * next_log_prob
            target = td_target(self.pessimism, batch, next_values, bonus)  # [B, K]
        features = self.encoder(self.crop(batch.obs, views.place))
        values = self.critic(features, batch.action)  # [N, B, K]
        loss = self.td_loss(values, target)
        self.optimizer.minimise(loss)
        self.critic.normalise_()
        if self.average_with == "critic":
            self._average()
        return CriticStep(loss.detach(), values.detach(), next_values), features.detach(), bonus

    def _average(self) -> None:
        """Move the target critics and, where there is one, the target encoder."""
        polyak_(self.target_critic.heads, self.critic.heads, self.tau)
        polyak_(self.target_critic.trunk, self.critic.trunk, self.encoder_tau or self.tau)
        if self.target_encoder is not None:
            polyak_(self.target_encoder, self.encoder, self.encoder_tau)

    def _update_views(self, obs: Tensor, place: Tensor, other_place: Tensor) -> Metrics:
        """Learn to recognise an image in another window of it (CURL)."""
        assert self.contrast is not None and self.target_encoder is not None
        with torch.no_grad():
            positive = self.target_critic.trunk(self.target_encoder(self.crop(obs, other_place)))  # [B, features]
        anchor = self.critic.trunk(self.encoder(self.crop(obs, place)))
        loss = self.contrast(anchor, positive)
        gradients = torch.autograd.grad(loss, self.contrast_optimizer.targets)
        self.view_optimizer.step(gradients[: len(self.view_optimizer.targets)])
        self.contrast_optimizer.step(gradients)
        return {"train/contrast_loss": loss.detach()}
