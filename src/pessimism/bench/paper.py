"""The paper's table of training times: what its rows are here, and its numbers."""

from dataclasses import replace
from typing import NamedTuple

from pessimism.bench.worker import Setting


class Variant(NamedTuple):
    """A row: what is measured, and the paper's seconds per 1000 environment steps."""

    name: str
    paper_seconds: float
    setting: Setting
    reference: str = "GPL-SAC"  # row that ratios are to
    updates_every: int = 1  # environment steps between the steps that are measured


PIXEL_REPLAY = 20_000  # frames, 0.4 GB per contestant: far more than the caches hold
GPL_SAC = Setting(critic="residual")
# From pixels the paper prints seconds per 10,000 steps; an update comes every two steps.
GPL_DRQ = Setting("pixels-gpl-drq", members=2, updates=1, hidden=1024, replay=PIXEL_REPLAY)


def _from_pixels(name: str, paper_seconds: float, preset: str) -> Variant:
    setting = replace(GPL_DRQ, contestant=f"pixels-{preset}")
    return Variant(name, paper_seconds / 10, setting, reference="GPL-DrQ", updates_every=2)


# Cetin and Celiktutan, "Learning Pessimism for Reinforcement Learning" (2023), appendix "Computational
# Scaling", "Average training times", proprioceptive tasks: one RTX 3090 and a Threadripper 3970x.
VARIANTS = (
    Variant("GPL-SAC", 76.1, GPL_SAC),
    Variant("no pessimism learning", 74.2, replace(GPL_SAC, strategy="fixed")),
    Variant("plain critic", 51.6, replace(GPL_SAC, critic="plain")),
    Variant("GPL-SAC-Anneal", 77.0, replace(GPL_SAC, strategy="annealed")),
    Variant("GPL-QR-SAC (W1)", 86.6, replace(GPL_SAC, strategy="quantile-w1")),
    Variant("GPL-QR-SAC (W2)", 88.1, replace(GPL_SAC, strategy="quantile-w2")),
    Variant("N = 20", 85.0, replace(GPL_SAC, members=20)),
    Variant("N = 15", 81.2, replace(GPL_SAC, members=15)),
    Variant("N = 5", 62.5, replace(GPL_SAC, members=5)),
    Variant("N = 2", 38.8, replace(GPL_SAC, members=2)),
    Variant("UTD = 10", 41.4, replace(GPL_SAC, updates=10)),
    Variant("UTD = 5", 20.1, replace(GPL_SAC, updates=5)),
    Variant("UTD = 1", 6.3, replace(GPL_SAC, updates=1)),
    Variant("REDQ", 183.8, replace(GPL_SAC, critic="plain", strategy="redq")),  # the paper's: REDQ's original code
    _from_pixels("GPL-DrQ-Anneal", 112.2, "gpl-drq-anneal"),
    _from_pixels("GPL-DrQ", 111.3, "gpl-drq"),
    _from_pixels("DrQv2", 111.2, "drqv2"),
)
