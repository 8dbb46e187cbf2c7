"""Learned pessimism and the bias meter for users of Stable-Baselines3 (extra `sb3`).

from pessimism.sb3 import GPLSAC, BiasCallback

model = GPLSAC("MlpPolicy", "Hopper-v4", n_critics=5, gradient_steps=4, policy_delay=4)
model.learn(100_000, callback=BiasCallback("Hopper-v4"))
"""

from pessimism.extras import installed, missing

if not installed("stable-baselines3"):
    raise missing("Stable-Baselines3", "sb3")

from pessimism.sb3.agent import GPLSAC, PAPER
from pessimism.sb3.callback import BiasCallback

__all__ = ["GPLSAC", "PAPER", "BiasCallback"]
