"""The interface between an agent and the way it reads its critics, and the memory of finished episodes."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pessimism.types import Episode, Hindsight
from pessimism.values import Values, td_error


class OrderedSum(NamedTuple):
    """A weighted sum of some critics' estimates, which are taken in ascending order."""

    members: Sequence[int]
    weights: Sequence[float]  # of the lowest first


class Pessimism(nn.Module):
    """Reads an ensemble's return estimates: values [N critics, B batch, K atoms] -> [B, K].

    An agent asks for `target_value` and `actor_value`, and reports what happens through the other methods.
    `generator` is the strategy's own random stream; whoever checkpoints a run keeps its state.
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.generator = generator or torch.Generator()

    def target_value(self, values: Values) -> Values:
        """Return the value that the TD target bootstraps from (values of the target critics)."""
        raise NotImplementedError

    def target_order(self, count: int) -> OrderedSum | None:
        """Return what `target_value` is for N critics with one atom, if it is a weighted sum of ordered estimates.

        All updates of an environment step can then be computed in C++ without a return to Python.
        """
        return None

    def __init_subclass__(cls, **options: Any) -> None:  # noqa: ANN401
        """A class with a `target_value` of its own does not inherit its parent's `target_order`."""
        super().__init_subclass__(**options)
        if "target_value" in vars(cls) and "target_order" not in vars(cls):
            cls.target_order = Pessimism.target_order  # type: ignore[method-assign]

    def actor_value(self, values: Values) -> Values:
        """Return the value that the policy ascends."""
        raise NotImplementedError

    def advance(self, step: int) -> None:
        """Called before the updates of an environment step (schedules)."""

    def redraw(self) -> None:
        """Called before each critic update (random choices, which its compiled graph cannot make)."""

    def update(self, values: Values, target: Values) -> dict[str, Tensor]:
        """Learn from the TD errors of the last critic update, once per policy update; return metrics.

        values [N, B, K] are detached; target [B, K] carries a graph to the strategy's own parameters.
        The mean TD error is what dual TD-learning takes for the bias (Eqn. 8).
        """
        return {"train/td_error": td_error(values, target).detach().mean()}

    def measured(self, values: Values) -> dict[str, Tensor]:
        """Return metrics of the estimates [N, B, K] alone."""
        return {}

    def validate(self, values: Values, target: Values) -> dict[str, Tensor]:
        """Learn from TD errors on transitions that no critic is fitted to, once per environment step."""
        return {"bias/validation_td": td_error(values, target).detach().mean()}

    def episode_finished(self, episode: Episode, hindsight: Hindsight | None) -> dict[str, Tensor]:
        """Called at the end of a training episode (bandits and calibrated rules learn here); return metrics.

        `hindsight` holds what the critics predicted for the episode and what then happened. It is None where
        the actions were not all the policy's.
        """
        return {}


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
