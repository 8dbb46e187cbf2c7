"""Settings whose values are names of our own code: which function or class implements each choice.

Adding a choice is one line here and the code that it names. The names are strings: settings are listed
and checked without loading torch; `pkgutil.resolve_name` loads what is named when an agent or environment is built.
All of them are constants of our own code.
"""

from typing import TYPE_CHECKING, Literal

CRITIC_FORMS = {
    "residual": "pessimism.nn.critic:residual_critic",
    "plain": "pessimism.nn.critic:plain_critic",
    "xqc": "pessimism.nn.backbones:XQCCritic",
    "droq": "pessimism.nn.backbones:DroQCritic",
}
"""Functions of the number of inputs and, by name, of those settings of `critic` that they have use for."""

POLICY_FORMS = {
    "plain": "pessimism.nn.actor:SquashedGaussianActor",
    "xqc": "pessimism.nn.backbones:XQCActor",
}
"""Classes of the sizes of observations and actions, `hidden`, `log_std` and, where they have it, `momentum`."""

MEASURES = {
    "wasserstein1": "pessimism.values:pairwise_distance",
    "wasserstein2": "pessimism.values:pairwise_distance_w2",
    "std": "pessimism.values:ensemble_spread",
}
"""Functions of an ensemble's estimates: [N, B, K] -> [B, 1] or [B, K]."""

AUGMENTATIONS = {
    "shift": "pessimism.nn.encoder:random_shift",
    "crop": "pessimism.nn.encoder:random_crop",
    "none": "pessimism.nn.encoder:no_augmentation",
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
