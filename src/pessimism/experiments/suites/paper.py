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

from pessimism.config.tasks import DMC_MEDIUM, PAPER_TASKS
from pessimism.experiments.suites.parts import (
    DMC,
    DMC_STEPS,
    DMC_SUBSET,
    DRQV2,
    FOUR,
    GPL_DRQ,
    GPL_DRQ_ANNEAL,
    GPL_SAC,
    GYM,
    GYM_STEPS,
    OPTIMISTIC,
    PESSIMISTIC,
    ablation,
    alike,
    best,
    better,
    constant,
    fixed,
    learned,
    rliable,
)
from pessimism.experiments.suites.suite import Check, Protocol, Suite, Variant

TRAINING_TIME = "training-time"

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
    checks=(best("GPL-SAC", "REDQ", "MBPO", "SAC-20"),),
    unchecked="by more on tasks with larger state and action spaces",
    table="gym_100k",
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
    checks=(better("GPL-DrQ", "DrQv2"), better("GPL-DrQ-Anneal", "DrQv2")),
    unchecked="on most tasks (see the top scores), and annealing where exploration is hard",
    table="dmc_pixels",
)


def _halfway(whole: Suite, name: str, title: str, paper: str, claim: str, *checks: Check) -> Suite:
    """Return the first half of a suite's runs."""
    middle = whole.protocol.milestones[0]
    protocol = whole.protocol._replace(milestones=(middle,))
    half = replace(whole, name=name, title=title, paper=paper, claim=claim, steps=middle, protocol=protocol)
    return replace(half, checks=checks, unchecked="")


