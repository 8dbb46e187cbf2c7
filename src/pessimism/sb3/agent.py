"""SB3's SAC with its critics read by a strategy of this library."""

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from stable_baselines3 import SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import (
    GymEnv,
    MaybeCallback,
    ReplayBufferSamples,
    TrainFreq,
    TrainFrequencyUnit,
)
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.sac.policies import SACPolicy
from torch import Tensor

from pessimism.config.strategies import AnyStrategy, StrategySettings
from pessimism.errors import UserError
from pessimism.sb3.episodes import Tracks
from pessimism.sb3.view import AgentView
from pessimism.strategies import Pessimism
from pessimism.training.bias import look_back
from pessimism.training.build import build_strategy
from pessimism.training.state import Averages, stream
from pessimism.types import Metrics
from pessimism.values import expectation, squared_td_loss

PAPER = {"n_critics": 10, "gradient_steps": 20, "policy_delay": 20, "learning_starts": 5000}
"""The paper's GPL-SAC, but for its residual critics: `GPLSAC("MlpPolicy", env, **PAPER)`."""


TAIL = 0.01  # steps near a time limit count while the part of the return that was not seen weighs less


class GPLSAC(SAC):
    """Soft actor-critic with N critics and a strategy; by default pessimism is learned (GPL).

    All arguments of SB3's `SAC` keep their names, order and defaults. Three are added:

    - `pessimism`: the strategy's settings as in the rest of this library, such as `{"name": "fixed", "beta": 0.5}`
      (names: `pessimism.config.strategies`), or a `Pessimism` of your own. Two critics and a fixed beta of 0.5
      are SB3's SAC.
    - `n_critics`: number of critics, also accepted in `policy_kwargs`.
    - `policy_delay`: critic updates per update of policy, entropy weight and beta.

    `save` and `load` are SB3's: the strategy's state is in the file, and like all of SB3's files it is read with
    pickle, so load only files that you trust.
    """

    pessimism: Pessimism

    def __init__(
        self,
        policy: str | type[SACPolicy],
        env: GymEnv | str,
        *args: Any,  # noqa: ANN401
        pessimism: Mapping[str, Any] | Pessimism | None = None,
        n_critics: int | None = None,
        policy_delay: int = 1,
        policy_kwargs: dict[str, Any] | None = None,
        _init_setup_model: bool = True,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        if policy_delay < 1:
            raise UserError(f"policy_delay is {policy_delay}: it counts critic updates and starts at 1")
        critics = {} if n_critics is None else {"n_critics": n_critics}
        policy_kwargs = {**(policy_kwargs or {}), **critics}
        named = kwargs | {"policy_kwargs": policy_kwargs, "_init_setup_model": False}
        super().__init__(policy, env, *args, **named)
        self.strategy = pessimism if isinstance(pessimism, Pessimism) else dict(pessimism or {"name": "learned"})
        self.policy_delay = policy_delay
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        if isinstance(self.strategy, Pessimism):
            self.pessimism = copy.deepcopy(self.strategy)
            return
        seed = np.random.randint(2**31) if self.seed is None else self.seed
        with torch.device(self.device):
            self.pessimism = build_strategy(
                _validated(self.strategy, self.critic.n_critics),
                members=self.critic.n_critics,
                generator=stream(seed, "pessimism"),
                discount=self.gamma,
                n_step=self.n_steps,
                follow_rate=self.tau * (1 - self.gamma**self.n_steps) * self._updates_per_step(),
            )

    def _updates_per_step(self) -> float:
        """Return how often the target critics are averaged per environment step, as far as settings tell."""
        assert isinstance(self.train_freq, TrainFreq)
        if self.gradient_steps < 0 or self.train_freq.unit is TrainFrequencyUnit.EPISODE:
            return 1 / self.target_update_interval  # as many updates as steps
        return self.gradient_steps / (self.train_freq.frequency * self.n_envs * self.target_update_interval)

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Update as SB3's SAC does, with the strategy in place of the minimum."""
        assert self.replay_buffer is not None
        self.policy.set_training_mode(True)
        alpha_optimizer = [self.ent_coef_optimizer] if self.ent_coef_optimizer else []
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer, *alpha_optimizer])
        self.pessimism.advance(self.num_timesteps)
        averages = Averages()
        for gradient_step in range(gradient_steps):
            self._n_updates += 1
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            if self.use_sde:
                self.actor.reset_noise()
            due = self._n_updates % self.policy_delay == 0
            averages.add(self._update_all(batch) if due else self._update_critics(batch, self.alpha)[0])
            if gradient_step % self.target_update_interval == 0:
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, value in averages.means().items():
            self.logger.record(name, value)

    @property
    def alpha(self) -> Tensor:
        """The entropy weight as it is now, SB3's `ent_coef`."""
        return self.ent_coef_tensor if self.log_ent_coef is None else self.log_ent_coef.detach().exp()

    def _update_all(self, batch: ReplayBufferSamples) -> Metrics:
        """Update entropy weight, critics, beta and policy, in SB3's order of random numbers."""
        action, log_prob = self.actor.action_log_prob(batch.observations)
        log_prob, alpha = log_prob.reshape(-1, 1), self.alpha  # the whole step uses alpha as it was before
        metrics = self._update_alpha(log_prob.detach()) | {"train/ent_coef": alpha.squeeze()}
        critic_metrics, values, target = self._update_critics(batch, alpha)
        metrics |= critic_metrics | self.pessimism.update(values, target)
        policy_values = torch.stack(self.critic(batch.observations, action))  # [N, B, 1]
        loss = (alpha * log_prob - expectation(self.pessimism.actor_value(policy_values))).mean()
        _descend(self.actor.optimizer, loss)
        return metrics | {"train/actor_loss": loss.detach()}

    def _update_critics(self, batch: ReplayBufferSamples, alpha: Tensor) -> tuple[Metrics, Tensor, Tensor]:
        """Update the critics once; return metrics, their values before [N, B, 1] and the target [B, 1]."""
        self.pessimism.redraw()
        discount = (1 - batch.dones) * (self.gamma if batch.discounts is None else batch.discounts)  # [B, 1]
        with torch.no_grad():
            next_action, next_log_prob = self.actor.action_log_prob(batch.next_observations)
            next_values = torch.stack(self.critic_target(batch.next_observations, next_action))  # [N, B, 1]
        next_value = expectation(self.pessimism.target_value(next_values))  # [B, 1]
        soft_value = next_value - alpha * next_log_prob.reshape(-1, 1)
        target = batch.rewards + discount * soft_value  # with a graph to beta where it is learned
        values = torch.stack(self.critic(batch.observations, batch.actions))  # [N, B, 1]
        loss = squared_td_loss(values, target.detach())
        _descend(self.critic.optimizer, loss)
        return {"train/critic_loss": loss.detach()}, values.detach(), target

    def _update_alpha(self, log_prob: Tensor) -> Metrics:
        """Move the entropy weight towards the target entropy, where it is learned."""
        if self.ent_coef_optimizer is None or self.log_ent_coef is None:
            return {}
        loss = -(self.log_ent_coef * (log_prob + float(self.target_entropy))).mean()
        _descend(self.ent_coef_optimizer, loss)
        return {"train/ent_coef_loss": loss.detach()}

    def learn(  # noqa: PLR0917 (SB3's signature)
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str = "GPLSAC",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train as SB3 does; TensorBoard shows the run under the name GPLSAC."""
        return super().learn(
            total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar
        )

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, BaseCallback]:  # noqa: ANN401
        self.tracks = Tracks(self.n_envs)
        return super()._setup_learn(*args, **kwargs)

    def _store_transition(  # noqa: PLR0917 (SB3's signature)
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: NDArray[Any],
        new_obs: Any,  # noqa: ANN401
        reward: NDArray[Any],
        dones: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        if type(self.pessimism).episode_finished is not Pessimism.episode_finished:
            self._follow_episodes(buffer_action, new_obs, reward, dones, infos)
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)

    def _follow_episodes(
        self,
        action: NDArray[Any],
        new_obs: Any,  # noqa: ANN401
        reward: NDArray[Any],
        dones: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Pass finished episodes on to a strategy that learns from them."""
        assert self.env is not None
        view, normalizer = AgentView(self, self.env), self._vec_normalize_env
        if normalizer is not None:  # the view normalizes by itself
            new_obs, reward = normalizer.get_original_obs(), normalizer.get_original_reward()
            infos = [_with_original_end(info, normalizer) for info in infos]
        obs, taken = view.flat(self._last_original_obs if normalizer else self._last_obs), torch.as_tensor(action)
        on_policy = self.num_timesteps > self.learning_starts
        log_prob = view.log_prob(obs, taken)
        self.tracks.add(obs, taken, log_prob, view.normalized_reward(reward), on_policy=on_policy)
        for _, episode in self.tracks.finished(view.flat(new_obs), dones, infos, view):
            hindsight = None
            if episode.on_policy:
                hindsight = look_back(
                    view, episode, discount=self.gamma, tail=TAIL, generator=torch.default_generator
                )
            for name, value in self.pessimism.episode_finished(episode, hindsight).items():
                self.logger.record_mean(name, value.item())

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "tracks"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        state_dicts, variables = super()._get_torch_save_params()
        return [*state_dicts, "pessimism"], variables


def _validated(values: Mapping[str, Any], members: int) -> StrategySettings:
    try:
        settings: StrategySettings = TypeAdapter(AnyStrategy).validate_python(values)
        settings.check_critics(members)
        if getattr(settings, "holds_out", 0):
            raise UserError(f"{settings.name} needs held-out transitions, which SB3's replay buffers do not keep")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "name"
        raise UserError(f"pessimism: {where}: {first['msg']}") from None
    except ValueError as error:
        raise UserError(str(error).replace("critic.members", "n_critics")) from None
    return settings


def _with_original_end(info: dict[str, Any], normalizer: VecNormalize) -> dict[str, Any]:
    """Return the information of a step with the observation that ended an episode as the environment gave it."""
    end = info.get("terminal_observation")
    return info if end is None else info | {"terminal_observation": normalizer.unnormalize_obs(end)}


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
