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


def observation_array(observation: Any, dtype: type[np.float32 | np.uint8]) -> NDArray[Any]:  # noqa: ANN401
    """Return an observation as an array of finite float32 numbers or, for images, of bytes."""
    if isinstance(observation, torch.Tensor):
        observation = observation.detach().cpu()
    try:
        given = np.asarray(observation)
    except ValueError:  # rows of different lengths
        given = np.asarray(None)
    if given.dtype.kind not in "biuf":
        raise UserError(f"an observation is an array of numbers, not a {type(observation).__name__}")
    with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is refused below
        array = given.astype(dtype)
    if dtype == np.uint8 and not np.array_equal(array, given):
        raise UserError("images are whole numbers from 0 to 255, and this observation has others")
    if not np.isfinite(array).all():
        raise UserError("the observation has a number that is not finite in float32")
    return array
