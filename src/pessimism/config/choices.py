"""Settings whose values are names of our own code: which function or class implements each choice.

Adding a choice is one line here and the code that it names. The names are strings: settings are listed
and checked without loading torch; `implementation` loads what is named when an agent or environment is built.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

CRITIC_FORMS = {
    "residual": "nn.critic.residual_critic",
    "plain": "nn.critic.plain_critic",
    "xqc": "nn.backbones.XQCCritic",
    "droq": "nn.backbones.DroQCritic",
}
"""Functions of the number of inputs and, by name, of those settings of `critic` that they have use for."""

POLICY_FORMS = {
    "plain": "nn.actor.SquashedGaussianActor",
    "xqc": "nn.backbones.XQCActor",
}
"""Classes of the sizes of observations and actions, `hidden`, `log_std` and, where they have it, `momentum`."""

MEASURES = {
    "wasserstein1": "values.pairwise_distance",
    "wasserstein2": "values.pairwise_distance_w2",
    "std": "values.ensemble_spread",
}
"""Functions of an ensemble's estimates: [N, B, K] -> [B, 1] or [B, K]."""

AUGMENTATIONS = {
    "shift": "nn.encoder.random_shift",
    "crop": "nn.encoder.random_crop",
    "none": "nn.encoder.no_augmentation",
}
"""Functions of the size of the images."""


if TYPE_CHECKING:
    CriticForm = str
    PolicyForm = str
    Measure = str
    Augmentation = str
else:  # the types of settings that must be a name of their table
    CriticForm, PolicyForm, Measure, Augmentation = (
        Literal[tuple(table)] for table in (CRITIC_FORMS, POLICY_FORMS, MEASURES, AUGMENTATIONS)
    )


def implementation(path: str) -> Any:  # noqa: ANN401
    """Load the function or class at a dotted path below this package. Paths are constants of our own code."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"pessimism.{module}"), name)
