"""The paper's table of training times: what its rows are here, and its numbers."""

from dataclasses import replace
from typing import NamedTuple

from pessimism.bench.worker import Setting


class Variant(NamedTuple):
    """A row: what is measured, and the paper's seconds per 1000 environment steps."""

    name: str
    paper_seconds: float
    setting: Setting


GPL_SAC = Setting(critic="residual")

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
)
