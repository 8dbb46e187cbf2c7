"""Settings of an algorithm's parts: critics, the rule that reads them, and a learned model.

Torch-free. Each default stands with its source, and each bad combination that one part can see by
itself is refused here; what concerns several parts is refused in `config`.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

PAPER = "paper, Table of GPL-SAC hyper-parameters"
AUTHOR = "author's later code; the paper is silent"
QUANTILES = "paper, App. D.6"
REDQ = "Chen et al., 2021 (REDQ)"
TOP = "Moskovitz et al., 2021 (TOP), released code"
MBPO = "Janner et al., 2019 (MBPO), released code"
DRQ = "Yarats et al., 2022 (DrQ-v2), released code"
HERE = "this library"


def setting(default: Any, text: str, source: str = HERE, **limits: Any) -> Any:  # noqa: ANN401
    """Declare a field: its default, its help text, and where the default comes from."""
    return Field(default, description=text, json_schema_extra={"source": source}, **limits)


class Settings(BaseModel):
    """Base of all settings: frozen, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CriticSettings(Settings):
    """The ensemble of critics."""

    form: Literal["residual", "plain"] = setting(
        "residual", "one residual block with LayerNorm and spectral norm, or two hidden layers", PAPER
    )
    members: int = setting(10, "N, number of critics", PAPER, ge=1, le=1000)
    hidden: int = setting(256, "width of the hidden layers", PAPER, ge=1)
    spectral: Literal["projection", "reparameterised", "none"] = setting(
        "projection", "form of the spectral norm in the residual block", AUTHOR
    )
    atoms: int = setting(1, "quantiles of the return per critic; 1: its mean alone", PAPER, ge=1, le=1000)
    kappa: float = setting(1.0, "where the quantiles' Huber loss turns linear", QUANTILES, gt=0)
    scale: float = setting(0.5, "factor of the squared errors in the critics' loss", AUTHOR, gt=0)


class PenaltySettings(Settings):
    """What all penalties share: the measure of disagreement, and pessimism annealing."""

    measure: Literal["wasserstein1", "wasserstein2", "std"] = setting(
        "wasserstein1", "mean pairwise distance of the critics, or their standard deviation", "paper, Eqn. 6"
    )
    optimism: float = setting(0.0, "lambda_opt at the start: the actor's beta is beta - lambda_opt", "paper 4.3")
    optimism_steps: int = setting(50_000, "environment steps over which lambda_opt decays to 0", "paper 6", ge=1)


class LearnedPenaltySettings(PenaltySettings):
    """GPL: mean - beta W, with beta learned by dual TD-learning."""

    name: Literal["learned"] = "learned"
    beta: float = setting(0.5, "initial beta", PAPER)
    lr: float = setting(
        1e-4, "learning rate of beta", "paper's text and author's code; the paper's table says 0.1", gt=0
    )
    beta1: float = setting(0.5, "Adam's beta1 for beta", PAPER, ge=0, lt=1)


class SquaredBiasSettings(PenaltySettings):
    """GPL's ablation E2E: beta descends the squared bias through the target."""

    name: Literal["squared-bias"] = "squared-bias"
    beta: float = setting(0.5, "initial beta", PAPER)
    lr: float = setting(1e-4, "learning rate of beta", "as dual TD-learning; the paper is silent", gt=0)
    beta1: float = setting(0.5, "Adam's beta1 for beta", "as dual TD-learning; the paper is silent", ge=0, lt=1)
    square: Literal["transitions", "expectation"] = setting(
        "transitions", "square each transition's bias, as the equation, or their expectation", "paper, App. D.2"
    )


class FixedPenaltySettings(PenaltySettings):
    """Mean - beta W, with a constant beta."""

    name: Literal["fixed"] = "fixed"
    beta: float = setting(0.5, "beta; 0.5 is the clipped minimum for N = 2", "paper, App. A.3")


class BanditSettings(PenaltySettings):
    """TOP: mean - beta W, with beta drawn for each episode by a bandit."""

    name: Literal["bandit"] = "bandit"
    arms: tuple[float, ...] = setting(
        (0.0, math.sqrt(2)), "values of beta to choose from", "paper, App. D.2", min_length=2, max_length=1000
    )
    lr: float = setting(0.1, "learning rate of the played arm's weight", TOP, gt=0)
    decay: float = setting(0.9, "share of its weight that a played arm keeps", TOP, ge=0, le=1)
    window: int = setting(5, "episodes whose feedback normalises the newest", TOP, ge=2)


