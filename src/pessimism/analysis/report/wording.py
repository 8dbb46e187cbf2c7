"""Numbers as a report writes them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pessimism.analysis.statistics import Interval

Numbers = Sequence[float] | np.ndarray[Any, np.dtype[np.float64]]
DASH, MINUS, PLUS_MINUS = "\u2013", "\u2212", "\u00b1"


def counted(number: int, word: str) -> str:
    """Return a number of things: 1 run, 2 runs."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def or_dash(value: object) -> str:
    """Return a value, or a dash where there is none."""
    return DASH if value is None else str(value)


def signed(value: float, form: str = ".3g") -> str:
    """Return a difference with its sign."""
    return f"{value:+{form}}".replace("-", MINUS)


def mean_and_std(values: Numbers, form: str = ".0f") -> str:
    """Return a mean and, from two values on, their population standard deviation."""
    if len(values) == 0:
        return DASH
    mean, std = float(np.mean(values)), float(np.std(values))
    if form == ".0f" and abs(mean) < 100:
        form = ".3g" if abs(mean) < 1 else ".1f"
    return f"{mean:{form}} {PLUS_MINUS} {std:{form}}" if len(values) > 1 else f"{mean:{form}}"


def interval_text(value: Interval) -> str:
    """Return an estimate with its bounds; bounds that are equal say so."""
    if math.isnan(value.low):
        return f"{value.point:.3f} (no interval)"
    if value.low == value.high:
        return f"{value.point:.3f} (no width)"
    return f"{value.point:.3f} [{value.low:.3f}, {value.high:.3f}]"


def difference_text(value: Interval, form: str = ".3g") -> str:
    """Return a difference with its bounds."""
    if math.isnan(value.low):
        return f"{signed(value.point, form)} (no interval)"
    if value.low == value.high:
        return f"{signed(value.point, form)} (no width)"
    return f"{signed(value.point, form)} [{signed(value.low, form)}, {signed(value.high, form)}]"


def seed_list(seeds: Sequence[int | None]) -> str:
    """Return seeds as a short text: 0-4, 7."""
    spans: list[list[int]] = []
    for number in sorted(seed for seed in seeds if seed is not None):
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    texts = [str(span[0]) if len(span) == 1 else f"{span[0]}{DASH}{span[-1]}" for span in spans]
    return ", ".join(texts) or DASH


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it: 40 seconds, 12 minutes, 3.5 hours, 2.1 days."""
    for size, unit in ((86_400, "days"), (3600, "hours")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    if seconds >= 90:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds:.0f} seconds"
