"""Whole episodes, several at a time, for evaluation and the bias meter."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pessimism.envs.gym import ControlEnv

Policy = Callable[[Tensor], tuple[Tensor, Tensor]]
"""[B, obs] -> action [B, act] and its log-probability [B, 1]."""


class Episode(NamedTuple):
    """One episode of T steps."""

    obs: Tensor  # [T, obs], or [T, 0] where they were not asked for
    action: Tensor  # [T, act]
    log_prob: Tensor  # [T]
    reward: Tensor  # [T], double
    last_obs: Tensor  # [obs]: after the last step
    terminated: bool  # False: cut by a time limit

    @property
    def score(self) -> float:
        """The undiscounted return."""
        return float(self.reward.sum())


def run_episodes(
    envs: Sequence[ControlEnv], seeds: Sequence[int], policy: Policy, *, keep_obs: bool = True
) -> list[Episode]:
    """Run one episode in each environment, in step, so that the policy is asked for all at once.

    Finished episodes keep their place in the batch: the numbers of one do not depend on the others' lengths.
    The observations of ten episodes of 500 steps are 0.3 GB of pictures, which a caller can do without.
    """
    obs = torch.stack([torch.from_numpy(env.reset(seed)) for env, seed in zip(envs, seeds, strict=True)])
    tracks: list[list[tuple[Tensor, Tensor, Tensor, float]]] = [[] for _ in envs]
    terminated = [False] * len(envs)
    running = set(range(len(envs)))
    while running:
        action, log_prob = policy(obs)
        next_obs = obs.clone()
        for index in sorted(running):
            step = envs[index].step(action[index].numpy())
            seen = obs[index] if keep_obs else obs.new_empty(0)
            tracks[index].append((seen, action[index], log_prob[index, 0], step.reward))
            next_obs[index] = torch.from_numpy(step.obs)
            terminated[index] = step.terminated
            if step.terminated or step.truncated:
                running.remove(index)
        obs = next_obs
    return [_episode(track, obs[i], terminated[i]) for i, track in enumerate(tracks)]


def _episode(track: list[tuple[Tensor, Tensor, Tensor, float]], last: Tensor, terminated: bool) -> Episode:
    obs, action, log_prob, reward = zip(*track, strict=True)
    rewards = torch.tensor(reward, dtype=torch.float64)
    return Episode(torch.stack(obs), torch.stack(action), torch.stack(log_prob), rewards, last.clone(), terminated)
