"""The algorithms: each is a name for settings, with where they come from.

To add one, add its entry to PRESETS. Its command, its class in Python and its help are made from it.
"""

from typing import Any, NamedTuple

from pessimism.config.settings import DROQ, DRQ, HERE, MBPO, RLPD, XQC
from pessimism.config.tasks import DMC_EASY, DMC_HARD

Changes = dict[str, Any]
"""Dotted name of a setting -> value."""


class Preset(NamedTuple):
    """What an algorithm changes of the defaults, which are GPL-SAC's."""

    python: str  # name of its class in Python
    summary: str
    source: str
    changes: Changes
    tasks: dict[str, Changes] = {}  # noqa: RUF012 (read only): further changes by task, without its version
    sources: dict[str, str] = {}  # noqa: RUF012 (read only): of changes that do not come from `source`

    def text(self, indent: int = 0) -> str:
        """Return the docstring of its class."""
        return (
            f"{self.summary[0].upper()}{self.summary[1:]}.\n\n{' ' * indent}Source: {self.source}.\n{' ' * indent}"
        )


TWIN: Changes = {"critic.form": "plain", "critic.members": 2, "pessimism.name": "fixed", "pessimism.beta": 0.5}
XAVIER: Changes = {
    "initialisation": "xavier",
    "log_std": "clamped",
    "actor_clip": 0.0,
    "alpha_lr": 3e-4,
    "alpha_beta1": 0.9,
}
QUANTILES: Changes = {"critic.atoms": 10, "critic.kappa": 1.0}
XQC_NETWORKS: Changes = {
    "critic.form": "xqc",
    "critic.members": 2,
    "critic.hidden": 512,
    "critic.atoms": 101,
    "critic.support": (-5.0, 5.0),
    "policy_form": "xqc",
    "log_std": "clamped-10",
    "actor_clip": 0.0,
    "updates_per_step": 2,
    "policy_every": 3,
    "discount": 0.995,  # for episodes of 1000 steps, from a rule of XQC's
    "lr_end": 3e-5,
    "scale_rewards": True,
    "alpha": 0.01,
    "alpha_lr": 3e-4,
    "alpha_beta1": 0.9,
    "entropy_per_action": -0.5,
}
DROQ_NETWORKS: Changes = XAVIER | {"critic.form": "droq", "critic.members": 2, "critic.scale": 1.0}
RLPD_NETWORKS: Changes = XAVIER | {"critic.form": "droq", "critic.dropout": 0.0, "entropy_per_action": -0.5}
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


