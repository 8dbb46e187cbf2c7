"""The strategies: how the critics' estimates are read. Each entry names the class that implements it.

To add a strategy, write its class in a module of `strategies/` and its entry here. The entry's fields are the
arguments of the class; `training.build.build_strategy` says which other arguments a class may ask for.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Union

from pydantic import Field

from pessimism.config.choices import Measure
from pessimism.config.settings import ACC, HERE, PAPER, REDQ, TOP, Settings, setting

E2E_OPTIMIZER = "as dual TD-learning; paper, App. D.2: standard gradient descent, no rate"


class StrategySettings(Settings):
    """Base of all entries."""

    implementation: ClassVar[str]  # its class, as module:name
    fewest_critics: ClassVar[int] = 1
    learns_from_episodes: ClassVar[bool] = False  # its task must have a time limit
    holds_out: ClassVar[float] = 0.0  # share of transitions that no critic is fitted to, unless asked otherwise

    name: str

    def check_critics(self, members: int) -> None:
        """Raise ValueError if the strategy cannot read so many critics."""
        if members < self.fewest_critics:
            few = f"critic.members = {members} has no disagreement to weigh"
            raise ValueError(f"{few}: take {self.fewest_critics} or more critics")


class PenaltySettings(StrategySettings):
    """What all penalties share: the measure of disagreement, and pessimism annealing."""

    fewest_critics = 2

    measure: Measure = setting(
        "wasserstein1", "mean pairwise distance of the critics, or their standard deviation", "paper, Eqn. 6"
    )
    optimism: float = setting(0.0, "lambda_opt at the start: the actor's beta is beta - lambda_opt", "paper 4.3")
    optimism_steps: int = setting(50_000, "environment steps over which lambda_opt decays to 0", "paper 6", ge=1)
    actor_share: float = setting(
        1.0, "share of beta that the policy's values are lowered by; 0: it climbs the critics' mean", PAPER, ge=0
    )
    samples: int = setting(
        1, "M, dropout masks that targets and policy read each critic under (critic.form droq)", ge=1, le=1000
    )

    def check_critics(self, members: int) -> None:
        """Raise ValueError if a single estimate leaves no disagreement."""
        super().check_critics(members * self.samples)


class LearnedPenaltySettings(PenaltySettings):
    """GPL: mean - beta W, with beta learned by dual TD-learning."""

    implementation = "pessimism.strategies.penalty:LearnedPenalty"

    name: Literal["learned"] = "learned"
    beta: float = setting(0.5, "initial beta", PAPER)
    lr: float = setting(
        1e-4, "learning rate of beta", "paper's text and author's code; the paper's table says 0.1", gt=0
    )
    beta1: float = setting(0.5, "Adam's beta1 for beta", PAPER, ge=0, lt=1)


class SquaredBiasSettings(PenaltySettings):
    """GPL's ablation E2E: beta descends the squared bias through the target."""

    implementation = "pessimism.strategies.penalty:SquaredBiasPenalty"

    name: Literal["squared-bias"] = "squared-bias"
    beta: float = setting(0.5, "initial beta", PAPER)
    lr: float = setting(1e-4, "learning rate of beta", E2E_OPTIMIZER, gt=0)
    beta1: float = setting(0.5, "Adam's beta1 for beta", E2E_OPTIMIZER, ge=0, lt=1)
    square: Literal["transitions", "expectation"] = setting(
        "transitions", "square each transition's bias, as the equation, or their expectation", "paper, App. D.2"
    )


class FixedPenaltySettings(PenaltySettings):
    """Mean - beta W, with a constant beta."""

    implementation = "pessimism.strategies.penalty:FixedPenalty"

    name: Literal["fixed"] = "fixed"
    beta: float = setting(0.5, "beta; 0.5 is the clipped minimum for N = 2", "paper, App. A.3")


