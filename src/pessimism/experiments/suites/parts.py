"""Parts of the paper's suites: protocols, variants that several of them show, and forms of claims."""

from dataclasses import replace

from pessimism.config.presets import Changes
from pessimism.experiments.suites.suite import Check, Protocol, Suite, Variant

GYM_STEPS = 200_000
GYM = Protocol(milestones=(100_000, GYM_STEPS), window=5000)  # App. C.1: 25 episodes of the preceding 5000 steps
ABLATED = ("Walker2d-v4", "Ant-v4", "Humanoid-v4")  # App. D: "a representative subset"

DMC_STEPS = 1_500_000
# Sec. 5.2: 100 episodes of the 100K frames before 1.5M and 3M frames; ten episodes every 10,000 frames.
DMC = Protocol(milestones=(750_000, DMC_STEPS), window=50_000, every=5000, episodes=10, frames_per_step=2)
DMC_SUBSET = ("dmc/cheetah-run", "dmc/hopper-hop", "dmc/quadruped-run")

GPL_SAC = Variant("gpl-sac", "GPL-SAC", "gpl-sac", home="gym")
GPL_DRQ = Variant("gpl-drq", "GPL-DrQ", "gpl-drq", home="dmc")
GPL_DRQ_ANNEAL = Variant("gpl-drq-anneal", "GPL-DrQ-Anneal", "gpl-drq-anneal", home="dmc")
DRQV2 = Variant("drqv2", "DrQv2", "drqv2", home="dmc")


def fixed(beta: float) -> Changes:
    """Return the settings of a constant beta."""
    return {"pessimism.name": "fixed", "pessimism.beta": beta}


FOUR: Changes = {"critic.members": 4}  # App. B.1; "the rest of the hyper-parameters follow ... GPL-SAC"
OPTIMISTIC = Variant("optimistic", "SAC, optimistic (beta 0)", "gpl-sac", FOUR | fixed(0.0), home="bias")
PESSIMISTIC = Variant("pessimistic", "SAC, pessimistic (beta 0.5)", "gpl-sac", FOUR | fixed(0.5), home="bias")


def learned(beta: float) -> Variant:
    """Return GPL-SAC with another initial beta."""
    label = f"GPL-SAC, beta from {beta}"
    if beta == 0.5:
        return replace(GPL_SAC, label=label)
    return Variant(f"learned-{beta}", label, "gpl-sac", {"pessimism.beta": beta}, home="beta-init")


def constant(beta: float) -> Variant:
    """Return GPL-SAC with a constant beta."""
    return Variant(f"fixed-{beta}", f"fixed beta {beta}", "gpl-sac", fixed(beta), home="fixed-beta")


def ablation(
    name: str,
    title: str,
    paper: str,
    claim: str,
    *variants: Variant,
    checks: tuple[Check, ...],
    unchecked: str = "",
) -> Suite:
    """Return an ablation on the three Gym tasks."""
    return Suite(name, title, paper, claim, variants, ABLATED, GYM_STEPS, GYM, checks=checks, unchecked=unchecked)


def best(first: str, *others: str, milestone: int = -1) -> Check:
    """A variant is better than others on every task."""
    text = f"{first} has a higher return than {', '.join(others)} on every task"
    return Check(text, "return", first, others, "more", "every", milestone=milestone)


def better(first: str, *others: str, tasks: tuple[str, ...] = (), milestone: int = -1) -> Check:
    """A variant is better than others on average over tasks."""
    where = f"on {', '.join(tasks)}" if tasks else "on average over tasks"
    text = f"{first} has a higher return than {', '.join(others)} {where}"
    return Check(text, "return", first, others, "more", tasks=tasks, milestone=milestone)


def alike(first: str, other: str, *tasks: str) -> Check:
    """Two variants are about as good."""
    where = f"on {', '.join(tasks)}" if tasks else "on average over tasks"
    text = f"{first} and {other} are within 0.1 of normalised return {where}"
    return Check(text, "return", first, (other,), "similar", tasks=tasks)


def rliable(first: str, *others: str) -> tuple[Check, Check]:
    """A variant is better than others by statistics over tasks."""
    names = ", ".join(others)
    return (
        Check(f"{first} has a higher interquartile mean than {names}", "interquartile mean", first, others, "more"),
        Check(f"{first} has a lower optimality gap than {names}", "optimality gap", first, others, "less"),
    )