# Where the agents on pixels do not take their values from the publication that their preset names.
PIXEL_SOURCES = {
    "steps": "paper, Sec. 5.2: 3M frames",
    "evaluation.every": "paper, Sec. 5.2: every 10,000 frames",
    "evaluation.episodes": "paper, Sec. 5.2",
    "log.every": HERE,
    "bias.every": HERE,
    "checkpoint.every": HERE,
}
DRQ_SOURCES = PIXEL_SOURCES | {"alpha": f"{HERE}: the noisy policy has no entropy"}
SAC_AE_SOURCES = PIXEL_SOURCES | {
    "action_repeat": "the comparison in Yarats et al., 2022: 2 in all tasks; the original's depends on the task",
    "update_every": f"{HERE}: two updates every two steps, instead of one at each",
    "updates_per_step": f"{HERE}: two updates every two steps, instead of one at each",
}
# dmc2gym, through which the originals draw, uses camera 0 everywhere.
QUADRUPEDS: dict[str, Changes] = {
    f"dmc/quadruped-{task}": {"pixels.camera": 0} for task in ("run", "walk", "escape", "fetch")
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
    "gpl-sac": Preset(
        "GPLSAC", "SAC with learned pessimism: 10 residual critics, 20 updates per step", "paper, Alg. 1", {}
    ),
    "gpl-sac-anneal": Preset(
        "GPLSACAnneal",
        "GPL-SAC whose policy starts out more optimistic: pessimism annealing",
        "paper 4.3 and App. D.3",
        {"pessimism.optimism": 0.5, "pessimism.optimism_steps": 50_000},
    ),
    "gpl-sac-e2e": Preset(
        "GPLSACE2E",
        "GPL-SAC with beta on the gradient of the squared bias instead of dual TD-learning",
        "paper, App. D.2",
        {"pessimism.name": "squared-bias"},
    ),
    "gpl-sac-top": Preset(
        "GPLSACTOP",
        "GPL-SAC with beta drawn for each episode by TOP's bandit",
        "paper, App. D.2, with the bandit of Moskovitz et al., 2021",
        {"pessimism.name": "bandit"},
    ),
    "gpl-sac-calibrated": Preset(
        "GPLSACCalibrated",
        "GPL-SAC with beta moved by the bias that is measured on training episodes",
        "this library, docs/results.md",
        {"pessimism.name": "calibrated"},
    ),
    "gpl-qr-sac": Preset(
        "GPLQRSAC", "GPL-SAC with 10 quantiles per critic, Wasserstein-1", "paper, App. D.6", QUANTILES
    ),
    "gpl-qr-sac-w2": Preset(
        "GPLQRSACW2",
        "GPL-SAC with 10 quantiles per critic, Wasserstein-2",
        "paper, App. D.6",
        QUANTILES | {"pessimism.measure": "wasserstein2"},
    ),
    "sac-20": Preset(
        "SAC20", "SAC with 20 updates per step: 2 plain critics, their minimum", "paper, App. B.2, SAC-20", TWIN
    ),
    "sac": Preset(
        "SAC",
        "SAC with one update per step: 2 plain critics, their minimum",
        "Haarnoja et al., 2018, in the implementation of SAC-20",
        TWIN | {"updates_per_step": 1},
    ),
    "redq": Preset(
        "REDQ",
        "10 plain critics, targets from the minimum of a random pair",
        "paper, Sec. 5.1; Chen et al., 2021, with their networks",
        XAVIER | {"critic.form": "plain", "pessimism.name": "subset-minimum"},
    ),
    "xqc": Preset(
        "XQC",
        "2 categorical critics with BatchNorm and weights of length 1, 2 updates per step, the lower critic",
        XQC,
        XQC_NETWORKS | {"pessimism.name": "minimum"},
    ),
    "gpl-xqc": Preset("GPLXQC", "XQC with learned pessimism", f"{XQC}, with the rule of GPL-SAC", XQC_NETWORKS),
    "droq": Preset(
        "DroQ",
        "2 critics with dropout and LayerNorm, 20 updates per step, their minimum",
        DROQ,
        DROQ_NETWORKS | {"pessimism.name": "subset-minimum"},
    ),
    "gpl-droq": Preset(
        "GPLDroQ", "DroQ with learned pessimism", f"{DROQ}, with the rule of GPL-SAC", DROQ_NETWORKS
    ),
    "gpl-dropout": Preset(
        "GPLDropout",
        "DroQ with 1 critic and learned pessimism: the disagreement is that of 5 dropout masks",
        "the paper's future work, a posterior instead of an ensemble, on DroQ's critic",
        DROQ_NETWORKS | {"critic.members": 1, "critic.dropout": 0.1, "pessimism.samples": 5},
        sources={"critic.dropout": HERE, "pessimism.samples": HERE},
    ),
    "rlpd": Preset(
        "RLPD",
        "with --prior: 10 critics with LayerNorm, half of each batch prior data, the minimum of a random pair",
        RLPD,
        RLPD_NETWORKS | {"pessimism.name": "subset-minimum"},
    ),
    "gpl-rlpd": Preset(
        "GPLRLPD",
        "with --prior: RLPD from the first step, beta fixed until online episodes show the critics' bias",
        f"{RLPD}, with the rule of gpl-sac-calibrated",
        RLPD_NETWORKS | {"pessimism.name": "calibrated", "pessimism.actor_share": 0.0, "random_steps": 0},
        sources={"random_steps": f"{HERE}: prior data take the place of random steps", "pessimism.name": HERE},
    ),
    "mbpo": Preset(
        "MBPO",
        "SAC on short rollouts of a learned model (Ant and Humanoid: positions and velocities only)",
        f"paper, Sec. 5.1; {MBPO}",
        TWIN | XAVIER | {"updates_per_step": 20, "policy_every": 1, "model.real_ratio": 0.05},
        {
            "Hopper": {"model.schedule": (20, 150, 1, 15)},
            "HalfCheetah": {"updates_per_step": 40},
            "Ant": {"model.schedule": (20, 100, 1, 25), "observation": "truncated"},
            "Humanoid": WIDE | {"model.schedule": (20, 300, 1, 25), "observation": "truncated"},
            "InvertedPendulum": {
                "random_steps": 500,
                "updates_per_step": 10,
                "model.schedule": (1, 15, 1, 1),
                "model.epoch_steps": 250,
            },
        },
    ),
    "drqv2": Preset(
        "DrQv2",
        "from pixels: DrQ-v2, a noisy policy, 3-step returns, random shifts, 2 critics and their minimum",
        f"paper, Table of GPL-DrQ hyper-parameters; {DRQ}",
        DRQ_V2 | {"pessimism.name": "minimum"},
        drq_tasks({}),
        DRQ_SOURCES,
    ),
    "gpl-drq": Preset(
        "GPLDrQ",
        "from pixels: DrQ-v2 with learned pessimism",
        "paper, Sec. 5.2 and Table of GPL-DrQ hyper-parameters",
        DRQ_V2,
        drq_tasks({}),
        DRQ_SOURCES,
    ),
    "gpl-drq-anneal": Preset(
        "GPLDrQAnneal",
        "from pixels: GPL-DrQ whose policy starts out more optimistic, as long as the noise decays",
        "paper, Sec. 5.2 and Table of GPL-DrQ hyper-parameters",
        DRQ_V2 | {"pessimism.optimism": 0.5, "pessimism.optimism_steps": 500_000},
        drq_tasks({"pessimism.optimism_steps": 0}),
        DRQ_SOURCES,
    ),
    "gpl-drq-top": Preset(
        "GPLDrQTOP",
        "from pixels: GPL-DrQ with beta drawn for each episode by TOP's bandit",
        "paper, App. D.2, with the bandit of Moskovitz et al., 2021",
        DRQ_V2 | {"pessimism.name": "bandit"},
        drq_tasks({}),
        DRQ_SOURCES,
    ),
    "gpl-drq-calibrated": Preset(
        "GPLDrQCalibrated",
        "from pixels: GPL-DrQ with beta moved by the bias that is measured on training episodes",
        "this library, docs/results.md",
        DRQ_V2 | {"pessimism.name": "calibrated"},
        drq_tasks({}),
        DRQ_SOURCES,
    ),
    "curl": Preset(
        "CURL",
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
        QUADRUPEDS,
        SAC_AE_SOURCES,
    ),
    "sac-pixels": Preset(
        "PixelSAC",
        "from pixels: SAC whose encoder learns from the critics alone",
        "Yarats et al., 2021 (SAC-AE), released code without the decoder",
        SAC_AE,
        QUADRUPEDS,
        SAC_AE_SOURCES,
    ),
}

PIXEL_PRESETS = [name for name, one in PRESETS.items() if "pixels.augmentation" in one.changes]
STATE_PRESETS = [name for name in PRESETS if name not in PIXEL_PRESETS]
