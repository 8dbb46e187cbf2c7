"""Numbers that change with the environment step."""

from collections.abc import Callable

Schedule = Callable[[int], float]


def constant(value: float) -> Schedule:
    """Return a schedule that stays at `value`."""
    return lambda step: value


def linear(start: float, end: float, steps: int) -> Schedule:
    """Return a schedule that moves from `start` to `end` over the first `steps` steps and stays there."""
    return lambda step: start + (end - start) * min(max(step / steps, 0.0), 1.0)
