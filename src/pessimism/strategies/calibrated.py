"""Penalties whose beta follows the bias that was measured on the training episodes."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pessimism.strategies.base import Estimate, RecentEpisodes
from pessimism.strategies.penalty import FixedPenalty, no_optimism
from pessimism.types import Episode, Hindsight
from pessimism.values import Values, pairwise_distance

BETA_RANGE = (0.0, 5.0)
MOST_EPISODES = 64


def settled_sensitivity(disagreement: Tensor, discount: float, n_step: int = 1) -> Tensor:
    """Return how far a unit of beta lowers settled predictions: [T] -> [T].

    A target n steps ahead subtracts beta W there, and so does its own target:
    D_t = gamma**n (W_{t+n} + D_{t+n}), with nothing after the episode's end.
    """
    factor, penalties = discount**n_step, disagreement.tolist()
    found = [0.0] * (len(penalties) + n_step)
    penalties += [0.0] * n_step
    for t in range(len(disagreement) - 1, -1, -1):
        found[t] = factor * (penalties[t + n_step] + found[t + n_step])
    return torch.tensor(found[: len(disagreement)], dtype=torch.float64)


class CalibratedPenalty(FixedPenalty):
    """Mean - beta W, with beta raised while the critics over-estimate the returns of training episodes.

    At the end of each episode of n steps, over the newest episodes (a window of w steps), with b their mean
    bias, s its standard error and D how far a unit of beta lowers settled predictions:

        beta <- beta + gain n / (T + w) clip(b max(0, 1 - s**2 / b**2) / D, -1, 1).

    T = 1 / (tau (1 - gamma) U) is the number of environment steps in which critics follow their targets, of
    which `follow_rate` is the inverse. So beta moves at the pace of the loop's two delays, and no learning rate
    is set per task. A bias smaller than its standard error moves nothing. The window is short, `fewest`
    episodes or T / 4 steps: beta itself averages over a longer time, and what older episodes show has passed.
    Nothing is measured for the first `wait` x T steps: untrained critics are wrong for reasons that no beta
    can fix.
    """

    steps: Tensor

    def __init__(
        self,
        beta: float = 0.5,
        *,
        discount: float = 0.99,
        follow_rate: float = 1e-3,
        n_step: int = 1,
        gain: float = 1.0,
        wait: float = 1.0,
        fewest: int = 4,
        optimism: Callable[[int], float] = no_optimism,
        disagreement: Callable[[Values], Tensor] = pairwise_distance,
        actor_share: float = 1.0,
    ) -> None:
        super().__init__(beta, optimism=optimism, disagreement=disagreement, actor_share=actor_share)
        self.discount, self.delay, self.n_step = discount, 1 / follow_rate, n_step
        self.gain, self.wait, self.fewest = gain, wait, fewest
        self.recent = RecentEpisodes(max(fewest, MOST_EPISODES))
        self.register_buffer("steps", torch.zeros((), dtype=torch.float64, device="cpu"))  # of all episodes so far

    def episode_finished(self, episode: Episode, hindsight: Hindsight | None) -> dict[str, Tensor]:
        """Measure the episode and move beta."""
        if hindsight is None:
            return {}
        length = len(hindsight.returns)
        self.steps.add_(length)
        if self.steps < self.wait * self.delay:
            return {}
        distance = self.disagreement(hindsight.values).mean(dim=-1)  # [T]
        self.recent.add(hindsight, settled_sensitivity(distance, self.discount, self.n_step))
        now = self.recent.newest(self.recent.reaching(self.delay / 4, self.fewest))
        if self.recent.count >= self.fewest:
            pace = self.gain * length / (self.delay + now.steps)
            self.beta.add_(pace * wanted_change(now)).clamp_(*BETA_RANGE)
        return {
            "calibration/bias": torch.tensor(now.bias),
            "calibration/sensitivity": torch.tensor(now.sensitivity),
        }


def wanted_change(now: Estimate) -> float:
    """Return the change of beta that would undo the bias as far as it is known, at most 1."""
    if not (now.standard_error < abs(now.bias) and now.sensitivity > 0):
        return 0.0
    certain = 1 - (now.standard_error / now.bias) ** 2  # James and Stein's factor
    return max(-1.0, min(1.0, certain * now.bias / now.sensitivity))


class ACCPenalty(FixedPenalty):
    """ACC's rule (Dorka et al., 2022) on beta: steps of fixed size along the normalised bias.

    Every `every` steps, from environment step `start` on, with d the mean bias of the episodes of the newest
    `window` steps:

        m <- 0.95 m + 0.05 |d|,   beta <- clip(beta + lr d / m, 0, 5).

    ACC moves the number of dropped quantiles, in the same range. Its returns have no entropy term, no completed
    tail, and are compared with the critics of the moment of the step; here both sides are soft, as the
    critics' targets are, and each episode is compared once, with the critics at its end.
    """

    step: Tensor
    since: Tensor
    scale: Tensor

    def __init__(
        self,
        beta: float = 0.5,
        *,
        lr: float = 0.1,
        start: int = 25_000,
        every: int = 1000,
        window: int = 5000,
        decay: float = 0.05,
        optimism: Callable[[int], float] = no_optimism,
        disagreement: Callable[[Values], Tensor] = pairwise_distance,
        actor_share: float = 1.0,
    ) -> None:
        super().__init__(beta, optimism=optimism, disagreement=disagreement, actor_share=actor_share)
        self.lr, self.start, self.every, self.window, self.decay = lr, start, every, window, decay
        self.recent = RecentEpisodes(window)  # an episode has a step at least
        for name in ("step", "since", "scale"):  # environment step, steps since the last change, m
            self.register_buffer(name, torch.zeros((), dtype=torch.float64, device="cpu"))

    def advance(self, step: int) -> None:
        """Remember the step."""
        super().advance(step)
        self.step.fill_(step)

    def episode_finished(self, episode: Episode, hindsight: Hindsight | None) -> dict[str, Tensor]:
        """Keep the episode, and move beta when it is time."""
        if hindsight is None:
            return {}
        self.recent.add(hindsight)
        self.since.add_(len(hindsight.returns))
        if self.step >= self.start and self.since >= self.every:
            self.since.zero_()
            bias = self.recent.newest(self.recent.reaching(self.window)).bias
            mean = abs(bias) if self.scale == 0 else (1 - self.decay) * float(self.scale) + self.decay * abs(bias)
            self.scale.fill_(mean)
            self.beta.add_(self.lr * bias / max(mean, math.ulp(1.0))).clamp_(*BETA_RANGE)
        return {}
