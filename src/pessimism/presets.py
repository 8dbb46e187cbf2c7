"""The algorithms: each is a name for settings, with where they come from."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pessimism.config import Config, field_info, leaves, merge, unfolded, validated
from pessimism.errors import UserError, nearest
from pessimism.settings import DRQ, HERE, MBPO
from pessimism.tasks import DMC_EASY, DMC_HARD, canonical, task_name

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
        return self.changes | self.tasks.get(canonical(env or "") or task_name(env or ""), {})


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

PIXELS: Changes = {
    "action_repeat": 2,
    "critic.form": "plain",
    "critic.members": 2,
    "critic.hidden": 1024,
    "hidden": 1024,
    "initialisation": "unit-orthogonal",
    "actor_clip": 0.0,
    "tau": 0.01,
    "steps": 1_500_000,
    "log.every": 500,
    "evaluation.every": 5000,
    "evaluation.episodes": 10,
    "bias.every": 25_000,
    "checkpoint.every": 5000,
}
DRQ_V2: Changes = PIXELS | {
    "pixels.augmentation": "shift",
    "update_every": 2,
    "updates_per_step": 1,
    "n_step": 3,
    "random_steps": 2000,
    "lr": 1e-4,
    "policy": "noisy",
    "noise": (1.0, 0.1, 500_000),
    "alpha": 0.0,
    "critic.scale": 1.0,
}
SAC_AE: Changes = PIXELS | {
    "pixels.augmentation": "none",
    "pixels.centred": False,
    "pixels.convolutions": "delta-orthogonal",
    "pixels.encoder_tau": 0.05,
    "update_every": 2,
    "updates_per_step": 2,
    "average_with": "policy",
    "random_steps": 1000,
    "batch_size": 128,
    "lr": 1e-3,
    "alpha": 0.1,
    "critic.scale": 1.0,
    "pessimism.name": "minimum",
}


def drq_tasks(shift: Changes) -> dict[str, Changes]:
    """Return DrQ-v2's changes by task; `shift` names what decays together with the noise."""
    tasks: dict[str, Changes] = {}
    for names, steps, decay in ((DMC_EASY, 550_000, 100_000), (DMC_HARD, 15_050_000, 2_000_000)):
        clock = {"steps": steps, "noise": (1.0, 0.1, decay)} | dict.fromkeys(shift, decay)
        tasks |= dict.fromkeys(names, clock)
    for name in ("dmc/walker-stand", "dmc/walker-walk", "dmc/walker-run"):
        tasks[name] = tasks.get(name, {}) | {"n_step": 1, "batch_size": 512}
    for name in DMC_HARD:
        tasks[name] = tasks[name] | {"lr": 8e-5, "pixels.features": 100}
    return tasks | {"dmc/quadruped-run": {"replay_capacity": 100_000}}


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
    "drqv2": Preset(
        "from pixels: DrQ-v2, a noisy policy, 3-step returns, random shifts, 2 critics and their minimum",
        f"paper, Table of GPL-DrQ hyper-parameters; {DRQ}",
        DRQ_V2 | {"pessimism.name": "minimum"},
        drq_tasks({}),
    ),
    "gpl-drq": Preset(
        "from pixels: DrQ-v2 with learned pessimism",
        "paper, Sec. 5.2 and Table of GPL-DrQ hyper-parameters",
        DRQ_V2,
        drq_tasks({}),
    ),
    "gpl-drq-anneal": Preset(
        "from pixels: GPL-DrQ whose policy starts out more optimistic, as long as the noise decays",
        "paper, Sec. 5.2 and Table of GPL-DrQ hyper-parameters",
        DRQ_V2 | {"pessimism.optimism": 0.5, "pessimism.optimism_steps": 500_000},
        drq_tasks({"pessimism.optimism_steps": 0}),
    ),
    "gpl-drq-top": Preset(
        "from pixels: GPL-DrQ with beta drawn for each episode by TOP's bandit",
        "paper, App. D.2, with the bandit of Moskovitz et al., 2021",
        DRQ_V2 | {"pessimism.name": "bandit"},
        drq_tasks({}),
    ),
    "curl": Preset(
        "from pixels: SAC with features learned by contrast of two crops",
        "Laskin et al., 2020 (CURL), released code",
        SAC_AE
        | {
            "pixels.size": 100,
            "pixels.augmentation": "crop",
            "pixels.squashed": False,
            "pixels.contrastive": True,
            "replay_capacity": 100_000,
        },
    ),
    "sac-pixels": Preset(
        "from pixels: SAC whose encoder learns from the critics alone",
        "Yarats et al., 2021 (SAC-AE), released code without the decoder",
        SAC_AE,
    ),
}

PIXEL_PRESETS = [name for name, one in PRESETS.items() if "pixels.augmentation" in one.changes]
STATE_PRESETS = [name for name in PRESETS if name not in PIXEL_PRESETS]


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
