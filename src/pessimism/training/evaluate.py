"""Whole episodes on environments of their own: deterministic evaluation here, the bias meter in `bias`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from pessimism.envs.control import ControlEnv, EnvFactory
from pessimism.errors import UserError
from pessimism.training.state import stream_seed
from pessimism.types import Agent, Episode

PolicyFunction = Callable[[Tensor], tuple[Tensor, Tensor]]
"""[B, obs] -> action [B, act] and its log-probability [B, 1]."""
EPISODE_LIMIT = 20_000  # steps
TRIED_STEPS = 5  # that show whether an environment repeats itself


def run_episodes(
    envs: Sequence[ControlEnv],
    seeds: Sequence[int],
    policy: PolicyFunction,
    *,
    keep_obs: bool = True,
    limit: int = EPISODE_LIMIT,
) -> list[Episode]:
    """Run one episode in each environment, in lockstep: the policy computes all actions in one call.

    Finished episodes keep their place in the batch: the numbers of one do not depend on the others' lengths.
    An episode of `limit` steps is cut there, as by a time limit: an environment may have none.
    Without `keep_obs` the observations are dropped: those of ten episodes of 500 images are 0.3 GB.
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
            if step.terminated or step.truncated or len(tracks[index]) == limit:
                running.remove(index)
        obs = next_obs
    return [_episode(track, obs[i], terminated[i]) for i, track in enumerate(tracks)]


@dataclass
class OwnEpisodes:
    """Episodes on environments of their own, which are made at their first use."""

    setting: ClassVar[str]  # the name of the limit's setting

    make_env: EnvFactory
    episodes: int
    seed: int
    limit: int = EPISODE_LIMIT
    say: Callable[[str], None] = lambda line: None
    envs: list[ControlEnv] = field(init=False, default_factory=list)
    said: bool = field(init=False, default=False)  # whether the limit was reported

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise UserError(f"{self.episodes} episodes cannot be run: 1 or more are needed")

    def opened(self, count: int) -> list[ControlEnv]:
        """Return so many environments."""
        while len(self.envs) < count:
            self.envs.append(self.make_env())
        return self.envs[:count]

    def repeats(self, seed: int) -> bool:
        """Play a few random steps twice from one seed, and return whether they were the same."""
        (env,) = self.opened(1)
        first, second = (_tried(env, seed) for _ in range(2))
        return first == second

    def run(self, seeds: Sequence[int], policy: PolicyFunction, *, keep_obs: bool = True) -> list[Episode]:
        """Run an episode for each seed; the first time that one is cut at the limit, say so."""
        episodes = run_episodes(self.opened(len(seeds)), seeds, policy, keep_obs=keep_obs, limit=self.limit)
        cut = sum(len(episode.reward) >= self.limit and not episode.terminated for episode in episodes)
        if cut and not self.said:
            self.said = True
            self.say(f"{cut} episodes had no end after {self.limit} steps and were cut there (--{self.setting})")
        return episodes


def _episode(track: list[tuple[Tensor, Tensor, Tensor, float]], last: Tensor, terminated: bool) -> Episode:
    obs, action, log_prob, reward = zip(*track, strict=True)
    rewards = torch.tensor(reward, dtype=torch.float64)
    return Episode(torch.stack(obs), torch.stack(action), torch.stack(log_prob), rewards, last.clone(), terminated)


def _tried(env: ControlEnv, seed: int) -> list[tuple[bytes, float]]:
    draw = torch.Generator().manual_seed(seed)
    seen = [(env.reset(seed).tobytes(), 0.0)]
    for _ in range(TRIED_STEPS):
        step = env.step(2 * torch.rand(env.action_size, generator=draw).numpy() - 1)
        seen.append((step.obs.tobytes(), step.reward))
        if step.terminated or step.truncated:
            break
    return seen


class Evaluation(NamedTuple):
    """One evaluation.

    Attributes:
        returns: return of each episode
        lengths: steps of each episode
    """

    returns: list[float]
    lengths: list[int]

    def metrics(self) -> dict[str, float]:
        """Return the evaluation under SB3's names."""
        returns = torch.tensor(self.returns, dtype=torch.float64)
        return {
            "eval/mean_reward": float(returns.mean()),
            "eval/std_reward": float(returns.std(correction=0)),
            "eval/mean_ep_length": sum(self.lengths) / len(self.lengths),
        }


class Evaluator(OwnEpisodes):
    """Evaluates an agent; the result is a function of the agent, the seed and the step alone."""

    setting = "evaluation.limit"

    def __call__(self, agent: Agent, step: int) -> Evaluation:
        """Run the episodes that belong to this environment step."""
        seeds = [stream_seed(self.seed, "evaluation", step, index) for index in range(self.episodes)]
        no_log_prob = torch.zeros(self.episodes, 1)
        episodes = self.run(seeds, lambda obs: (agent.mode(obs), no_log_prob), keep_obs=False)
        return Evaluation([episode.score for episode in episodes], [len(e.reward) for e in episodes])
