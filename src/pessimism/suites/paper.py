"""Every figure and table of the paper that shows results of runs.

Cetin and Celiktutan, "Learning Pessimism for Reinforcement Learning" (AAAI 2023). Numbers of figures and tables are
those of the version with appendices, in the order of its source. What the paper leaves open is decided here:

- Gym runs have 200,000 steps: results "halfway through training" are those of the 100K table.
- The bias figures name no tasks: they take the three of the ablations. "Ten runs of two extensions" is five
  seeds of each, as everywhere else.
- DeepMind Control counts frames, two for each environment step: 3M frames are 1.5M steps here.
- Where figures compare with GPL-SAC itself, its runs are those of `gym`: the same settings, trained once.
"""

from dataclasses import replace

from pessimism.errors import UserError, nearest
from pessimism.presets import Changes
from pessimism.suites.suite import Protocol, Suite, Variant
from pessimism.tasks import DMC_MEDIUM, PAPER_TASKS

GYM_STEPS = 200_000
GYM = Protocol(milestones=(100_000, GYM_STEPS), window=5000)  # App. C.1: 25 episodes of the preceding 5000 steps
ABLATED = ("Walker2d-v4", "Ant-v4", "Humanoid-v4")  # App. D: "a representative subset"

DMC_STEPS = 1_500_000
# Sec. 5.2: 100 episodes of the 100K frames before 1.5M and 3M frames; ten episodes every 10,000 frames.
DMC = Protocol(milestones=(750_000, DMC_STEPS), window=50_000, every=5000, episodes=10, frames_per_step=2)
DMC_SUBSET = ("dmc/cheetah-run", "dmc/hopper-hop", "dmc/quadruped-run")

TRAINING_TIME = "training-time"

GPL_SAC = Variant("gpl-sac", "GPL-SAC", "gpl-sac", home="gym")
GPL_DRQ = Variant("gpl-drq", "GPL-DrQ", "gpl-drq", home="dmc")
GPL_DRQ_ANNEAL = Variant("gpl-drq-anneal", "GPL-DrQ-Anneal", "gpl-drq-anneal", home="dmc")
DRQV2 = Variant("drqv2", "DrQv2", "drqv2", home="dmc")


def _fixed(beta: float) -> Changes:
    return {"pessimism.name": "fixed", "pessimism.beta": beta}


FOUR: Changes = {"critic.members": 4}  # App. B.1; "the rest of the hyper-parameters follow ... GPL-SAC"
OPTIMISTIC = Variant("optimistic", "SAC, optimistic (beta 0)", "gpl-sac", FOUR | _fixed(0.0), home="bias")
PESSIMISTIC = Variant("pessimistic", "SAC, pessimistic (beta 0.5)", "gpl-sac", FOUR | _fixed(0.5), home="bias")


def _learned(beta: float) -> Variant:
    label = f"GPL-SAC, beta from {beta}"
    if beta == 0.5:
        return replace(GPL_SAC, label=label)
    return Variant(f"learned-{beta}", label, "gpl-sac", {"pessimism.beta": beta}, home="beta-init")


def _constant(beta: float) -> Variant:
    return Variant(f"fixed-{beta}", f"fixed beta {beta}", "gpl-sac", _fixed(beta), home="fixed-beta")


def _ablation(name: str, title: str, paper: str, claim: str, *variants: Variant) -> Suite:
    return Suite(name, title, paper, claim, variants, ABLATED, GYM_STEPS, GYM)


