"""What critics predict against what then happens, over whole episodes (paper, App. B.1).

The bias of a state-action pair is the critics' mean estimate minus the soft return that followed,

    G_t = r_t + gamma (G_{t+1} - alpha log pi(a_{t+1} | s_{t+1})),

with the entropy weight alpha that the agent uses at this moment: positive means over-estimation.
"""

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from pessimism.types import Episode, Hindsight
from pessimism.values import Values, expectation, joined

IMAGES_AT_ONCE = 64  # the first convolution of 64 images takes 14 MB


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


class Estimate(NamedTuple):
    """Means over the states of the newest episodes."""

    bias: float
    standard_error: float  # of the bias; inf with fewer than two episodes
    sensitivity: float  # how far the bias falls for each unit of beta
    steps: int  # how far back the oldest of these episodes begins


class RecentEpisodes(nn.Module):
    """The newest episodes, of which four numbers each are kept.

    Each episode is measured once, at its end: its return is compared with the critics of that time, not with
    critics that have since seen better policies. All state is one buffer.
    """

    rows: Tensor

    def __init__(self, capacity: int) -> None:
        super().__init__()
        # steps, counted states, sum of their errors, sum of their sensitivities; newest last, empty rows 0
        self.register_buffer("rows", torch.zeros(capacity, 4, dtype=torch.float64, device="cpu"))

    def add(self, hindsight: Hindsight, sensitivity: Tensor | None = None) -> None:
        """Keep an episode; `sensitivity` [T] is how far a unit of beta lowers each settled prediction."""
        error, counted = hindsight.error, hindsight.counted
        slope = 0.0 if sensitivity is None else float(sensitivity[counted].sum())
        row = self.rows.new_tensor([len(counted), len(error), float(error.sum()), slope])
        self.rows.copy_(torch.cat([self.rows[1:], row[None]]))

    @property
    def count(self) -> int:
        """How many episodes there are."""
        return int((self.rows[:, 0] > 0).sum())

    def reaching(self, steps: float, fewest: int = 1) -> int:
        """Return how many of the newest episodes have so many steps together, or all, and `fewest` at least."""
        lengths = self.rows[:, 0].flip(0).cumsum(0)
        return max(fewest, int((lengths < steps).sum()) + 1)

    def newest(self, episodes: int) -> Estimate:
        """Return the means over so many of the newest episodes.

        States of one episode share its luck, so the standard error counts episodes (that of a ratio of sums
        over clusters).
        """
        rows = self.rows[-min(episodes, self.count) :]
        steps, states, error, slope = rows.sum(0).tolist()
        bias = error / states
        deviation = rows[:, 2] - bias * rows[:, 1]
        size = len(rows)
        spread = math.sqrt(size / (size - 1) * float(deviation.square().sum())) / states if size > 1 else math.inf
        return Estimate(bias, spread, slope / states, int(steps))
