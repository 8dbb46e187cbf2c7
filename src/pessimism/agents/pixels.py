"""Actor-critic from pixels: DrQ-v2 and, with a learned penalty, GPL-DrQ; with an entropy, pixel SAC and CURL."""

import copy
from typing import Literal, NamedTuple, Unpack

import torch
from torch import Tensor

from pessimism.agents.sac import CriticStep, Options, SACAgent
from pessimism.nn.actor import PixelActor
from pessimism.nn.contrast import Contrast
from pessimism.nn.critic import PixelCritic
from pessimism.nn.encoder import ConvEncoder, Crop
from pessimism.ops import Adam, compiled, polyak_, sent
from pessimism.types import Batch, Metrics


class Views(NamedTuple):
    """Random windows of a batch of pictures, and the noise of the actions that follow them."""

    place: Tensor  # [B, 2]: of the observations
    next_place: Tensor  # [B, 2]: of the next observations, drawn apart
    noise: Tensor  # [B, act]


class PixelAgent(SACAgent):
    """An actor-critic whose networks see the features of one encoder, which learns from the critics' loss alone.

    DrQ-v2 is this class with a noisy policy, no entropy, and target critics that see the encoder's own
    features. Pixel SAC has a Gaussian policy with entropy and an averaged copy of the encoder (`encoder_tau`),
    CURL beside them a contrastive loss. How the critics' disagreement is used is the affair of `pessimism`.
    """

    actor: PixelActor
    critic: PixelCritic
    target_critic: PixelCritic

    def __init__(
        self,
        *,
        encoder: ConvEncoder,
        crop: Crop,
        actor: PixelActor,
        critic: PixelCritic,
        encoder_tau: float = 0.0,
        average_with: Literal["critic", "policy"] = "critic",
        contrast: Contrast | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(actor=actor, critic=critic, **options)
        self.encoder, self.crop, self.encoder_tau, self.average_with = encoder, crop, encoder_tau, average_with
        self.target_encoder = copy.deepcopy(encoder).requires_grad_(False) if encoder_tau else None
        self.critic_optimizer = Adam([*encoder.parameters(), *critic.parameters()], self.lr)
        self.contrast = contrast
        if contrast is not None:
            seen = [*encoder.parameters(), *critic.trunk.parameters()]
            # CURL's released code steps the encoder twice on one gradient, by two optimizers.
            self.view_optimizer = Adam(seen, self.lr)
            self.contrast_optimizer = Adam([*seen, *contrast.parameters()], self.lr)
        self.update_values = compiled(self._update_values, self.device) if self.compiles else self._update_values
        self.update_views = compiled(self._update_views, self.device) if self.compiles else self._update_views

    def update(self, batch: Batch, step: int) -> Metrics:
        """Update encoder and critics on U batches [U, B, ...], then the policy once."""
        self.pessimism.advance(step)
        self.actor.advance(step)
        batch = Batch(*(sent(field, self.device) for field in batch))
        metrics: Metrics = {}
        for index in range(len(batch.reward)):
            self.pessimism.redraw()
            now, views = batch.at(index), self._views(len(batch.reward[index]))
            critic, features, bonus = self.update_values(now, views)
            if self.contrast is not None:
                metrics |= self.update_views(now.obs, views.place, self._places(len(now.reward)))
        target = self._td_target(now, critic.next_values, bonus)  # with a graph to the strategy
        metrics |= self.pessimism.update(critic.values, target)
        metrics |= self.update_actor(features, self._noise(now.reward.shape[:1], self.generator))
        if self.average_with == "policy":
            self._average()
        return metrics | {"train/critic_loss": critic.loss, "train/value": critic.values.mean()}

    def _update_values(self, batch: Batch, views: Views) -> tuple[CriticStep, Tensor, Tensor]:
        """TD-learning of encoder and critics; return with it the features [B, F] and the bonus [B, 1]."""
        with torch.no_grad():
            next_picture = self.crop(batch.next_obs, views.next_place)  # [B, stack * C, size, size]
            next_features = self.encoder(next_picture)
            next_action, next_log_prob = self.actor.smoothed(next_features, views.noise)
            seen = next_features if self.target_encoder is None else self.target_encoder(next_picture)
            next_values = self.target_critic(seen, next_action)  # [N, B, K]
            bonus = -self.alpha * next_log_prob
            target = self._td_target(batch, next_values, bonus)  # [B, K]
        features = self.encoder(self.crop(batch.obs, views.place))
        values = self.critic(features, batch.action)  # [N, B, K]
        loss = self.td_loss(values, target)
        self.critic_optimizer.minimise(loss)
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
        """Learn to recognise a picture in another window of it (CURL)."""
        assert self.contrast is not None and self.target_encoder is not None
        with torch.no_grad():
            positive = self.target_critic.trunk(self.target_encoder(self.crop(obs, other_place)))  # [B, features]
        anchor = self.critic.trunk(self.encoder(self.crop(obs, place)))
        loss = self.contrast(anchor, positive)
        gradients = torch.autograd.grad(loss, self.contrast_optimizer.targets)
        self.view_optimizer.step(gradients[: len(self.view_optimizer.targets)])
        self.contrast_optimizer.step(gradients)
        return {"train/contrast_loss": loss.detach()}

    def _places(self, count: int) -> Tensor:
        return sent(self.crop.draw(count, self.generator), self.device)

    def _views(self, count: int) -> Views:
        return Views(self._places(count), self._places(count), self._noise((count,), self.generator))

    def _seen(self, obs: Tensor) -> Tensor:
        """Return the features of pictures [B, stack, H, W, C], cut in the middle."""
        frames = obs.to(self.device)
        features: Tensor = self.encoder(self.crop(frames, self.crop.centre(len(frames))))
        return features
