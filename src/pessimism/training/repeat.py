"""Whether an environment repeats itself: exact resume plays the newest episode again from its seed and actions."""

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pessimism.envs.control import ControlEnv
from pessimism.training.seeding import stream
from pessimism.types import Array, Observation

TRIED_STEPS = 5
NOT_REPEATED = (
    "the environment did not repeat its newest episode from its seed and actions, so that the run would not "
    "continue exactly: reset(seed=...) must decide everything. Nothing was changed; --resume inexact continues "
    "with a new episode"
)
DOES_NOT_REPEAT = (
    "the environment does not repeat itself: two episodes with the same seed and actions differ. This run cannot "
    "be resumed exactly; if it is interrupted, --resume inexact continues it with a new episode"
)


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
        """Tell whether two traces are of one episode."""
        return (self.total, self.checksum, self.over) == (other.total, other.checksum, other.over) and bool(
            np.array_equal(self.last, other.last)
        )


def continued(checksum: int, obs: Observation) -> int:
    """Return the checksum of observations with one more."""
    return zlib.crc32(np.ascontiguousarray(obs).tobytes(), checksum)


def repeats(env: ControlEnv, seed: int) -> bool:
    """Play a few random steps twice from one seed, and tell whether they were the same."""
    first, second = (_tried(env, seed) for _ in range(2))
    return first == second


def _tried(env: ControlEnv, seed: int) -> list[tuple[bytes, float]]:
    draw = stream(seed, "tried")
    seen = [(env.reset(seed).tobytes(), 0.0)]
    for _ in range(TRIED_STEPS):
        step = env.step(2 * torch.rand(env.action_size, generator=draw).numpy() - 1)
        seen.append((step.obs.tobytes(), step.reward))
        if step.terminated or step.truncated:
            break
    return seen
