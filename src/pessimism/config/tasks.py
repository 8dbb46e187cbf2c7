"""Names and families of tasks, and what the paper sets for each."""

import re
from collections.abc import Callable
from typing import NamedTuple

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
# DeepMind Control by DrQ-v2's sets; the medium one is the paper's.
DMC_EASY = (
    "dmc/cartpole-balance",
    "dmc/cartpole-balance-sparse",
    "dmc/cartpole-swingup",
    "dmc/ball-in-cup-catch",
    "dmc/finger-spin",
    "dmc/hopper-stand",
    "dmc/pendulum-swingup",
    "dmc/walker-stand",
    "dmc/walker-walk",
)
DMC_MEDIUM = (
    "dmc/acrobot-swingup",
    "dmc/cartpole-swingup-sparse",
    "dmc/cheetah-run",
    "dmc/finger-turn-easy",
    "dmc/finger-turn-hard",
    "dmc/hopper-hop",
    "dmc/quadruped-run",
    "dmc/quadruped-walk",
    "dmc/reach-duplo",
    "dmc/reacher-easy",
    "dmc/reacher-hard",
    "dmc/walker-run",
)
DMC_HARD = ("dmc/humanoid-stand", "dmc/humanoid-walk", "dmc/humanoid-run")
_DMC_PREFIX = re.compile(r"^(dmc|dm_control)/")
_DMC_ALIASES = {"cup-catch": "ball-in-cup-catch"}


# Leading entries of the observation that are positions and velocities: MBPO's truncated tasks.
TRUNCATED_SIZE = {"Ant": 27, "Humanoid": 45}


def task_name(env_id: str) -> str:
    """Return a task's name without its version."""
    return re.sub(r"-v\d+$", "", env_id)


def task_folder(env_id: str) -> str:
    """Return a task's id as a name of a directory."""
    return env_id.replace("/", "_").replace(":", "_")


def _dmc_task(env_id: str) -> str | None:
    """Return the canonical name of a DeepMind Control task, such as `dmc/cartpole-swingup-sparse`; None for others.

    Hyphens stand for all underscores. `dm_control/` is read as `dmc/`, a version is dropped, and the tasks of
    the three sets are known without a prefix (`cheetah_run`). Whether the task exists is checked when it is made.
    """
    plain = task_name(_DMC_PREFIX.sub("", env_id)).replace("_", "-")
    name = f"dmc/{_DMC_ALIASES.get(plain, plain)}"
    known = name in (*DMC_EASY, *DMC_MEDIUM, *DMC_HARD)
    return name if known or _DMC_PREFIX.match(env_id) else None


class Family(NamedTuple):
    """Environments that are not in Gymnasium's registry. To add some, add their entry to FAMILIES."""

    title: str
    task: Callable[[str], str | None]  # the canonical name of a task of this family; None for other tasks
    implementation: str  # as module:class; called with (task, *, size, camera, **the environment's own arguments)
    extra: str  # optional dependencies that it needs


FAMILIES = {"dmc/": Family("DeepMind Control", _dmc_task, "pessimism.envs.dmc:ControlSuiteEnv", "dmc")}
"""By what the canonical names of their tasks begin with."""


def canonical(env_id: str) -> str:
    """Return the canonical name of a task: that of its family, or the given one."""
    return next((name for family in FAMILIES.values() if (name := family.task(env_id))), env_id)


def truncated_size(env_id: str) -> int:
    """Return how many entries of a task's observation are positions and velocities."""
    if task_name(env_id) not in TRUNCATED_SIZE:
        tasks = " and ".join(TRUNCATED_SIZE)
        raise UserError(f"{env_id} has no truncated observation, only {tasks} have: leave --observation out")
    return TRUNCATED_SIZE[task_name(env_id)]


def target_entropy(env_id: str, action_size: int, per_action: float | None = None) -> tuple[float, str]:
    """Return the policy's target entropy for a task, and its source."""
    task = task_name(env_id)
    if per_action is not None:
        return per_action * action_size, f"{per_action:g} for each dimension of the action"
    if task in TARGET_ENTROPY:
        return TARGET_ENTROPY[task], f"paper, target entropies by task ({task}; after Janner et al., 2019)"
    return -float(action_size), "-dim(action), Haarnoja et al., 2018"