_GYM = Suite(
    "gym",
    "GPL-SAC against REDQ, MBPO and SAC-20",
    "Figure 3",
    "GPL-SAC is the best on all five tasks, by more on those with larger state and action spaces",
    (
        GPL_SAC,
        Variant("redq", "REDQ", "redq", home="gym"),
        Variant("mbpo", "MBPO", "mbpo", home="gym"),
        Variant("sac-20", "SAC-20", "sac-20", home="gym"),
    ),
    PAPER_TASKS,
    GYM_STEPS,
    GYM,
)
_DMC = Suite(
    "dmc",
    "GPL-DrQ and GPL-DrQ-Anneal against DrQv2, CURL and SAC, from pixels",
    "Tables 1 and 5, Figure 6",
    "GPL improves DrQv2 on most of twelve tasks, and pessimism annealing where exploration is hard",
    (
        GPL_DRQ_ANNEAL,
        GPL_DRQ,
        DRQV2,
        Variant("curl", "CURL", "curl", home="dmc"),
        Variant("sac-pixels", "SAC", "sac-pixels", home="dmc"),
    ),
    DMC_MEDIUM,
    DMC_STEPS,
    DMC,
)


def _halfway(whole: Suite, name: str, title: str, paper: str, claim: str) -> Suite:
    """Return the first half of a suite's runs."""
    middle = whole.protocol.milestones[0]
    protocol = whole.protocol._replace(milestones=(middle,))
    return replace(whole, name=name, title=title, paper=paper, claim=claim, steps=middle, protocol=protocol)


