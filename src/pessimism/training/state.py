"""The state of a run beside its agent and replay: random streams, the running episode, means of metrics."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pessimism.types import Array, Episode, Metrics, Observation

LONGEST_MEASURED = 5000  # steps: of longer episodes the observations are not kept, and no bias is measured


def stream_seed(seed: int, name: str, *indices: int) -> int:
    """Return the seed of a named stream, and of its part number `indices` (such as an episode)."""
    entropy = [seed, zlib.crc32(name.encode()), *indices]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def stream(seed: int, name: str, *indices: int) -> torch.Generator:
    """Return the generator of a named stream."""
    return torch.Generator().manual_seed(stream_seed(seed, name, *indices))


class Streams:
    """The random streams that agent and replay of a run are built with."""

    def __init__(self, seed: int) -> None:
        self.weights, self.model_weights = stream_seed(seed, "weights"), stream_seed(seed, "model")
        self.update, self.replay = stream(seed, "update"), stream(seed, "replay")
        self.pessimism = stream(seed, "pessimism")


def generator_states(generators: Mapping[str, torch.Generator]) -> dict[str, Tensor]:
    """Return the state of each random stream under its name."""
    return {f"generator.{name}": generator.get_state() for name, generator in generators.items()}


def load_generators(generators: Mapping[str, torch.Generator], tensors: Mapping[str, Tensor]) -> None:
    """Set each random stream back."""
    for name, generator in generators.items():
        generator.set_state(tensors[name])


class Trace(NamedTuple):
    """An episode as a checkpoint holds it: enough to play it again and to see whether it is the same."""

    number: int  # which seeds it
    actions: Sequence[Array]
    total: float  # the sum of its rewards
    checksum: int  # of all observations but the last
    last: Observation
    over: bool

    def tensors(self, action_size: int) -> dict[str, Tensor]:
        """Return what a checkpoint stores as tensors."""
        actions = np.array(self.actions, dtype=np.float32).reshape(-1, action_size)
        return {"episode.actions": torch.from_numpy(actions), "episode.last": torch.from_numpy(self.last)}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint stores as text."""
        return {"number": self.number, "total": self.total, "checksum": self.checksum, "over": self.over}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], state: dict[str, Any]) -> "Trace":
        """Return the trace that a checkpoint holds."""
        actions = list(tensors["episode.actions"].numpy())
        return cls(actions=actions, last=tensors["episode.last"].numpy(), **state)

    def same(self, other: "Trace") -> bool:
        """Return whether two traces are of the same episode."""
        return (self.total, self.checksum, self.over) == (other.total, other.checksum, other.over) and bool(
            np.array_equal(self.last, other.last)
        )


@dataclass
class Progress:
    """Where a run is, and the running episode: its number, which seeds it, and its steps so far."""

    step: int = 0
    episode: int = 0
    actions: list[Array] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)  # of the actions; 0 where they were random
    episode_return: float = 0.0
    rewards: list[float] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)  # before each action, up to LONGEST_MEASURED
    checksum: int = 0  # of all observations before actions

    def add(self, obs: Observation, reward: float) -> None:
        """Add a step: the observation before it, and its reward."""
        self.episode_return += reward
        self.rewards.append(reward)
        self.checksum = zlib.crc32(np.ascontiguousarray(obs).tobytes(), self.checksum)
        if len(self.observations) < LONGEST_MEASURED:
            self.observations.append(obs)

    def trace(self, last: Observation, *, over: bool) -> Trace:
        """Return what is needed to play the episode again."""
        return Trace(self.episode, self.actions, self.episode_return, self.checksum, last, over)

    def finished(self, last_obs: Observation, *, terminated: bool, random_steps: int) -> Episode:
        """Return the episode, which has just ended."""
        return Episode(
            obs=torch.from_numpy(np.stack(self.observations)),
            action=torch.from_numpy(np.stack(self.actions)),
            log_prob=torch.tensor(self.log_probs, dtype=torch.float64),
            reward=torch.tensor(self.rewards, dtype=torch.float64),
            last_obs=torch.from_numpy(last_obs),
            terminated=terminated,
            on_policy=self.step - len(self.actions) >= random_steps,
        )


class Averages:
    """Running means of metrics, kept as tensors: reading them would wait for the device."""

    def __init__(self) -> None:
        self.sums: dict[str, torch.Tensor] = {}
        self.counts: dict[str, int] = {}

    def add(self, metrics: Metrics) -> None:
        """Take the metrics of one update."""
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value.double()
            self.counts[name] = self.counts.get(name, 0) + 1

    def means(self) -> dict[str, float]:
        """Return the means so far."""
        return {name: float(total) / self.counts[name] for name, total in self.sums.items()}

    def take(self) -> dict[str, float]:
        """Return the means and start again."""
        means = self.means()
        self.sums, self.counts = {}, {}
        return means

    def state(self) -> dict[str, list[float]]:
        """Return sums and counts for a checkpoint."""
        return {name: [float(total), self.counts[name]] for name, total in self.sums.items()}

    def load(self, state: Mapping[str, Sequence[float]]) -> None:
        """Take sums and counts back."""
        self.sums = {name: torch.tensor(total, dtype=torch.float64) for name, (total, _) in state.items()}
        self.counts = {name: int(count) for name, (_, count) in state.items()}
