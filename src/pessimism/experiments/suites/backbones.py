"""Learned pessimism on cheaper critics: returns over steps and over minutes (docs/backbones.md)."""

from pessimism.config.presets import Changes
from pessimism.experiments.suites.suite import Protocol, Suite, Variant

TASKS = ("Hopper-v4", "Walker2d-v4", "HalfCheetah-v4")
STEPS = 30_000
QUIET: Changes = {"threads": 1, "log.tensorboard": False}


def _arm(name: str, label: str, preset: str, **changes: object) -> Variant:
    return Variant(name, label, preset, QUIET | changes)


ALL = (
    Suite(
        "backbones",
        "Learned pessimism on XQC's and DroQ's critics, beside XQC and GPL-SAC",
        "",
        "GPL-XQC reaches GPL-SAC's returns in less time, and loses none of XQC's",
        (
            _arm("gpl-xqc", "GPL-XQC", "gpl-xqc"),
            _arm("xqc", "XQC", "xqc"),
            _arm("gpl-xqc-256", "GPL-XQC, width 256", "gpl-xqc", **{"critic.hidden": 256}),
            _arm("xqc-256", "XQC, width 256", "xqc", **{"critic.hidden": 256}),
            _arm("gpl-droq", "GPL-DroQ", "gpl-droq"),
            _arm("gpl-dropout", "GPL-Dropout", "gpl-dropout"),
            _arm("gpl-sac", "GPL-SAC", "gpl-sac"),
        ),
        TASKS,
        STEPS,
        Protocol(milestones=(10_000, 20_000, STEPS), window=5000),
        seeds=(0, 1, 2),
    ),
)
