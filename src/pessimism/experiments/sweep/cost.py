"""What a config costs on a machine: measured by one process, read by another."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What a config costs here; times are seconds per environment step."""

    act: float = 0.0  # environment, rendering and storing
    evaluate: float = 0.0  # environment and policy
    learn: float = 0.0  # all of a step that is learned from, uncompiled
    compiled: float = 0.0  # compiled time as a share of uncompiled time; 0: not measured
    episode: int = 1000  # longest episode
    row_bytes: float = 0.0  # of a stored transition
    state_bytes: int = 0  # of a checkpoint without its transitions
    error: str = ""
