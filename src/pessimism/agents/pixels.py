"""Actor-critic from pixels: DrQ-v2 and, with a learned penalty, GPL-DrQ; with an entropy, pixel SAC and CURL."""

from typing import Unpack

from torch import Tensor

from pessimism.agents.critic_learner import Learned
from pessimism.agents.pixel_learner import PixelLearner, Views
from pessimism.agents.sac import ActorCritic, Options, to_device
from pessimism.nn.actor import PixelActor
from pessimism.types import Batch


class PixelAgent(ActorCritic):
    """An actor-critic whose networks see the features of one encoder, which learns from the critics' loss alone.

    DrQ-v2 is this class with a noisy policy, no entropy, and target critics that see the encoder's own
    features. Pixel SAC has a Gaussian policy with entropy and an averaged copy of the encoder, CURL a
    contrastive loss as well. `pessimism` decides how the critics' disagreement is used.
    """

    def __init__(self, *, actor: PixelActor, learner: PixelLearner, **options: Unpack[Options]) -> None:
        super().__init__(actor=actor, learner=learner, **options)
        self.learner = learner
        self.crop, self.encoder, self.target_encoder = learner.crop, learner.encoder, learner.target_encoder
        self.contrast = learner.contrast
        if learner.contrast is not None:
            self.view_optimizer, self.contrast_optimizer = learner.view_optimizer, learner.contrast_optimizer

    def _update_critics(self, batch: Batch) -> Learned:
        """Update encoder and critics on U batches of images."""
        views = [self._views(len(reward)) for reward in batch.reward]
        return self.learner.learn(batch, views, self.log_alpha.detach())

    def _views(self, count: int) -> Views:
        place, next_place = self._places(count), self._places(count)
        noise = self._noise((count,), self.generator)
        return Views(place, next_place, noise, None if self.contrast is None else self._places(count))

    def _places(self, count: int) -> Tensor:
        return to_device(self.crop.draw(count, self.generator), self.device)

    def _seen(self, obs: Tensor) -> Tensor:
        """Return the features of images [B, stack, H, W, C], cropped in the middle."""
        frames = obs.to(self.device)
        features: Tensor = self.encoder(self.crop(frames, self.crop.centre(len(frames))))
        return features

    def _seen_by_target(self, obs: Tensor, seen: Tensor) -> Tensor:
        """Return the features of the target encoder, where there is one."""
        if self.target_encoder is None:
            return seen
        features: Tensor = self.target_encoder(self.crop(obs, self.crop.centre(len(obs))))
        return features
