"""The bias meter: what the critics predict against what then happens (paper, App. B.1).

The bias of a state-action pair is the critics' mean estimate minus the soft return that followed,

    G_t = r_t + gamma (G_{t+1} - alpha log pi(a_{t+1} | s_{t+1})),

with the entropy weight alpha that the agent uses at this moment: positive means over-estimation.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from pessimism.envs.gym import ControlEnv, EnvFactory
from pessimism.training.rollout import Episode, run_episodes
from pessimism.training.seeding import stream, stream_seed
from pessimism.types import Agent

NORMALISER_FLOOR = 10.0  # REDQ's: errors of small returns are not blown up


class Bias(NamedTuple):
    """Bias over all measured state-action pairs."""

    mean: float
    std: float
    normalized_mean: float  # of bias / max(|G|, 10), as REDQ reports it
    normalized_std: float
    value: float  # mean prediction
    soft_return: float  # mean observation
    states: int
    bootstrapped: float  # share of states whose return ends in the critics' own estimate

    def metrics(self) -> dict[str, float]:
        """Return the numbers under their names in the logs."""
        return {f"bias/{name}": float(value) for name, value in self._asdict().items()}


def soft_returns(episode: Episode, alpha: float, discount: float, tail_value: float) -> Tensor:
    """Return G_t for every step of the episode: [T], double.

    `tail_value` is the soft value of the state after the last step, 0 where the episode terminated.
    """
    returns = torch.empty_like(episode.reward)
    following = tail_value
    for t in range(len(returns) - 1, -1, -1):
        returns[t] = following = float(episode.reward[t]) + discount * following
        following -= alpha * float(episode.log_prob[t])  # the step before sees this action's entropy
    return returns


def measure(
    agent: Agent, episodes: list[Episode], *, discount: float, tail: float, generator: torch.Generator
) -> Bias:
    """Compare predictions and observations over whole episodes.

    A time limit hides the rest of the return, and the critics' own estimate completes it: the bias of a
    state is then measured too small by the share gamma**(T-t). States for which that is more than `tail`
    are left out; where an episode is too short to leave any, all its states are kept, and `bootstrapped`
    tells how many they are.
    """
    alpha = float(agent.alpha)
    values, returns, bootstrapped = [], [], 0
    for episode in episodes:
        length = len(episode.reward)
        weight = discount ** torch.arange(length, 0, -1, dtype=torch.float64)  # of what follows: [T]
        keep = weight <= (1.0 if episode.terminated else tail)
        if not keep.any():
            keep, bootstrapped = torch.ones(length, dtype=torch.bool), bootstrapped + length
        tail_value = 0.0 if episode.terminated else _soft_value(agent, episode.last_obs, alpha, generator)
        values.append(agent.value(episode.obs, episode.action).squeeze(-1).double()[keep])
        returns.append(soft_returns(episode, alpha, discount, tail_value)[keep])
    value, observed = torch.cat(values), torch.cat(returns)  # [states]
    error = value - observed
    normalized = error / observed.abs().clamp(min=NORMALISER_FLOOR)
    return Bias(
        mean=float(error.mean()),
        std=float(error.std(correction=0)),
        normalized_mean=float(normalized.mean()),
        normalized_std=float(normalized.std(correction=0)),
        value=float(value.mean()),
        soft_return=float(observed.mean()),
        states=len(error),
        bootstrapped=bootstrapped / len(error),
    )


class BiasMeter:
    """Runs stochastic episodes on environments of its own and measures the bias on them."""

    def __init__(self, make_env: EnvFactory, episodes: int, tail: float, discount: float, seed: int) -> None:
        self.make_env, self.episodes, self.tail, self.discount = make_env, episodes, tail, discount
        self.seed = seed
        self.envs: list[ControlEnv] = []

    def __call__(self, agent: Agent, step: int) -> Bias:
        """Measure; the result is a function of the agent, the seed and the step alone."""
        self.envs = self.envs or [self.make_env() for _ in range(self.episodes)]
        seeds = [stream_seed(self.seed, "bias", step, index) for index in range(self.episodes)]
        generator = stream(self.seed, "bias-policy", step)
        episodes = run_episodes(self.envs, seeds, lambda obs: agent.sample(obs, generator))
        return measure(agent, episodes, discount=self.discount, tail=self.tail, generator=generator)


def _soft_value(agent: Agent, obs: Tensor, alpha: float, generator: torch.Generator) -> float:
    action, log_prob = agent.sample(obs[None], generator)
    return float(agent.value(obs[None], action) - alpha * log_prob)
