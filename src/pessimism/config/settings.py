"""Settings of an algorithm's parts: critics, a learned model, image observations.

Torch-free. Each default stands with its source. What a single value may be is said here, and checked between
values in `schema`.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pessimism.config.choices import Augmentation, CriticForm

PAPER = "paper, Table of GPL-SAC hyper-parameters"
ALGORITHM_1 = "paper, Alg. 1"
AUTHOR = "author's later code; the paper does not say"
QUANTILES = "paper, App. D.6"
REDQ = "Chen et al., 2021 (REDQ)"
TOP = "Moskovitz et al., 2021 (TOP), released code"
MBPO = "Janner et al., 2019 (MBPO), released code"
DRQ = "Yarats et al., 2022 (DrQ-v2), released code"
XQC = "Palenicek et al., 2025 (XQC), released code"
DROQ = "Hiraoka et al., 2022 (DroQ), released code"
RLPD = "Ball et al., 2023 (RLPD), released code"
ACC = "Dorka et al., 2022 (ACC), released code"
HERE = "this library"
MOST = 10**15  # of any number: more steps than a run can have, and exact in JSON, YAML and float64
MOST_THREADS = 1024
WIDEST = 65_536  # of a layer


def setting(default: Any, text: str, source: str = HERE, **limits: Any) -> Any:  # noqa: ANN401
    """Declare a field: its default, its help text, and where the default comes from."""
    return Field(default, description=text, json_schema_extra={"source": source}, **limits)


class Settings(BaseModel):
    """Base of all settings: frozen, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CriticSettings(Settings):
    """The ensemble of critics."""

    form: CriticForm = setting(
        "residual",
        "one residual block with LayerNorm and spectral norm (residual), two hidden layers (plain), the same with "
        "dropout and LayerNorm (droq), or four with BatchNorm and weights of length 1 (xqc)",
        PAPER,
    )
    members: int = setting(10, "N, number of critics", PAPER, ge=1, le=1000)
    hidden: int = setting(256, "width of the hidden layers", PAPER, ge=1, le=WIDEST)
    spectral: Literal["projection", "reparameterised", "none"] = setting(
        "projection", "form of the spectral norm in the residual block", AUTHOR
    )
    atoms: int = setting(1, "atoms of the return per critic; 1: its mean alone", PAPER, ge=1, le=1000)
    support: tuple[float, float] | None = setting(
        None, "lowest and highest atom of a categorical head; empty: atoms are equally likely quantiles", PAPER
    )
    dropout: float = setting(0.01, "share of units that the form droq drops; 0: LayerNorm alone", DROQ, ge=0, lt=1)
    kappa: float = setting(1.0, "where the quantiles' Huber loss turns linear", QUANTILES, gt=0)
    scale: float = setting(0.5, "factor of the squared errors in the critics' loss", AUTHOR, gt=0)


class ModelSettings(Settings):
    """MBPO: a learned model of the task whose short rollouts the agent learns from."""

    members: int = setting(7, "networks in the model's ensemble", MBPO, ge=1)
    elites: int = setting(5, "best of them that make rollouts", MBPO, ge=1)
    hidden: int = setting(200, "width of the model's four hidden layers", MBPO, ge=1, le=WIDEST)
    lr: float = setting(1e-3, "learning rate of the model (Adam)", MBPO, gt=0)
    batch_size: int = setting(256, "transitions per update of the model", MBPO, ge=1)
    holdout: float = setting(0.2, "share of the data that is held out to decide when to stop", MBPO, gt=0, lt=1)
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


class PixelSettings(Settings):
    """Image observations: how they are rendered, cropped and encoded."""

    size: int = setting(84, "height and width of rendered images", DRQ, ge=21, le=512)
    stack: int = setting(3, "newest frames that an observation consists of", DRQ, ge=1, le=100)
    camera: int | None = setting(None, "camera that is rendered; empty: 2 for quadruped tasks, else 0", DRQ, ge=0)
    augmentation: Augmentation = setting(
        "shift", "random shift by up to 4 pixels, random crop of 84/100 of the size, or nothing", DRQ
    )
    filters: int = setting(32, "filters of each of the four convolutions", DRQ, ge=1, le=4096)
    features: int = setting(50, "width of the trunks under policy and critics", DRQ, ge=1, le=4096)
    squashed: bool = setting(True, "tanh at the end of the trunks", DRQ)
    centred: bool = setting(True, "scale pixels to -0.5 .. 0.5 instead of 0 .. 1", DRQ)
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