ALL = (
    ablation(
        "bias",
        "Bias of SAC with optimistic and with pessimistic targets",
        "Figure 1",
        "The bias under a fixed penalty varies across tasks, agents, stages of training and seeds",
        OPTIMISTIC,
        PESSIMISTIC,
        checks=(
            Check(
                "The bias is higher with the optimistic target than with the pessimistic one",
                "bias",
                OPTIMISTIC.label,
                (PESSIMISTIC.label,),
                "different",
                "every",
            ),
        ),
        unchecked="across tasks, stages of training and seeds (see the curves)",
    ),
    ablation(
        "bias-gpl",
        "Bias with fixed and with learned targets",
        "Figure 10, App. D.1",
        "With GPL the bias is much closer to zero than with fixed targets, and fluctuates less",
        OPTIMISTIC,
        PESSIMISTIC,
        Variant("gpl", "SAC, GPL", "gpl-sac", FOUR),
        checks=(
            Check(
                "The bias is closer to zero with GPL",
                "absolute bias",
                "SAC, GPL",
                (OPTIMISTIC.label, PESSIMISTIC.label),
                "less",
            ),
            Check(
                "The bias fluctuates less with GPL",
                "bias spread",
                "SAC, GPL",
                (OPTIMISTIC.label, PESSIMISTIC.label),
                "less",
            ),
        ),
    ),
    _GYM,
    _halfway(
        _GYM,
        "gym-100k",
        "Returns after 100,000 steps",
        "Table 4, App. C.1",
        "After 100K steps GPL-SAC has the highest return on all five tasks, normalised 0.81 against 0.35 to 0.52",
        best("GPL-SAC", "REDQ", "MBPO", "SAC-20"),
    ),
    _halfway(
        _GYM,
        "rliable-gym",
        "Aggregate statistics of the Gym tasks, halfway through training",
        "Figure 4, Mujoco",
        "GPL has a higher interquartile mean and a lower optimality gap, with intervals that do not overlap",
        *rliable("GPL-SAC", "REDQ", "MBPO", "SAC-20"),
    ),
    _DMC,
    _halfway(
        _DMC,
        "rliable-dmc",
        "Aggregate statistics of the pixel tasks, halfway through training",
        "Figure 4, DMC",
        "GPL has a higher interquartile mean and a lower optimality gap, with intervals that do not overlap",
        *rliable("GPL-DrQ-Anneal", "DrQv2", "CURL", "SAC"),
        *rliable("GPL-DrQ", "DrQv2", "CURL", "SAC"),
    ),
    ablation(
        "beta-init",
        "Initial beta: its evolution and its effect",
        "Figure 7, App. D.1",
        "beta moves to a range that depends on the task; robustness improves when it starts near that range",
        *map(learned, (0.25, 0.5, 0.75)),
        checks=(
            Check(
                "beta ends within 0.1 of the same value from either start",
                "beta",
                "GPL-SAC, beta from 0.25",
                ("GPL-SAC, beta from 0.75",),
                "similar",
                "every",
            ),
            better("GPL-SAC, beta from 0.75", "GPL-SAC, beta from 0.25", tasks=("Humanoid-v4",)),
            better("GPL-SAC, beta from 0.25", "GPL-SAC, beta from 0.75", tasks=("Walker2d-v4",)),
        ),
    ),
    ablation(
        "fixed-beta",
        "Learned against fixed beta",
        "Figure 8, App. D.1",
        "Learning beta improves on the same beta held fixed, for every start and task",
        *(variant(beta) for beta in (0.25, 0.5, 0.75) for variant in (learned, constant)),
        checks=tuple(best(f"GPL-SAC, beta from {beta}", f"fixed beta {beta}") for beta in (0.25, 0.5, 0.75)),
    ),
    ablation(
        "best-fixed-beta",
        "Learned beta against the best fixed one of each task",
        "Figure 9, App. D.1",
        "Even the best fixed beta of a task does not reach the learned one",
        GPL_SAC,
        constant(0.5),
        Variant(
            "best-fixed",
            "best fixed beta",
            "gpl-sac",
            tasks={"Walker2d-v4": fixed(0.34), "Ant-v4": fixed(0.53), "Humanoid-v4": fixed(0.86)},
        ),
        checks=(best("GPL-SAC", "best fixed beta"),),
    ),
    ablation(
        "beta-rules",
        "Dual TD-learning against end-to-end bias minimisation and TOP's bandit",
        "Figure 11, App. D.2",
        "E2E is worse on all tasks; TOP equals dual TD-learning on Humanoid and is far worse on the others",
        GPL_SAC,
        Variant("e2e", "GPL-SAC-E2E", "gpl-sac-e2e"),
        Variant("top", "GPL-SAC-TOP", "gpl-sac-top"),
        checks=(
            best("GPL-SAC", "GPL-SAC-E2E"),
            better("GPL-SAC", "GPL-SAC-TOP", tasks=("Walker2d-v4", "Ant-v4")),
            alike("GPL-SAC", "GPL-SAC-TOP", "Humanoid-v4"),
        ),
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
        checks=(better("GPL-DrQ", "GPL-DrQ-TOP"), better("GPL-DrQ", "GPL-DrQ-TOP", tasks=("dmc/quadruped-run",))),
        table="dmc_top",
    ),
    ablation(
        "annealing",
        "Pessimism annealing on the Gym tasks",
        "Figure 12, App. D.3",
        "Annealing improves two of three tasks, marginally",
        GPL_SAC,
        Variant("anneal", "GPL-SAC-Anneal", "gpl-sac-anneal"),
        checks=(better("GPL-SAC-Anneal", "GPL-SAC"),),
        unchecked="on which two of the three tasks",
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
        checks=(
            better("GPL-DrQ-Anneal(0.5)", "GPL-DrQ-Anneal(1)", milestone=0),
            alike("GPL-DrQ-Anneal(0.25)", "GPL-DrQ-Anneal(0.5)"),
        ),
        table="dmc_optimistic_shift",
    ),
    ablation(
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
        checks=(
            better("N = 10", "N = 2", tasks=("Humanoid-v4",)),
            alike("N = 10", "N = 20"),
            alike("N = 10", "N = 2", "Walker2d-v4"),
        ),
        unchecked="where between 2 and 20 the returns saturate",
    ),
    ablation(
        "critic",
        "Residual or plain critics",
        "Figure 14, App. D.4",
        "The residual critic brings consistent marginal improvements, none significant",
        GPL_SAC,
        Variant("plain", "GPL-SAC, plain critic", "gpl-sac", {"critic.form": "plain"}),
        checks=(alike("GPL-SAC", "GPL-SAC, plain critic"),),
        unchecked="that the differences have the same sign on all tasks",
    ),
    ablation(
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
        checks=(best("UTD 20", "UTD 1"), better("UTD 20", "UTD 10", "UTD 5")),
        unchecked="that Ant and Humanoid become unstable with one update",
    ),
    ablation(
        "quantiles",
        "Distributional critics",
        "Figure 16, App. D.6",
        "The 1-Wasserstein distance works better than the 2-Wasserstein, and about as well as GPL-SAC",
        GPL_SAC,
        Variant("qr-w1", "GPL-QR-SAC (W1)", "gpl-qr-sac"),
        Variant("qr-w2", "GPL-QR-SAC (W2)", "gpl-qr-sac-w2"),
        checks=(better("GPL-QR-SAC (W1)", "GPL-QR-SAC (W2)"), alike("GPL-QR-SAC (W1)", "GPL-SAC")),
    ),
    Suite(
        "sac-3m",
        "SAC's returns after 3M steps, by which Gym returns are normalised",
        "Table 4, App. C.1",
        "Not a claim: the paper divides by these returns and does not print them",
        (Variant("sac", "SAC", "sac"),),
        PAPER_TASKS,
        3_000_000,
        GYM._replace(milestones=(3_000_000,), every=10_000, window=50_000),
    ),
    Suite(
        TRAINING_TIME,
        "Training times",
        "Table 8, App. D.7",
        "Learning beta costs 3 %, plain critics save 30 %, twice as many 12 %; 2.4 times faster than REDQ",
        (),
        (),
        0,
        Protocol((), 0),
        (),
    ),
)