class BanditSettings(PenaltySettings):
    """TOP: mean - beta W, with beta drawn for each episode by a bandit."""

    implementation = "pessimism.strategies.bandit:BanditPenalty"
    learns_from_episodes = True

    name: Literal["bandit"] = "bandit"
    arms: tuple[float, ...] = setting(
        (0.0, math.sqrt(2)), "values of beta to choose from", "paper, App. D.2", min_length=2, max_length=1000
    )
    lr: float = setting(0.1, "learning rate of the played arm's weight", TOP, gt=0)
    decay: float = setting(0.9, "share of its weight that a played arm keeps", TOP, ge=0, le=1)
    window: int = setting(5, "episodes whose feedback normalises the newest", TOP, ge=2)


class CalibratedSettings(PenaltySettings):
    """Mean - beta W, with beta moved by the bias measured on training episodes."""

    implementation = "pessimism.strategies.calibrated:CalibratedPenalty"
    learns_from_episodes = True

    name: Literal["calibrated"] = "calibrated"
    beta: float = setting(0.5, "initial beta", PAPER)
    gain: float = setting(1.0, "share of a bias that beta undoes in the time of the loop's delays", HERE, gt=0)
    wait: float = setting(1.0, "time constants of the critics before anything is measured", HERE, ge=0)
    fewest: int = setting(4, "newest episodes that are measured at least", HERE, ge=2, le=1000)

    def check_critics(self, members: int) -> None:
        """Raise ValueError for one critic: episodes are measured without dropout masks."""
        StrategySettings.check_critics(self, members)


class ACCSettings(PenaltySettings):
    """ACC's rule on beta: steps of fixed size along the normalised bias of training episodes."""

    implementation = "pessimism.strategies.calibrated:ACCPenalty"
    learns_from_episodes = True

    name: Literal["acc"] = "acc"
    beta: float = setting(0.5, "initial beta", PAPER)
    lr: float = setting(0.1, "step of beta for a bias of its usual size", ACC, gt=0)
    start: int = setting(25_000, "environment steps before beta moves", ACC, ge=0)
    every: int = setting(1000, "environment steps between moves", ACC, ge=1)
    window: int = setting(5000, "newest environment steps whose episodes are measured", ACC, ge=1)
    decay: float = setting(0.05, "weight of the newest bias in its usual size", ACC, gt=0, le=1)


class ValidationSettings(PenaltySettings):
    """Mean - beta W, with beta learned by dual TD-learning on transitions that no critic is fitted to."""

    implementation = "pessimism.strategies.penalty:ValidationPenalty"
    holds_out = 0.05

    name: Literal["validation"] = "validation"
    beta: float = setting(0.5, "initial beta", PAPER)
    lr: float = setting(1e-4, "learning rate of beta", "as dual TD-learning", gt=0)
    beta1: float = setting(0.5, "Adam's beta1 for beta", "as dual TD-learning", ge=0, lt=1)


class MinimumSettings(StrategySettings):
    """Clipped double Q-learning: the lowest critic."""

    implementation = "pessimism.strategies.minimum:ClippedMinimum"

    name: Literal["minimum"] = "minimum"


class SubsetMinimumSettings(StrategySettings):
    """REDQ: the lowest of a random subset for the target, the mean for the actor."""

    implementation = "pessimism.strategies.minimum:SubsetMinimum"

    name: Literal["subset-minimum"] = "subset-minimum"
    subset: float = setting(2.0, "M, critics per draw; a fraction draws one more that often", REDQ, ge=1)

    def check_critics(self, members: int) -> None:
        """Raise ValueError if there are fewer critics than are drawn."""
        if self.subset > members:
            raise ValueError(f"pessimism.subset = {self.subset:g} cannot be drawn from {members} critics")


def _entries(base: type[StrategySettings]) -> Iterator[type[StrategySettings]]:
    for entry in base.__subclasses__():
        if "implementation" in vars(entry):
            yield entry
        yield from _entries(entry)


STRATEGIES = {str(entry.model_fields["name"].default): entry for entry in _entries(StrategySettings)}

if TYPE_CHECKING:
    AnyStrategy = StrategySettings
else:
    AnyStrategy = Annotated[Union[tuple(STRATEGIES.values())], Field(discriminator="name")]  # noqa: UP007
