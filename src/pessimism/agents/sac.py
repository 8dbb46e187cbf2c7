"""Soft actor-critic with an ensemble of critics; with a learned penalty it is GPL-SAC (Algorithm 1)."""

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple, Required, TypedDict

import torch
from torch import Tensor, nn

from pessimism.native.critic import CriticUpdate, covered
from pessimism.nn.actor import PixelActor, SquashedGaussianActor
from pessimism.nn.critic import EnsembleCritic, PixelCritic
from pessimism.ops import Adam, compiled, polyak_, sent
from pessimism.strategies import Pessimism
from pessimism.types import Batch, Metrics
from pessimism.values import squared_td_loss


class CriticStep(NamedTuple):
    """What one critic update leaves behind for the steps after the loop."""

    loss: Tensor  # scalar
    values: Tensor  # [N, B, K]: predictions before the optimizer step
    next_values: Tensor  # [N, B, K]: the target critics' estimates


class Options(TypedDict, total=False):
    """What agents of all kinds are given beside their networks."""

    pessimism: Required[Pessimism]
    target_entropy: Required[float | None]
    td_loss: Callable[[Tensor, Tensor], Tensor]
    tau: float
    lr: float
    alpha: float
    alpha_lr: float
    alpha_beta1: float
    actor_clip: float
    generator: torch.Generator
    compile: bool


