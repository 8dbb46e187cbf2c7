"""Soft actor-critic with an ensemble of critics; with a learned penalty it is GPL-SAC (Algorithm 1)."""

from collections.abc import Callable, Sequence
from typing import Required, TypedDict, Unpack

import torch
from torch import Tensor, nn

from pessimism.agents.critic_learner import CriticLearner, Learned, NativeLearner, td_target
from pessimism.agents.pixel_learner import PixelLearner
from pessimism.native.graphs import compiled
from pessimism.nn.actor import PixelActor, VectorActor
from pessimism.nn.optim import Adam
from pessimism.nn.scaling import RewardScale
from pessimism.types import Batch, Episode, Hindsight, Metrics
from pessimism.values import Values, expectation, members, moved, on_cpu

Schedule = Callable[[int], float]
"""Environment step -> a number that changes with it."""

RETURNS = ("train/value", "train/td_error", "train/uncertainty", "bias/validation_td")
"""Metrics that are returns, or differences of returns."""


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on the device, without waiting for a GPU."""
    pinned = tensor.device.type != device.type == "cuda"
    return (tensor.pin_memory() if pinned else tensor).to(device, non_blocking=True)


class Options(TypedDict, total=False):
    """Settings that agents of all kinds share."""

    target_entropy: Required[float | None]
    lr: float
    alpha: float
    alpha_lr: float
    alpha_beta1: float
    actor_clip: float
    lr_share: Schedule | None
    reward_scale: RewardScale | None
    generator: torch.Generator
    compile: bool


class ActorCritic(nn.Module):
    """A policy and an ensemble of critics. `pessimism` decides how the critics' disagreement is used.

    `update` is Algorithm 1 for all of them. What the networks see, and how the critics are updated, is left to
    `SACAgent` (states) and `PixelAgent` (images).
    """

    def __init__(
        self,
        *,
        actor: VectorActor | PixelActor,
        learner: CriticLearner | PixelLearner,
        target_entropy: float | None,
        lr: float = 3e-4,
        alpha: float = 1.0,
        alpha_lr: float = 1e-4,
        alpha_beta1: float = 0.5,
        actor_clip: float = 40.0,
        lr_share: Schedule | None = None,
        reward_scale: RewardScale | None = None,
        generator: torch.Generator | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__()
        self.actor, self.pessimism = actor, learner.pessimism
        self.critic, self.target_critic = learner.critic, learner.target_critic
        self.log_alpha = nn.Parameter(self.critic.head.bias.new_tensor(alpha).log())  # alpha 0: no entropy at all
        self.critic_optimizer = learner.optimizer
        self.actor_optimizer = Adam(actor.parameters(), lr)
        self.alpha_optimizer = Adam([self.log_alpha], alpha_lr, betas=(alpha_beta1, 0.999))
        self.target_entropy, self.actor_clip = target_entropy, actor_clip
        self.lr_share, self.reward_scale = lr_share, reward_scale
        self.generator = generator or torch.Generator()  # of the noise in updates
        self.compiles = compile
        self.update_actor = compiled(self._update_actor, self.device) if compile else self._update_actor

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return self.log_alpha.device

    @property
    def entropy_weight(self) -> Tensor:
        """Alpha, in the critics' units."""
        return self.log_alpha.detach().exp()

    @property
    def unit(self) -> Tensor:
        """What one unit of the critics is worth in the task's rewards: 1 unless rewards are scaled."""
        scale = self.reward_scale
        return self.log_alpha.detach().new_ones(()) if scale is None else scale.unit

    @property
    def alpha(self) -> Tensor:
        """Weight of the entropy, in the units of the task's rewards."""
        return self.entropy_weight * self.unit

    @torch.no_grad()
    def mode(self, obs: Tensor) -> Tensor:
        """Return the deterministic action, on the CPU."""
        return self.actor.mode(self._seen(obs)).cpu()

    @torch.no_grad()
    def sample(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return a random action and its log-probability, on the CPU."""
        action, log_prob = self.actor.sample(self._seen(obs), self._noise(obs.shape[:1], generator))
        return action.cpu(), log_prob.cpu()

    @torch.no_grad()
    def target_action(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return an action of the policy that targets are made with, and its log-probability, on the CPU."""
        action, log_prob = self.actor.sample_for_update(self._seen(obs), self._noise(obs.shape[:1], generator))
        return action.cpu(), log_prob.cpu()

    @torch.no_grad()
    def values(self, obs: Tensor, action: Tensor) -> Values:
        """Return the critics' estimates, in the units of the task's rewards, on the CPU: [N, B, K]."""
        values: Values = self.critic(self._seen(obs), action.to(self.device))
        return on_cpu(moved(values, lambda location: location * self.unit))

    def value(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the critics' mean estimate, unpenalised, on the CPU: [B, 1]."""
        return expectation(self.values(obs, action)).mean(dim=0)

    def observe(self, reward: float, ended: bool) -> None:
        """Follow the size of the rewards, where they are scaled."""
        if self.reward_scale is not None:
            self.reward_scale.observe(reward, ended)

    def update(self, batch: Batch, step: int, *, policy: bool = True) -> Metrics:
        """Update the critics on U batches [U, B, ...], then beta, policy and alpha once (Algorithm 1)."""
        self._advance(step)
        critic, now, bonus, metrics = self._update_critics(self._learned_from(batch))  # the last of the U batches
        metrics |= {"train/critic_loss": critic.loss, "train/value": expectation(critic.values).mean()}
        if policy:
            target = td_target(self.pessimism, now, critic.next_values, bonus)  # with a graph to beta
            metrics |= self.pessimism.update(critic.values, target)  # dual TD-learning
            if members(critic.next_values) > members(critic.values):  # read under several dropout masks
                metrics |= self.pessimism.measured(critic.next_values)
            metrics |= self.update_actor(now.obs, self._noise(now.reward.shape[:1], self.generator))
        return self._in_task_units(metrics)

    def _advance(self, step: int) -> None:
        """Follow the schedules."""
        self.pessimism.advance(step)
        self.actor.advance(step)
        if self.lr_share is not None:
            for optimizer in (self.critic_optimizer, self.actor_optimizer, self.alpha_optimizer):
                optimizer.schedule_(self.lr_share(step))

    def _learned_from(self, batch: Batch) -> Batch:
        """Return a batch as critics learn from it: on their device, its rewards in their units."""
        batch = Batch(*(to_device(field, self.device) for field in batch))
        return batch if self.reward_scale is None else batch._replace(reward=batch.reward / self.unit)

    def _in_task_units(self, metrics: Metrics) -> Metrics:
        """Return metrics with all that is a return in the units of the task's rewards, as the bias meter has it."""
        if self.reward_scale is None:
            return metrics
        returns = {name: metrics[name] * self.unit for name in RETURNS if name in metrics}
        return metrics | returns | {"train/reward_unit": self.unit}

    def validate(self, batch: Batch) -> Metrics:
        """Pass on to the strategy the TD errors of a batch [B, ...] that no critic is fitted to."""
        batch = self._learned_from(batch)
        with torch.no_grad():
            values = self.critic(self._seen(batch.obs), batch.action)  # [N, B, K]
            next_seen, noise = self._seen(batch.next_obs), self._noise(batch.reward.shape[:1], self.generator)
            next_action, next_log_prob = self.actor.sample_for_update(next_seen, noise)
            next_values = self.target_critic.judged(self._seen_by_target(batch.next_obs, next_seen), next_action)
        bonus = -self.entropy_weight * next_log_prob
        target = td_target(self.pessimism, batch, next_values, bonus)  # with a graph to beta
        return self._in_task_units(self.pessimism.validate(values, target))

    def episode_finished(self, episode: Episode, hindsight: Hindsight | None) -> Metrics:
        """Pass on a finished training episode to the strategy."""
        return self.pessimism.episode_finished(episode, hindsight)

    def _update_critics(self, batch: Batch) -> Learned:
        """Update the critics on U batches [U, B, ...]."""
        raise NotImplementedError

    def _update_actor(self, obs: Tensor, noise: Tensor) -> Metrics:
        """Policy learning against the strategy's value, then entropy learning."""
        action, log_prob = self.actor.learning(obs, noise)
        values = self._policy_values(obs, action)  # [N, B, K]
        value = expectation(self.pessimism.actor_value(values))  # [B, 1]
        loss = (self.entropy_weight * log_prob - value).mean()
        self.actor_optimizer.minimise(loss, self.actor_clip)
        self.actor.normalise_()
        entropy = -log_prob.detach().mean()
        if self.target_entropy is not None:
            # J(alpha), linear in log alpha: its gradient is not scaled by alpha itself (author's code)
            self.alpha_optimizer.minimise(self.log_alpha * (entropy - self.target_entropy))
        return {"train/actor_loss": loss.detach(), "train/entropy": entropy, "train/alpha": self.entropy_weight}

    def _policy_values(self, obs: Tensor, action: Tensor) -> Values:
        """Return the critics' estimates that the policy ascends: [N, B, K]."""
        return self.critic.judged(obs, action)

    def _seen(self, obs: Tensor) -> Tensor:
        """Return observations as policy and critics take them."""
        return obs.to(self.device)

    def _seen_by_target(self, obs: Tensor, seen: Tensor) -> Tensor:
        """Return observations as the target critics take them."""
        return seen

    def _noise(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw standard normal noise on the CPU, the same on every device: [*shape, act]."""
        noise = torch.randn((*shape, self.actor.action_size), generator=generator)
        return to_device(noise, self.device)


class SACAgent(ActorCritic):
    """Soft actor-critic on states.

    SAC, REDQ, GPL-SAC and its variants are settings of this class: the number of critics, their form
    and loss, the strategy, and how many batches `update` is given.
    """

    def __init__(self, *, actor: VectorActor, learner: CriticLearner, **options: Unpack[Options]) -> None:
        if isinstance(learner, NativeLearner):
            options["compile"] = False  # what C++ leaves to torch is too little: compiling takes many steps' time
        super().__init__(actor=actor, learner=learner, **options)
        self.learner = learner
        self.next_actions = learner.next_actions(actor)

    def _update_critics(self, batch: Batch) -> Learned:
        """Draw the next actions of all U batches in one pass, as the policy stays the same, then update."""
        with torch.no_grad():
            noise = self._noise(batch.reward.shape[:2], self.generator)
            # for all U batches: [U, B, act] and [U, B, 1]
            next_action, next_log_prob = self.next_actions(batch.next_obs, noise)
        return self.learner.learn(batch, next_action, -self.entropy_weight * next_log_prob)

    def _policy_values(self, obs: Tensor, action: Tensor) -> Values:
        """Return the critics' estimates, computed by the learner."""
        return self.learner.values(obs, action)
