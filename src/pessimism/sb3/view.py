"""An SB3 agent as the bias meter sees it."""

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from pessimism.errors import UserError


class AgentView:
    """Policy and critics of an SB3 agent, on flat observations [B, obs], also where they are dicts or images.

    SB3's policies draw from torch's global random stream: the `generator` arguments are not used.
    """

    def __init__(self, model: OffPolicyAlgorithm, env: VecEnv) -> None:
        self.model, self.space = model, env.observation_space
        self.policy: Any = model.policy  # which networks it has depends on the algorithm
        parts = self.space.spaces if isinstance(self.space, spaces.Dict) else {"": self.space}
        self.shapes = {key: part.shape for key, part in parts.items() if part.shape is not None}
        self.types = {key: part.dtype for key, part in parts.items()}
        if len(self.shapes) < len(parts):
            raise UserError(f"BiasCallback reads arrays and dicts of arrays as observations, not {self.space}")

    @property
    def alpha(self) -> Tensor:
        """Entropy weight of SAC and its relatives, 0 for others."""
        learned = getattr(self.model, "log_ent_coef", None)
        fixed = getattr(self.model, "ent_coef_tensor", torch.zeros(()))
        return fixed.detach() if learned is None else learned.detach().exp()

    @torch.no_grad()
    def target_action(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return an action of the policy that the critics evaluate, [B, act], and its log-probability [B, 1]."""
        seen, none = self._seen(obs), torch.zeros(len(obs), 1)
        if isinstance(self.model.action_space, spaces.Discrete):
            return self._all_values(seen).argmax(dim=1, keepdim=True).cpu(), none
        actor = self.policy.actor
        if hasattr(actor, "action_log_prob"):
            action, log_prob = actor.action_log_prob(seen)
            return action.cpu(), log_prob.reshape(-1, 1).cpu()
        action = actor(seen)  # TD3 and DDPG: with the noise of their targets
        limit = getattr(self.model, "target_noise_clip", 0.0)
        noise = torch.randn_like(action) * getattr(self.model, "target_policy_noise", 0.0)
        return (action + noise.clamp(-limit, limit)).clamp(-1, 1).cpu(), none

    @torch.no_grad()
    def values(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the critics' estimates of the returns: [N, B, 1]."""
        seen = self._seen(obs)
        if isinstance(self.model.action_space, spaces.Discrete):
            return self._all_values(seen).cpu().gather(1, action)[None]
        found = self.policy.critic(seen, action.to(self.model.device))
        if isinstance(found, Tensor):  # TQC: [B, N, K]
            return found.mean(dim=2).T.unsqueeze(-1).cpu()
        return torch.stack(found).cpu()

    @torch.no_grad()
    def log_prob(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the log-probabilities [B, 1] of actions [B, act] in (-1, 1) under a stochastic policy."""
        actor = self.policy.actor
        mean, log_std, more = actor.get_action_dist_params(self._seen(obs))
        distribution = actor.action_dist.proba_distribution(mean, log_std, **more)
        return distribution.log_prob(action.to(self.model.device)).reshape(-1, 1).cpu()

    def in_env_units(self, action: Tensor) -> NDArray[Any]:
        """Return actions [B, act] as the environment takes them."""
        if isinstance(self.model.action_space, spaces.Discrete):
            return action[:, 0].numpy()
        return self.policy.unscale_action(action.numpy())

    def normalized_reward(self, reward: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return rewards as the critics learn them: divided by VecNormalize's deviation where there is one."""
        normalizer = self.model.get_vec_normalize_env()
        return reward if normalizer is None else normalizer.normalize_reward(reward)

    def flat(self, obs: Any) -> Tensor:  # noqa: ANN401
        """Return observations of several environments as [envs, obs]."""
        arrays = [np.asarray(obs[key] if key else obs) for key in self.shapes]
        return torch.cat([torch.as_tensor(one).reshape(len(one), -1).double() for one in arrays], dim=1)

    def flat_one(self, obs: Any) -> Tensor:  # noqa: ANN401
        """Return one observation as [obs]."""
        single = {key: np.asarray(one)[None] for key, one in obs.items()} if isinstance(obs, dict) else obs[None]
        return self.flat(single)[0]

    def _all_values(self, seen: Any) -> Tensor:  # noqa: ANN401
        """Return the values of all discrete actions: [B, actions]."""
        if hasattr(self.policy, "quantile_net"):  # QR-DQN: [B, K, actions]
            return self.policy.quantile_net(seen).mean(dim=1)
        return self.policy.q_net(seen)

    def _seen(self, obs: Tensor) -> Any:  # noqa: ANN401
        """Return flat observations as the networks take them: shaped, normalized, on the device."""
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        arrays = {
            key: piece.reshape(-1, *shape).numpy().astype(self.types[key])
            for (key, shape), piece in zip(self.shapes.items(), obs.split(sizes, dim=1), strict=True)
        }
        seen: Any = arrays if isinstance(self.space, spaces.Dict) else arrays[""]
        normalizer = self.model.get_vec_normalize_env()
        if normalizer is not None:
            seen = normalizer.normalize_obs(seen)
        return self.policy.obs_to_tensor(seen)[0]
