"""Experiments of this library's own: which signal sees the bias, and which rule for beta lowers it.

The protocol, written before the runs, is docs/results.md. Runs have fewer critics and updates than the paper's, so
that many seeds fit on a small machine; `hopper-full` has the paper's size.
"""

from dataclasses import replace

from pessimism.config.presets import Changes
from pessimism.experiments.suites.suite import Check, Protocol, Suite, Variant

TASKS = ("Hopper-v4", "Walker2d-v4", "HalfCheetah-v4")
QUIET: Changes = {"threads": 1, "log.tensorboard": False}
HALF: Changes = {"critic.form": "plain", "critic.members": 5, "updates_per_step": 5}
STEPS, FULL_STEPS = 30_000, 100_000


def _arm(folder: str, label: str, **rule: object) -> Variant:
    changes = {f"pessimism.{key}": value for key, value in rule.items()}
    return Variant(folder, label, "gpl-sac", QUIET | HALF | changes, home="calibration")


ARMS = (
    _arm("fixed-0", "fixed 0", name="fixed", beta=0.0),
    _arm("fixed-0.5", "fixed 0.5", name="fixed", beta=0.5),
    _arm("redq", "REDQ's rule", name="subset-minimum"),
    _arm("dual-1e-4", "dual TD, rate 1e-4", name="learned", lr=1e-4),
    _arm("dual-1e-2", "dual TD, rate 1e-2", name="learned", lr=1e-2),
    _arm("calibrated", "calibrated", name="calibrated"),
)
HALF_SIZE = Protocol(milestones=(10_000, 20_000, STEPS), window=5000)


def _start(name: str, start: float, where: str) -> Suite:
    """Return the experiment in which beta starts far from where it leaves no bias."""
    fixed, calibrated, dual = (
        f"fixed {start:g}",
        f"calibrated, from {start:g}",
        f"dual TD, rate 1e-2, from {start:g}",
    )
    arms = (
        _arm("fixed", fixed, name="fixed", beta=start),
        _arm("calibrated", calibrated, name="calibrated", beta=start),
        _arm("dual-1e-2", dual, name="learned", lr=1e-2, beta=start),
    )
    return Suite(
        name,
        f"Rules for beta that start too {where}",
        "",
        "A beta that follows the measured bias corrects a wrong start, dual TD-learning does not",
        tuple(replace(arm, home="") for arm in arms),
        ("Hopper-v4",),
        STEPS,
        HALF_SIZE,
        seeds=(0, 1, 2),
        checks=(
            Check(f"The bias is closer to zero than with {fixed}", "absolute bias", calibrated, (fixed,), "less"),
            Check(f"The bias is closer to zero than with {dual}", "absolute bias", calibrated, (dual,), "less"),
        ),
    )


ALL = (
    Suite(
        "signals",
        "What the TD error and the returns of training episodes tell of the bias",
        "",
        "The bias of training episodes has the sign of the bias, the mean TD error has not",
        ARMS[:5],  # beta does not depend on the returns in these
        TASKS,
        STEPS,
        HALF_SIZE,
    ),
    Suite(
        "calibration",
        "Rules for beta: fixed, REDQ's, dual TD-learning, calibrated",
        "",
        "A beta that follows the measured bias leaves less of it than a fixed one or dual TD-learning",
        ARMS,
        TASKS,
        STEPS,
        HALF_SIZE,
    ),
    _start("start-low", 0.0, "low"),
    _start("start-high", 1.5, "high"),
    Suite(
        "alpha-rate",
        "The learning rate of alpha: the paper's, and that of the author's later code",
        "",
        "With the paper's rate returns rise later than with that of the author's later code",
        (
            Variant("rate-1e-4", "rate 1e-4 (paper)", "gpl-sac", QUIET | HALF),
            Variant("rate-3e-4", "rate 3e-4", "gpl-sac", QUIET | HALF | {"alpha_lr": 3e-4, "alpha_beta1": 0.9}),
        ),
        TASKS,
        STEPS,
        HALF_SIZE,
        seeds=(0, 1, 2),
        checks=(
            Check(
                "Returns are higher with rate 3e-4",
                "return",
                "rate 3e-4",
                ("rate 1e-4 (paper)",),
                "more",
                milestone=1,
            ),
        ),
    ),
    Suite(
        "hopper-full",
        "GPL-SAC, calibrated GPL-SAC and REDQ at the paper's size",
        "",
        "With 10 critics and 20 updates per step the answers of the half-size runs hold",
        (
            Variant("gpl-sac", "GPL-SAC", "gpl-sac", QUIET),
            Variant("redq", "REDQ", "redq", QUIET),
            Variant("gpl-sac-calibrated", "GPL-SAC, calibrated", "gpl-sac-calibrated", QUIET),
        ),
        ("Hopper-v4",),
        FULL_STEPS,
        Protocol(milestones=(10_000, 20_000, 50_000, FULL_STEPS), window=5000),
    ),
)
