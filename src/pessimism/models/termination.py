"""When an imagined episode ends: the tasks' own conditions, as functions of the next observation.

MBPO is given them with a task. Conditions are those of the real environments: MBPO's released code bounds Hopper
on one side only.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pessimism.errors import UserError

Termination = Callable[[Tensor], Tensor]
"""Next observations [B, obs] -> whether they end the episode [B]."""


def hopper(obs: Tensor) -> Tensor:
    """Fallen: too low or too tilted, or a position or velocity out of bounds."""
    height, angle = obs[:, 0], obs[:, 1]
    return ~((height > 0.7) & (angle.abs() < 0.2) & (obs[:, 1:].abs() < 100).all(dim=-1))


def walker2d(obs: Tensor) -> Tensor:
    """Fallen: outside of the healthy heights or too tilted."""
    height, angle = obs[:, 0], obs[:, 1]
    return ~((height > 0.8) & (height < 2.0) & (angle.abs() < 1.0))


def ant(obs: Tensor) -> Tensor:
    """Outside of the healthy heights, bounds included, or no longer finite."""
    height = obs[:, 0]
    return ~((height >= 0.2) & (height <= 1.0) & obs.isfinite().all(dim=-1))


def humanoid(obs: Tensor) -> Tensor:
    """Outside of the healthy heights."""
    height = obs[:, 0]
    return ~((height > 1.0) & (height < 2.0))


def inverted_pendulum(obs: Tensor) -> Tensor:
    """Tilted by more than 0.2, or no longer finite."""
    return ~((obs[:, 1].abs() <= 0.2) & obs.isfinite().all(dim=-1))


def never(obs: Tensor) -> Tensor:
    """Never terminate (HalfCheetah)."""
    return torch.zeros(len(obs), dtype=torch.bool, device=obs.device)


TERMINATIONS: dict[str, Termination] = {
    "Hopper": hopper,
    "Walker2d": walker2d,
    "HalfCheetah": never,
    "Ant": ant,
    "Humanoid": humanoid,
    "InvertedPendulum": inverted_pendulum,
}
"""By task, without its version. A task of one's own takes part by an entry here."""


def termination(task: str) -> Termination:
    """Return a task's termination function."""
    if task not in TERMINATIONS:
        raise UserError(
            f"MBPO has no termination function for {task}, only for {', '.join(TERMINATIONS)}: "
            "add one to pessimism.models.termination.TERMINATIONS"
        )
    return TERMINATIONS[task]
