"""The words that the layers share: batches, metrics, and what the loop needs of an agent and a replay."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pessimism.values import Values, expectation

Metrics = dict[str, Tensor]
"""Named 0-dimensional tensors. They become floats in a sink and nowhere earlier."""

Array = NDArray[np.float32]

Observation = Array | NDArray[np.uint8]
"""A state [obs], or a stack of images [stack, H, W, C] with the oldest first; below, `obs` stands for either."""


class Batch(NamedTuple):
    """Transitions with leading axes [B, ...], or [U, B, ...] for the U critic updates of one step."""

    obs: Tensor  # [.., B, obs]
    action: Tensor  # [.., B, act], in (-1, 1)
    reward: Tensor  # [.., B, 1]
    discount: Tensor  # [.., B, 1]: gamma**n, and 0 where the episode terminated
    next_obs: Tensor  # [.., B, obs]

    def at(self, index: int | slice) -> "Batch":
        """Return the batch of one critic update, or those of some: [U, B, ...] -> [B, ...] or [some, B, ...]."""
        return Batch(*(field[index] for field in self))


class Transition(NamedTuple):
    """One environment step. `terminated` stops the bootstrap; a time limit does not."""

    obs: Observation
    action: Array  # in (-1, 1)
    reward: float
    terminated: bool
    next_obs: Observation
    truncated: bool = False  # by a time limit


class Episode(NamedTuple):
    """A finished episode of T steps."""

    obs: Tensor  # [T, obs], or [T, 0] where they were not kept
    action: Tensor  # [T, act]
    log_prob: Tensor  # [T]: of the actions, under the policy that took them
    reward: Tensor  # [T], double
    last_obs: Tensor  # [obs]: after the last step
    terminated: bool  # False: cut by a time limit
    on_policy: bool = True  # False: some actions were uniformly random

    @property
    def score(self) -> float:
        """The undiscounted return."""
        return float(self.reward.sum())


class Hindsight(NamedTuple):
    """What the critics predict for the steps of a finished episode, and what then happened."""

    values: Values  # [N, T, K]: the critics' estimates, as they are at the end of the episode
    returns: Tensor  # [T], double: the soft return that followed each step
    counted: Tensor  # [T], bool: steps whose return is known; near a time limit it is not

    @property
    def error(self) -> Tensor:
        """Prediction minus observation of the counted steps, positive where too high: double."""
        return (expectation(self.values).mean(dim=(0, 2)).double() - self.returns)[self.counted]


class Replay(Protocol):
    """Where the loop puts transitions and takes batches from, and what a checkpoint asks of it.

    Transitions leave through `newest` and come back through `append_rows`; what else a replay has learned
    or made of them is its `state_dict`.
    """

    capacity: int
    generator: torch.Generator

    @property
    def added(self) -> int:
        """Transitions ever stored, or slots."""

    @property
    def file(self) -> Path | None:
        """Where the transitions are kept instead of in memory, for the time of the process."""

    @property
    def nbytes(self) -> int:
        """What the full replay takes, in memory or in `file`."""

    def state_bytes(self, steps: int) -> int:
        """Return what `state_dict` may take after so many environment steps, small parts not counted."""

    def add(self, transition: Transition) -> None:
        """Store one transition."""

    def sample(self, updates: int, batch_size: int) -> Batch:
        """Draw the batches of one environment step: fields [U, B, ...]."""

    def held_out(self, batch_size: int) -> Batch | None:
        """Draw a batch [B, ...] of transitions that `sample` never gives out; None where there are none."""

    def refresh(self, step: int, agent: "Agent") -> Metrics:
        """Prepare for the batches of environment step `step` (models are fitted and rolled out here)."""

    def newest(self, count: int) -> Tensor:
        """Return the last `count` transitions as rows."""

    def restart(self, added: int) -> None:
        """Forget all transitions; the next one is number `added`."""

    def cut(self, last: Observation) -> None:
        """End the running episode, as by a time limit, with the observation `last` after its last step."""

    def append_rows(self, rows: Tensor) -> None:
        """Take back rows that `newest` gave out."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return all state beside the transitions and the generator's, as tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> object:
        """Take the state back, after the transitions."""


class Agent(Protocol):
    """What the loop, the evaluation and the bias meter know of an agent."""

    @property
    def alpha(self) -> Tensor:
        """Weight of the entropy in the soft value, in the units of the task's rewards (0: there is none)."""

    def mode(self, obs: Tensor) -> Tensor:
        """Return the deterministic action: [B, obs] -> [B, act]."""

    def sample(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return an exploratory action [B, act] and its log-probability [B, 1]."""

    def target_action(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return an action of the policy that the critics evaluate, as `sample` does for the exploring one."""

    def values(self, obs: Tensor, action: Tensor) -> Values:
        """Return the critics' estimates, in the units of the task's rewards: [N, B, K]."""

    def observe(self, reward: float, ended: bool) -> None:
        """Called after every training step with its reward; `ended`: the episode is over."""

    def update(self, batch: Batch, step: int, *, policy: bool = True) -> Metrics:
        """Learn from batches [U, B, ...] of environment step `step`: U critic updates, then the policy or not."""

    def validate(self, batch: Batch) -> Metrics:
        """Measure the TD error on a batch [B, ...] that no critic is fitted to."""

    def episode_finished(self, episode: Episode, hindsight: Hindsight | None) -> Metrics:
        """Called at the end of a training episode; `hindsight` is None unless the policy chose every action."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that learning has changed, as tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> object:
        """Take the state back."""
