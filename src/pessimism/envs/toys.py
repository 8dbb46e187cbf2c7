"""Environments small enough for their values to be known exactly.

Importing this module registers them: `--env pessimism.envs.toys:pessimism-toys/Line-v0` trains on one.
"""

from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from pessimism.envs.control import ControlEnv, EnvFactory

Outcome = tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]
ACTIONS = spaces.Box(-1.0, 1.0, (1,), np.float32)


class Line(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """A point on [-1, 1] pushed left or right: s' = s + 0.2 a +- noise with even odds, reward -s'**2.

    Two-sided noise instead of a bell curve makes every expectation over the dynamics a sum of two terms.
    `reward_noise` is the standard deviation of what is added to the reward. The point stops at the ends;
    with `falls` the episode terminates there. `length` is the time limit.
    """

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = ACTIONS

    def __init__(
        self, *, length: int = 50, noise: float = 0.1, reward_noise: float = 0.0, falls: bool = False
    ) -> None:
        self.length, self.noise, self.reward_noise, self.falls = length, noise, reward_noise, falls

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start anywhere on the line."""
        super().reset(seed=seed)
        self.time, self.state = 0, float(self.np_random.uniform(-1, 1))
        return self._obs(), {}

    def step(self, action: NDArray[np.float32]) -> Outcome:
        """Push."""
        side = 1.0 if self.np_random.random() < 0.5 else -1.0
        moved = self.state + 0.2 * float(action[0]) + self.noise * side
        self.time, self.state = self.time + 1, min(max(moved, -1.0), 1.0)
        reward = -(self.state**2) + self.reward_noise * float(self.np_random.standard_normal())
        return self._obs(), reward, self.falls and abs(moved) > 1, self.time >= self.length, {}

    def _obs(self) -> NDArray[np.float32]:
        return np.array([self.state], dtype=np.float32)


class DrawnLine(gymnasium.ObservationWrapper[Any, Any, Any]):
    """`Line` seen as an image: a bright column where the point is."""

    def __init__(self, *, size: int = 24, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(Line(**kwargs))
        self.size = size
        self.observation_space = spaces.Box(0, 255, (size, size, 3), np.uint8)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Draw the point."""
        size = self.size
        image = np.zeros((size, size, 3), np.uint8)
        image[:, int((float(observation[0]) + 1) / 2 * (size - 1))] = 255
        return image


class Stochastic(Protocol):
    """What `LineValues` reads from an agent: its policy and its entropy weight."""

    @property
    def actor(self) -> Any:  # noqa: ANN401
        """Policy whose `sample(obs, noise)` returns the action for that noise and its log-probability."""

    @property
    def alpha(self) -> Tensor:
        """Weight of the entropy."""


class LineValues:
    """The soft values of an agent's policy on `Line`, by solving the soft Bellman equation on a grid.

    V is linear between the grid's points; the expectation over actions is a trapezoidal sum over the
    Gaussian noise behind them, which converges exponentially; that over the dynamics is exact.
    """

    def __init__(
        self, line: Line, agent: Stochastic, discount: float, *, states: int = 201, nodes: int = 161
    ) -> None:
        self.line, self.discount = line, discount
        self.grid = torch.linspace(-1, 1, states, dtype=torch.float64)
        noise = torch.linspace(-6, 6, nodes, dtype=torch.float64)
        weight = torch.exp(-0.5 * noise.square())
        weight /= weight.sum()
        with torch.no_grad():
            obs = self.grid.float().view(-1, 1, 1).expand(states, nodes, 1)
            action, log_prob = agent.actor.sample(obs, noise.float().view(1, -1, 1).expand(states, nodes, 1))
        reward, goes_on, index, share = self._outcomes(self.grid[:, None], action.squeeze(-1).double())
        entropy = -float(agent.alpha) * log_prob.squeeze(-1).double()
        known = ((reward.mean(0) + entropy) * weight).sum(-1)  # [states]
        chance = goes_on * weight / 2  # [2, states, nodes]: of each outcome, 0 where it ends the episode
        moves = torch.zeros(states, states, dtype=torch.float64)
        row = torch.arange(states)[None, :, None].expand_as(index)
        moves.index_put_((row, index), chance * (1 - share), accumulate=True)
        moves.index_put_((row, index + 1), chance * share, accumulate=True)
        self.values = torch.linalg.solve(torch.eye(states, dtype=torch.float64) - discount * moves, known)

    def __call__(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return Q(s, a), the first action's entropy not counted: 2 x [B, 1] -> [B, 1], double."""
        reward, goes_on, index, share = self._outcomes(obs.double(), action.double())
        following = self.values[index] * (1 - share) + self.values[index + 1] * share
        return (reward + self.discount * goes_on * following).mean(0)

    def _outcomes(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Both outcomes [2, ...]: mean reward, whether the episode continues, and the place on the grid."""
        moved = state + 0.2 * action + self.line.noise * torch.tensor([1.0, -1.0]).view(2, *[1] * action.dim())
        after = moved.clamp(-1, 1)
        goes_on = 1 - (moved.abs() > 1).double() if self.line.falls else torch.ones_like(moved)
        place = (after + 1) / 2 * (len(self.grid) - 1)
        index = place.floor().clamp(max=len(self.grid) - 2).long()
        return -after.square(), goes_on, index, place - index


class Constant(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Pays 1 for each of `length` steps, whatever the action; then it terminates, or a time limit cuts it."""

    action_space = ACTIONS

    def __init__(self, *, length: int = 3, terminates: bool = True) -> None:
        self.length, self.terminates = length, terminates
        self.observation_space = spaces.Box(0.0, float(length), (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start at time 0, which is all there is to observe."""
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: NDArray[np.float32]) -> Outcome:
        """Pay."""
        self.time += 1
        over, obs = self.time >= self.length, np.array([self.time], dtype=np.float32)
        return obs, 1.0, over and self.terminates, over and not self.terminates, {}


def constant_value(left: float, alpha: float, log_prob: float, discount: float) -> float:
    """Return the soft value of `Constant` with `left` rewards to come, inf if it never ends.

    sum_{k<left} gamma**k - alpha l sum_{1<=k<left} gamma**k for a policy of constant log-probability l.
    """
    total = (1 - discount**left) / (1 - discount)
    return total - alpha * log_prob * (total - 1)


def factory(env_class: Callable[..., gymnasium.Env[Any, Any]], **kwargs: Any) -> EnvFactory:  # noqa: ANN401
    """Return a factory of a toy with the interface that the loop uses."""
    return lambda: ControlEnv(env_class(**kwargs), getattr(env_class, "__name__", "toy"))


for _name in ("Line", "DrawnLine", "Constant"):
    gymnasium.register(f"pessimism-toys/{_name}-v0", entry_point=f"{__name__}:{_name}")