class MinimumSettings(Settings):
    """Clipped double Q-learning: the lowest critic."""

    name: Literal["minimum"] = "minimum"


class SubsetMinimumSettings(Settings):
    """REDQ: the lowest of a random subset for the target, the mean for the actor."""

    name: Literal["subset-minimum"] = "subset-minimum"
    subset: float = setting(2.0, "M, critics per draw; a fraction draws one more that often", REDQ, ge=1)


PessimismSettings = Annotated[
    LearnedPenaltySettings
    | SquaredBiasSettings
    | FixedPenaltySettings
    | BanditSettings
    | MinimumSettings
    | SubsetMinimumSettings,
    Field(discriminator="name"),
]


class ModelSettings(Settings):
    """MBPO: a learned model of the task whose short rollouts the agent learns from."""

    members: int = setting(7, "networks in the model's ensemble", MBPO, ge=1)
    elites: int = setting(5, "best of them that make rollouts", MBPO, ge=1)
    hidden: int = setting(200, "width of the model's four hidden layers", MBPO, ge=1)
    lr: float = setting(1e-3, "learning rate of the model (Adam)", MBPO, gt=0)
    batch_size: int = setting(256, "transitions per update of the model", MBPO, ge=1)
    holdout: float = setting(0.2, "share of the data that tells when to stop", MBPO, gt=0, lt=1)
    holdout_limit: int = setting(5000, "most transitions held out", MBPO, ge=1)
    patience: int = setting(5, "epochs without an improvement of 1% before fitting stops", MBPO, ge=0)
    train_every: int = setting(250, "environment steps between fits", MBPO, ge=1)
    rollouts: int = setting(100_000, "branches from real states after each fit", MBPO, ge=1)
    schedule: tuple[int, int, int, int] = setting(
        (20, 150, 1, 1), "rollout length goes from the third to the fourth between two epochs", MBPO
    )
    epoch_steps: int = setting(1000, "environment steps of an epoch", MBPO, ge=1)
    retain_epochs: int = setting(1, "epochs whose rollouts are kept", MBPO, ge=1)
    real_ratio: float = setting(0.05, "share of real transitions in a batch", MBPO, ge=0, le=1)

    @model_validator(mode="after")
    def _consistent(self) -> "ModelSettings":
        if self.elites > self.members:
            raise ValueError(f"{self.elites} elites cannot be chosen from {self.members} members")
        first, last, shortest, longest = self.schedule
        if not (0 <= first <= last and shortest >= 1 and longest >= 1):
            raise ValueError("schedule is [first epoch, last epoch, length before, length after], lengths from 1")
        return self


class PixelSettings(Settings):
    """Observations are pictures: how they are taken, cut and encoded."""

    size: int = setting(84, "height and width of rendered pictures", DRQ, ge=21, le=512)
    stack: int = setting(3, "newest frames that an observation consists of", DRQ, ge=1, le=100)
    camera: int | None = setting(None, "camera that is rendered; empty: 2 for quadruped tasks, else 0", DRQ, ge=0)
    augmentation: Literal["shift", "crop", "none"] = setting(
        "shift", "random shift by up to 4 pixels, random crop of 84/100 of the size, or nothing", DRQ
    )
    filters: int = setting(32, "filters of each of the four convolutions", DRQ, ge=1)
    features: int = setting(50, "width of the trunks under policy and critics", DRQ, ge=1)
    squashed: bool = setting(True, "tanh at the end of the trunks", DRQ)
    centred: bool = setting(True, "pixels go from -0.5 to 0.5, not from 0 to 1", DRQ)
    convolutions: Literal["orthogonal", "delta-orthogonal"] = setting(
        "orthogonal", "first weights of the convolutions", DRQ
    )
    encoder_tau: float = setting(
        0.0,
        "share of encoder and trunk in their targets per update; 0: the target sees the encoder itself",
        DRQ,
        ge=0,
        le=1,
    )
    contrastive: bool = setting(False, "learn features by contrast too (CURL; needs encoder_tau)", DRQ)

    @model_validator(mode="after")
    def _contrast_has_a_target(self) -> "PixelSettings":
        if self.contrastive and not self.encoder_tau:
            raise ValueError(
                "pixels.contrastive compares with a target encoder: set pixels.encoder_tau, such as 0.05"
            )
        return self
