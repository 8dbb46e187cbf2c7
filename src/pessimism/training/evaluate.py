"""Deterministic evaluation on environments and a random stream of its own."""

from typing import NamedTuple

import torch

from pessimism.envs.control import EnvFactory
from pessimism.training.rollout import EPISODE_LIMIT, OwnEpisodes
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


class Evaluator(OwnEpisodes):
    """Evaluates an agent; the result is a function of the agent, the seed and the step alone."""

    setting = "evaluation.limit"

    def __init__(self, make_env: EnvFactory, episodes: int, seed: int, limit: int = EPISODE_LIMIT) -> None:
        super().__init__(make_env, episodes, limit)
        self.seed = seed

    def __call__(self, agent: Agent, step: int) -> Evaluation:
        """Run the episodes that belong to this environment step."""
        seeds = [stream_seed(self.seed, "evaluation", step, index) for index in range(self.episodes)]
        no_log_prob = torch.zeros(self.episodes, 1)
        episodes = self.run(seeds, lambda obs: (agent.mode(obs), no_log_prob), keep_obs=False)
        return Evaluation([episode.score for episode in episodes], [len(e.reward) for e in episodes])