class SACAgent(nn.Module):
    """Soft actor-critic. How the critics' disagreement is used is the affair of `pessimism`.

    SAC, REDQ, GPL-SAC and its variants are settings of this class: the number of critics, their form
    and loss, the strategy, and how many batches `update` is given.
    """

    def __init__(
        self,
        *,
        actor: SquashedGaussianActor | PixelActor,
        critic: EnsembleCritic | PixelCritic,
        pessimism: Pessimism,
        target_entropy: float | None,
        td_loss: Callable[[Tensor, Tensor], Tensor] = squared_td_loss,
        tau: float = 0.005,
        lr: float = 3e-4,
        alpha: float = 1.0,
        alpha_lr: float = 1e-4,
        alpha_beta1: float = 0.5,
        actor_clip: float = 40.0,
        generator: torch.Generator | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__()
        self.actor, self.critic, self.pessimism = actor, critic, pessimism
        self.target_critic = copy.deepcopy(critic).requires_grad_(False)
        self.log_alpha = nn.Parameter(critic.head.bias.new_tensor(alpha).log())  # alpha 0: no entropy at all
        self.critic_optimizer = Adam(critic.parameters(), lr)
        self.actor_optimizer = Adam(actor.parameters(), lr)
        self.alpha_optimizer = Adam([self.log_alpha], alpha_lr, betas=(alpha_beta1, 0.999))
        self.td_loss, self.target_entropy = td_loss, target_entropy
        self.tau, self.actor_clip, self.lr, self.compiles = tau, actor_clip, lr, compile
        self.generator = generator or torch.Generator()  # of the noise in updates
        self.update_critic = compiled(self._update_critic, self.device) if compile else self._update_critic
        self.update_actor = compiled(self._update_actor, self.device) if compile else self._update_actor
        self.native = self._native_update() if compile else None

    @property
    def device(self) -> torch.device:
        """Where the networks live."""
        return self.log_alpha.device

    @property
    def alpha(self) -> Tensor:
        """Weight of the entropy, as it is now."""
        return self.log_alpha.detach().exp()

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
    def value(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the critics' mean estimate, unpenalised, on the CPU: [B, 1]."""
        values: Tensor = self.critic(self._seen(obs), action.to(self.device))  # [N, B, K]
        return values.mean(dim=(0, 2)).unsqueeze(-1).cpu()

    def update(self, batch: Batch, step: int) -> Metrics:
        """Update the critics on U batches [U, B, ...], then the policy once (Algorithm 1, the loop's body)."""
        self.pessimism.advance(step)
        batch = Batch(*(sent(field, self.device) for field in batch))
        with torch.no_grad():  # the policy does not change within the loop: all U batches in one pass
            noise = self._noise(batch.reward.shape[:2], self.generator)
            next_action, next_log_prob = self.actor.smoothed(batch.next_obs, noise)
        bonus = -self.alpha * next_log_prob  # [U, B, 1]
        critic = self._update_critics(batch, next_action, bonus)
        now = batch.at(-1)
        target = self._td_target(now, critic.next_values, bonus[-1])  # with a graph to the strategy
        metrics = self.pessimism.update(critic.values, target)
        metrics |= self.update_actor(now.obs, self._noise(now.reward.shape[:1], self.generator))
        return metrics | {"train/critic_loss": critic.loss, "train/value": critic.values.mean()}

    def episode_finished(self, episode_return: float) -> Metrics:
        """Tell the strategy of a training episode's return."""
        return self.pessimism.episode_finished(episode_return)

    def _td_target(self, batch: Batch, next_values: Tensor, bonus: Tensor) -> Tensor:
        """Return y = r + gamma (Q_hat(s', a') - alpha log pi(a'|s')): [B, K]."""
        return batch.reward + batch.discount * (self.pessimism.target_value(next_values) + bonus)

    def _update_critics(self, batch: Batch, next_action: Tensor, bonus: Tensor) -> CriticStep:
        """Update the critics on one batch after the other. Returns the last step."""
        if self.native is not None:
            return self._update_critics_in_cpp(self.native, batch, next_action, bonus)
        for index in range(len(batch.reward)):
            self.pessimism.redraw()
            step = self.update_critic(batch.at(index), next_action[index], bonus[index])
        return step

    def _update_critic(self, batch: Batch, next_action: Tensor, bonus: Tensor) -> CriticStep:
        """TD-learning of all critics towards one target, then the target critics' average."""
        with torch.no_grad():
            next_values = self.target_critic(batch.next_obs, next_action)  # [N, B, K]
            target = self._td_target(batch, next_values, bonus)  # [B, K]
        values = self.critic(batch.obs, batch.action)  # [N, B, K]
        loss = self.td_loss(values, target)
        self.critic_optimizer.minimise(loss)
        self.critic.normalise_()
        polyak_(self.target_critic, self.critic, self.tau)
        return CriticStep(loss.detach(), values.detach(), next_values)

    def _native_update(self) -> CriticUpdate | None:
        critic, averaged = self.critic, self.target_critic
        if isinstance(critic, PixelCritic) or isinstance(averaged, PixelCritic):
            return None
        known = covered(critic, self.td_loss)
        return CriticUpdate(critic, averaged, self.critic_optimizer, self.tau) if known else None

    @torch.no_grad()
    def _update_critics_in_cpp(
        self, native: CriticUpdate, batch: Batch, next_action: Tensor, bonus: Tensor
    ) -> CriticStep:
        """The same, with all but the target, which is the strategy's affair, in C++."""
        inputs = torch.cat([batch.obs, batch.action], dim=-1)  # [U, B, obs + act]
        next_inputs = torch.cat([batch.next_obs, next_action], dim=-1)
        next_values = native.target_values(next_inputs[0])  # [N, B, 1]
        for index, following in enumerate((*next_inputs[1:], None)):
            self.pessimism.redraw()
            target = self._td_target(batch.at(index), next_values, bonus[index])
            loss, values, ahead = native.learn(inputs[index], target, following)
            step = CriticStep(loss, values, next_values)
            if ahead is not None:
                next_values = ahead
        return step

    def _update_actor(self, obs: Tensor, noise: Tensor) -> Metrics:
        """Policy learning against the strategy's value, then entropy learning."""
        action, log_prob = self.actor.smoothed(obs, noise)
        values = self.critic(obs, action)  # [N, B, K]
        value = self.pessimism.actor_value(values).mean(dim=-1, keepdim=True)  # [B, 1]
        loss = (self.alpha * log_prob - value).mean()
        self.actor_optimizer.minimise(loss, self.actor_clip)
        entropy = -log_prob.detach().mean()
        if self.target_entropy is not None:
            # J(alpha), linear in log alpha: its gradient is not scaled by alpha itself (author's code)
            self.alpha_optimizer.minimise(self.log_alpha * (entropy - self.target_entropy))
        return {"train/actor_loss": loss.detach(), "train/entropy": entropy, "train/alpha": self.alpha}

    def _seen(self, obs: Tensor) -> Tensor:
        """Return observations as policy and critics take them."""
        return obs.to(self.device)

    def _noise(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw standard normal noise on the CPU, the same on every device: [*shape, act]."""
        noise = torch.randn((*shape, self.actor.action_size), generator=generator)
        return sent(noise, self.device)
