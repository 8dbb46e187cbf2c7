"""Episodes of SB3's agents, step by step, in the shape that strategies and the bias meter read."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pessimism.types import Episode


class Flattening(Protocol):
    """Makes vectors of observations."""

    def flat_one(self, obs: Any) -> Tensor:  # noqa: ANN401
        """Return one observation as [obs]."""


class Track:
    """The steps of a running episode."""

    def __init__(self) -> None:
        self.obs: list[Tensor] = []
        self.action: list[Tensor] = []
        self.log_prob: list[float] = []
        self.reward: list[float] = []
        self.on_policy = True

    def finished(self, last_obs: Tensor, *, terminated: bool) -> Episode:
        """Return the episode."""
        return Episode(
            obs=torch.stack(self.obs),
            action=torch.stack(self.action),
            log_prob=torch.tensor(self.log_prob, dtype=torch.float64),
            reward=torch.tensor(self.reward, dtype=torch.float64),
            last_obs=last_obs,
            terminated=terminated,
            on_policy=self.on_policy,
        )


class Tracks:
    """The running episodes of several environments."""

    def __init__(self, count: int, longest: int | None = None) -> None:
        self.running = [Track() for _ in range(count)]
        self.longest = longest  # steps after which an episode is cut

    def add(
        self, obs: Tensor, action: Tensor, log_prob: Tensor, reward: NDArray[np.float32], *, on_policy: bool = True
    ) -> None:
        """Add a step of each environment: observations [E, obs], actions [E, act], log-probabilities [E, 1]."""
        for index, track in enumerate(self.running):
            track.obs.append(obs[index])
            track.action.append(action[index])
            track.log_prob.append(float(log_prob[index]))
            track.reward.append(float(reward[index]))
            track.on_policy &= on_policy

    def finished(
        self, following: Tensor, done: NDArray[np.bool_], infos: list[dict[str, Any]], view: Flattening
    ) -> Iterator[tuple[int, Episode]]:
        """Yield the number of each environment whose episode has ended with this step, and the episode.

        `following` [E, obs] is what the environments show next, after a reset where an episode ended.
        """
        for index, track in enumerate(self.running):
            cut = self.longest is not None and len(track.reward) >= self.longest
            if not (done[index] or cut):
                continue
            last = view.flat_one(infos[index]["terminal_observation"]) if done[index] else following[index]
            terminated = bool(done[index]) and not infos[index].get("TimeLimit.truncated", False)
            yield index, track.finished(last, terminated=terminated)
            self.running[index] = Track()
