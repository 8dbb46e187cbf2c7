"""Checks of what users pass to the Python classes."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pessimism.errors import UserError


def whole_number(name: str, value: Any) -> int:  # noqa: ANN401
    """Return a whole number from 1 on; NumPy's integers and 1e5 are such numbers too."""
    try:
        number = int(value)
        fits = number == value and number >= 1 and not isinstance(value, bool | str)
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise UserError(f"{name} is {value!r}: a whole number from 1 on is needed")
    return number


def finite_array(observation: Any) -> NDArray[Any]:  # noqa: ANN401
    """Return an observation as an array of finite numbers."""
    if isinstance(observation, torch.Tensor):
        observation = observation.detach().cpu()
    try:
        array = np.asarray(observation)
        finite = bool(np.isfinite(array).all())
    except (TypeError, ValueError):
        raise UserError(f"an observation is an array of numbers, not a {type(observation).__name__}") from None
    if not finite:
        raise UserError("the observation has a number that is not finite")
    return array
