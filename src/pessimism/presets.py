"""The algorithms: each is a name for settings, with where they come from."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pessimism.config import Config, field_info, leaves, merge, unfolded, validated
from pessimism.errors import UserError, nearest
from pessimism.settings import HERE, MBPO

Changes = dict[str, Any]
"""Dotted name of a setting -> value."""


class Preset(NamedTuple):
    """What an algorithm changes of the defaults, which are GPL-SAC's."""

    summary: str
    source: str
    changes: Changes
    tasks: dict[str, Changes] = {}  # noqa: RUF012 (read only): further changes by task, without its version

    def on(self, env: str | None) -> Changes:
        """Return the changes for a task."""
        return self.changes | self.tasks.get((env or "").rpartition("-v")[0], {})


TWIN: Changes = {"critic.form": "plain", "critic.members": 2, "pessimism.name": "fixed", "pessimism.beta": 0.5}
XAVIER: Changes = {
    "initialisation": "xavier",
    "log_std": "clamped",
    "actor_clip": 0.0,
    "alpha_lr": 3e-4,
    "alpha_beta1": 0.9,
}
QUANTILES: Changes = {"critic.atoms": 10, "critic.kappa": 1.0}
WIDE: Changes = {"model.train_every": 1000, "model.retain_epochs": 5, "model.hidden": 400}

PRESETS = {
    "gpl-sac": Preset("SAC with learned pessimism: 10 residual critics, 20 updates per step", "paper, Alg. 1", {}),
    "gpl-sac-anneal": Preset(
        "GPL-SAC whose policy starts out more optimistic: pessimism annealing",
        "paper 4.3 and App. D.3",
        {"pessimism.optimism": 0.5, "pessimism.optimism_steps": 50_000},
    ),
    "gpl-sac-e2e": Preset(
        "GPL-SAC with beta on the gradient of the squared bias instead of dual TD-learning",
        "paper, App. D.2",
        {"pessimism.name": "squared-bias"},
    ),
    "gpl-sac-top": Preset(
        "GPL-SAC with beta drawn for each episode by TOP's bandit",
        "paper, App. D.2, with the bandit of Moskovitz et al., 2021",
        {"pessimism.name": "bandit"},
    ),
    "gpl-qr-sac": Preset("GPL-SAC with 10 quantiles per critic, Wasserstein-1", "paper, App. D.6", QUANTILES),
    "gpl-qr-sac-w2": Preset(
        "GPL-SAC with 10 quantiles per critic, Wasserstein-2",
        "paper, App. D.6",
        QUANTILES | {"pessimism.measure": "wasserstein2"},
    ),
    "sac-20": Preset(
        "SAC with 20 updates per step: 2 plain critics, their minimum", "paper, App. B.2, SAC-20", TWIN
    ),
    "sac": Preset(
        "SAC with one update per step: 2 plain critics, their minimum",
        "Haarnoja et al., 2018, in the implementation of SAC-20",
        TWIN | {"updates_per_step": 1},
    ),
    "redq": Preset(
        "10 plain critics, targets from the minimum of a random pair",
        "paper, Sec. 5.1; Chen et al., 2021, with their networks",
        XAVIER | {"critic.form": "plain", "pessimism.name": "subset-minimum"},
    ),
    "mbpo": Preset(
        "SAC on short rollouts of a learned model (Ant and Humanoid: positions and velocities only)",
        f"paper, Sec. 5.1; {MBPO}",
        TWIN | XAVIER | {"updates_per_step": 20, "policy_every": 1, "model.real_ratio": 0.05},
        {
            "Hopper": {"model.schedule": (20, 150, 1, 15)},
            "HalfCheetah": {"updates_per_step": 40},
            "Ant": {"model.schedule": (20, 100, 1, 25), "observation": "truncated"},
            "Humanoid": WIDE | {"model.schedule": (20, 300, 1, 25), "observation": "truncated"},
            "InvertedPendulum": {
                "updates_per_step": 10,
                "model.schedule": (1, 15, 1, 1),
                "model.epoch_steps": 250,
            },
        },
    ),
}


def preset(name: str) -> Preset:
    """Return a preset by its name, or say which ones there are."""
    if name not in PRESETS:
        raise UserError(f"unknown algorithm {name}{nearest(name, PRESETS) or ': see pessimism list'}")
    return PRESETS[name]


def preset_values(name: str, env: str | None = None) -> dict[str, Any]:
    """Return the preset's settings for a task as nested values, without the environment itself."""
    values = Config(env="any", algorithm=name).model_dump(exclude={"env"})
    return merge(values, unfolded(preset(name).on(env)))


def resolved(name: str, asked: Mapping[str, Any]) -> Config:
    """Return the config of an algorithm with the nested values asked for, its environment among them."""
    values = preset_values(name, str(asked.get("env")))
    return validated(merge(values, {**asked, "algorithm": name}))


def sources(config: Config, task_source: str) -> dict[str, str]:
    """Return where each setting's value comes from."""
    chosen = PRESETS.get(config.algorithm, Preset("", HERE, {}))
    changes = chosen.on(config.env)
    found: dict[str, str] = {}
    for path, value in leaves(config):
        _, source, default = field_info(config, path)
        if path == "target_entropy":
            found[path] = task_source
        elif changes.get(path, object()) == value:
            found[path] = chosen.source
        else:
            found[path] = source if value == default else "asked for"
    return found
