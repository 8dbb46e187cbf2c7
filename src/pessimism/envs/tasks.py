"""What the paper says about single tasks."""

import re

# Target entropies of the paper's table (after Janner et al., 2019), by task without its version.
TARGET_ENTROPY = {
    "Hopper": -1.0,
    "HalfCheetah": -3.0,
    "Walker2d": -3.0,
    "Ant": -4.0,
    "Humanoid": -2.0,
    "InvertedPendulum": -0.05,
}
PAPER_TASKS = ("Hopper-v4", "HalfCheetah-v4", "Walker2d-v4", "Ant-v4", "Humanoid-v4")


def target_entropy(env_id: str, action_size: int) -> tuple[float, str]:
    """Return the policy's target entropy for a task, and its source."""
    task = re.sub(r"-v\d+$", "", env_id)
    if task in TARGET_ENTROPY:
        return TARGET_ENTROPY[task], f"paper, target entropies by task ({task}; after Janner et al., 2019)"
    return -float(action_size), "-dim(action), Haarnoja et al., 2018"
