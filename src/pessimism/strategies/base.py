"""The interface between an agent and the way it reads its critics."""

import torch
from torch import Tensor, nn

from pessimism.types import Episode, Hindsight
from pessimism.values import Values, td_error


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

    def actor_value(self, values: Values) -> Values:
        """Return the value that the policy climbs."""
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