ALL = (
    _ablation(
        "bias",
        "Bias of SAC with optimistic and with pessimistic targets",
        "Figure 1",
        "The bias under a fixed penalty varies across tasks, agents, stages of training and seeds",
        OPTIMISTIC,
        PESSIMISTIC,
    ),
    _ablation(
        "bias-gpl",
        "Bias with fixed and with learned targets",
        "Figure 10, App. D.1",
        "With GPL the bias is much closer to zero than with fixed targets, and fluctuates less",
        OPTIMISTIC,
        PESSIMISTIC,
        Variant("gpl", "SAC, GPL", "gpl-sac", FOUR),
    ),
    _GYM,
    _halfway(
        _GYM,
        "gym-100k",
        "Returns after 100,000 steps",
        "Table 4, App. C.1",
        "After 100K steps GPL-SAC has the highest return on all five tasks, normalised 0.81 against 0.35 to 0.52",
    ),
    _halfway(
        _GYM,
        "rliable-gym",
        "Aggregate statistics of the Gym tasks, halfway through training",
        "Figure 4, Mujoco",
        "GPL has a higher interquartile mean and a lower optimality gap, with intervals that do not overlap",
    ),
    _DMC,
    _halfway(
        _DMC,
        "rliable-dmc",
        "Aggregate statistics of the pixel tasks, halfway through training",
        "Figure 4, DMC",
        "GPL has a higher interquartile mean and a lower optimality gap, with intervals that do not overlap",
    ),
    _ablation(
        "beta-init",
        "Initial beta: its evolution and its effect",
        "Figure 7, App. D.1",
        "beta moves to a range that depends on the task, higher for larger tasks; its start hardly matters",
        *map(_learned, (0.25, 0.5, 0.75)),
    ),
    _ablation(
        "fixed-beta",
        "Learned against fixed beta",
        "Figure 8, App. D.1",
        "Learning beta improves on the same beta held fixed, for every start and task",
        *(variant(beta) for beta in (0.25, 0.5, 0.75) for variant in (_learned, _constant)),
    ),
    _ablation(
        "best-fixed-beta",
        "Learned beta against the best fixed one of each task",
        "Figure 9, App. D.1",
        "Even the best fixed beta of a task does not reach the learned one",
        GPL_SAC,
        _constant(0.5),
        Variant(
            "best-fixed",
            "best fixed beta",
            "gpl-sac",
            tasks={"Walker2d-v4": _fixed(0.34), "Ant-v4": _fixed(0.53), "Humanoid-v4": _fixed(0.86)},
        ),
    ),
    _ablation(
        "beta-rules",
        "Dual TD-learning against end-to-end bias minimisation and TOP's bandit",
        "Figure 11, App. D.2",
        "E2E is worse on all tasks; TOP equals dual TD-learning on Humanoid and is far worse on the others",
        GPL_SAC,
        Variant("e2e", "GPL-SAC-E2E", "gpl-sac-e2e"),
        Variant("top", "GPL-SAC-TOP", "gpl-sac-top"),
    ),
    Suite(
        "top-dmc",
        "Dual TD-learning against TOP's bandit, from pixels",
        "Table 6, App. D.2",
        "Dual TD-learning outperforms TOP, most on Quadruped run",
        (GPL_DRQ, Variant("gpl-drq-top", "GPL-DrQ-TOP", "gpl-drq-top"), DRQV2),
        DMC_SUBSET,
        DMC_STEPS,
        DMC,
    ),
    _ablation(
        "annealing",
        "Pessimism annealing on the Gym tasks",
        "Figure 12, App. D.3",
        "Annealing improves two of three tasks, marginally",
        GPL_SAC,
        Variant("anneal", "GPL-SAC-Anneal", "gpl-sac-anneal"),
    ),
    Suite(
        "optimism-dmc",
        "Half and double lambda_opt, from pixels",
        "Table 7, App. D.3",
        "1 helps late in hard exploration and slows down early learning; 0.25 and 0.5 are alike",
        (
            Variant("optimism-1", "GPL-DrQ-Anneal(1)", "gpl-drq-anneal", {"pessimism.optimism": 1.0}),
            replace(GPL_DRQ_ANNEAL, label="GPL-DrQ-Anneal(0.5)"),
            Variant("optimism-0.25", "GPL-DrQ-Anneal(0.25)", "gpl-drq-anneal", {"pessimism.optimism": 0.25}),
            GPL_DRQ,
        ),
        DMC_SUBSET,
        DMC_STEPS,
        DMC,
    ),
    _ablation(
        "ensemble",
        "Number of critics",
        "Figure 13, App. D.4",
        "Returns grow with N and saturate: at 2 on Walker2d, around 10 on Humanoid, which fails with 2",
        *(
            replace(GPL_SAC, label="N = 10")
            if members == 10
            else Variant(f"members-{members}", f"N = {members}", "gpl-sac", {"critic.members": members})
            for members in (2, 5, 10, 15, 20)
        ),
    ),
    _ablation(
        "critic",
        "Residual or plain critics",
        "Figure 14, App. D.4",
        "The residual critic brings consistent marginal improvements, none significant",
        GPL_SAC,
        Variant("plain", "GPL-SAC, plain critic", "gpl-sac", {"critic.form": "plain"}),
    ),
    _ablation(
        "utd",
        "Critic updates per step",
        "Figure 15, App. D.5",
        "More updates per step are more sample-efficient on all tasks; with 1, Ant and Humanoid become unstable",
        *(
            replace(GPL_SAC, label="UTD 20")
            if updates == 20
            else Variant(f"updates-{updates}", f"UTD {updates}", "gpl-sac", {"updates_per_step": updates})
            for updates in (1, 5, 10, 20)
        ),
    ),
    _ablation(
        "quantiles",
        "Distributional critics",
        "Figure 16, App. D.6",
        "The 1-Wasserstein distance works better than the 2-Wasserstein, and about as well as GPL-SAC",
        GPL_SAC,
        Variant("qr-w1", "GPL-QR-SAC (W1)", "gpl-qr-sac"),
        Variant("qr-w2", "GPL-QR-SAC (W2)", "gpl-qr-sac-w2"),
    ),
    Suite(
        TRAINING_TIME,
        "Training times",
        "Table 8, App. D.7",
        "Learning beta costs 3 %, plain critics save 30 %, twice the critics cost 12 %, updates cost in proportion",
        (),
        (),
        0,
        Protocol((), 0),
        (),
    ),
)
SUITES = {suite.name: suite for suite in ALL}


def find(name: str) -> Suite:
    """Return a suite by its name, or say which ones there are."""
    if name not in SUITES:
        raise UserError(f"unknown suite {name}{nearest(name, SUITES) or ': see pessimism reproduce --list'}")
    return SUITES[name]
