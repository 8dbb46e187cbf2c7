"""The bias of the critics: what they predict against what then happens, over whole episodes (paper, App. B.1).

The bias of a state-action pair is the critics' mean estimate minus the soft return that followed,

    G_t = r_t + gamma (G_{t+1} - alpha log pi(a_{t+1} | s_{t+1})),

with the agent's current entropy weight alpha: positive means over-estimation. It is measured on episodes of the
meter's own, and on the training episodes, which cost nothing more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from pessimism.strategies.base import RecentEpisodes
from pessimism.training.evaluate import OwnEpisodes
from pessimism.training.state import stream, stream_seed
from pessimism.types import Agent, Episode, Hindsight
from pessimism.values import Values, expectation, joined

NORMALISER_FLOOR = 10.0  # REDQ's: errors of small returns are not blown up
IMAGES_AT_ONCE = 64  # the first convolution of 64 images takes 14 MB
TRAINING_STEPS, TRAINING_EPISODES, MOST_EPISODES = 1000, 4, 64  # of the bias of the training episodes


class Critics(Protocol):
    """What looking back needs of an agent."""

    @property
    def alpha(self) -> Tensor:
        """Weight of the entropy."""

    def target_action(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return an action of the policy that the critics evaluate [B, act], and its log-probability [B, 1]."""

    def values(self, obs: Tensor, action: Tensor) -> Values:
        """Return the critics' estimates: [N, B, K]."""


def soft_returns(episode: Episode, alpha: float, discount: float, tail_value: float) -> Tensor:
    """Return G_t for every step of the episode: [T], double.

    `tail_value` is the soft value of the state after the last step, 0 where the episode terminated.
    """
    returns = []
    following = tail_value
    steps = list(zip(episode.reward.tolist(), episode.log_prob.tolist(), strict=True))
    for reward, log_prob in reversed(steps):
        returns.append(reward + discount * following)
        following = returns[-1] - alpha * log_prob  # the step before counts this action's entropy
    return torch.tensor(returns[::-1], dtype=torch.float64)


def look_back(
    critics: Critics, episode: Episode, *, discount: float, tail: float, generator: torch.Generator
) -> Hindsight:
    """Compare predictions and observations over an episode.

    A time limit hides the rest of the return, and the critics' own estimate completes it: the bias of a
    state is then measured too small by the share gamma**(T-t). States for which that is more than `tail`
    are not counted. Where an episode is too short to leave any, all its states are.
    """
    alpha, length = float(critics.alpha), len(episode.reward)
    weight = discount ** torch.arange(length, 0, -1, dtype=torch.float64)  # of what follows the end: [T]
    counted = weight <= (1.0 if episode.terminated else tail)
    if not counted.any():
        counted = torch.ones(length, dtype=torch.bool)
    tail_value = 0.0 if episode.terminated else _soft_value(critics, episode.last_obs, alpha, generator)
    returns = soft_returns(episode, alpha, discount, tail_value)
    size = IMAGES_AT_ONCE if episode.obs.dim() > 2 else length
    parts = zip(episode.obs.split(size), episode.action.split(size), strict=True)
    values = joined([critics.values(obs, action) for obs, action in parts])  # [N, T, K]
    return Hindsight(values, returns, counted)


def _soft_value(critics: Critics, obs: Tensor, alpha: float, generator: torch.Generator) -> float:
    action, log_prob = critics.target_action(obs[None], generator)
    return float(expectation(critics.values(obs[None], action)).mean()) - alpha * float(log_prob)


class Bias(NamedTuple):
    """Bias over all measured state-action pairs.

    Attributes:
        mean: mean of prediction minus observed soft return; positive is over-estimation
        std: its standard deviation over the pairs
        normalized_mean: mean of the bias divided by max(|return|, 10), as REDQ reports it
        normalized_std: its standard deviation
        value: mean prediction
        soft_return: mean observation
        states: number of pairs
        bootstrapped: share of pairs whose return ends in the critics' own estimate
    """

    mean: float
    std: float
    normalized_mean: float
    normalized_std: float
    value: float
    soft_return: float
    states: int
    bootstrapped: float

    def metrics(self) -> dict[str, float]:
        """Return the numbers under their names in the logs."""
        return {f"bias/{name}": float(value) for name, value in self._asdict().items()}


def measure(
    agent: Critics, episodes: Sequence[Episode], *, discount: float, tail: float, generator: torch.Generator
) -> Bias:
    """Compare predictions and observations over whole episodes; see `look_back` for time limits."""
    seen = [look_back(agent, one, discount=discount, tail=tail, generator=generator) for one in episodes]
    observed = torch.cat([one.returns[one.counted] for one in seen])  # [states]
    error = torch.cat([one.error for one in seen])
    completed = [
        len(one.returns)
        for one, episode in zip(seen, episodes, strict=True)
        if not episode.terminated and one.counted.all()
    ]
    normalized = error / observed.abs().clamp(min=NORMALISER_FLOOR)
    return Bias(
        mean=float(error.mean()),
        std=float(error.std(correction=0)),
        normalized_mean=float(normalized.mean()),
        normalized_std=float(normalized.std(correction=0)),
        value=float((observed + error).mean()),
        soft_return=float(observed.mean()),
        states=len(error),
        bootstrapped=sum(completed) / len(error),
    )


@dataclass
class BiasMeter(OwnEpisodes):
    """Runs episodes of the policy that the critics evaluate, on environments of its own, and measures the bias.

    A noisy policy (DrQ-v2) explores with more noise than its critics learn about: their targets clip it.
    """

    setting = "bias.limit"

    tail: float = field(kw_only=True)
    discount: float = field(kw_only=True)

    def __call__(self, agent: Agent, step: int) -> Bias:
        """Measure; the result is a function of the agent, the seed and the step alone."""
        seeds = [stream_seed(self.seed, "bias", step, index) for index in range(self.episodes)]
        generator = stream(self.seed, "bias-policy", step)
        episodes = self.run(seeds, lambda obs: agent.target_action(obs, generator))
        return measure(agent, episodes, discount=self.discount, tail=self.tail, generator=generator)


@dataclass(kw_only=True)
class TrainingBias:
    """The bias of the newest training episodes whose actions were all the policy's."""

    tail: float
    discount: float
    seed: int
    recent: RecentEpisodes = field(init=False, default_factory=lambda: RecentEpisodes(MOST_EPISODES))

    def add(self, agent: Agent, episode: Episode, number: int) -> Hindsight | None:
        """Measure a finished episode; None where some of its actions were random."""
        if not episode.on_policy:
            return None
        generator = stream(self.seed, "training-bias", number)  # of the action that a cut return ends in
        hindsight = look_back(agent, episode, discount=self.discount, tail=self.tail, generator=generator)
        self.recent.add(hindsight)
        return hindsight

    def metrics(self) -> dict[str, float]:
        """Return the mean over the newest 1000 steps, 4 episodes or more, and its standard error."""
        if self.recent.count < 2:
            return {}
        now = self.recent.newest(self.recent.reaching(TRAINING_STEPS, TRAINING_EPISODES))
        return {"bias/training": now.bias, "bias/training_se": now.standard_error}
