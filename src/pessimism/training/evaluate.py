"""Deterministic evaluation on environments and a random stream of its own."""

from typing import NamedTuple

import torch

from pessimism.envs.gym import ControlEnv, EnvFactory
from pessimism.training.rollout import run_episodes
from pessimism.training.seeding import stream_seed
from pessimism.types import Agent


class Evaluation(NamedTuple):
    """Returns and lengths of the episodes of one evaluation."""

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


class Evaluator:
    """Evaluates an agent; the result is a function of the agent, the seed and the step alone."""

    def __init__(self, make_env: EnvFactory, episodes: int, seed: int) -> None:
        self.make_env, self.episodes, self.seed = make_env, episodes, seed
        self.envs: list[ControlEnv] = []

    def __call__(self, agent: Agent, step: int) -> Evaluation:
        """Run the episodes that belong to this environment step."""
        self.envs = self.envs or [self.make_env() for _ in range(self.episodes)]
        seeds = [stream_seed(self.seed, "evaluation", step, index) for index in range(self.episodes)]
        no_log_prob = torch.zeros(self.episodes, 1)
        episodes = run_episodes(self.envs, seeds, lambda obs: (agent.mode(obs), no_log_prob), keep_obs=False)
        return Evaluation([episode.score for episode in episodes], [len(e.reward) for e in episodes])
