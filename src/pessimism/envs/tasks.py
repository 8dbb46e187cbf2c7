"""What the paper says about single tasks."""

import re

from pessimism.errors import UserError

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


# Leading entries of the observation that are positions and velocities: MBPO's truncated tasks.
TRUNCATED_SIZE = {"Ant": 27, "Humanoid": 45}


def task_name(env_id: str) -> str:
    """Return a task's name without its version."""
    return re.sub(r"-v\d+$", "", env_id)


def task_folder(env_id: str) -> str:
    """Return a task's id as a name of a directory."""
    return env_id.replace("/", "_").replace(":", "_")


def truncated_size(env_id: str) -> int:
    """Return how many entries of a task's observation are positions and velocities."""
    if task_name(env_id) not in TRUNCATED_SIZE:
        tasks = " and ".join(TRUNCATED_SIZE)
        raise UserError(f"{env_id} has no truncated observation, only {tasks} have: leave --observation out")
    return TRUNCATED_SIZE[task_name(env_id)]


def target_entropy(env_id: str, action_size: int) -> tuple[float, str]:
    """Return the policy's target entropy for a task, and its source."""
    task = task_name(env_id)
    if task in TARGET_ENTROPY:
        return TARGET_ENTROPY[task], f"paper, target entropies by task ({task}; after Janner et al., 2019)"
    return -float(action_size), "-dim(action), Haarnoja et al., 2018"
