"""Sample-efficient reinforcement learning whose value estimates can be trusted."""

import os
from typing import TYPE_CHECKING, Any

# Threads of an update that wait for each other spin for some microseconds and then sleep. libgomp's default is to
# spin for milliseconds, with which a step is many times slower where other programs want the processor too: see
# docs/performance.md. Read when torch is first loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

if TYPE_CHECKING:
    from pessimism.api import CURL, GPLSAC, MBPO, REDQ, SAC, SAC20, DrQv2, GPLDrQ, Model, PixelSAC
    from pessimism.errors import UserError
    from pessimism.training.loop import Callback

__all__ = [
    "CURL",
    "GPLSAC",
    "MBPO",
    "REDQ",
    "SAC",
    "SAC20",
    "Callback",
    "DrQv2",
    "GPLDrQ",
    "Model",
    "PixelSAC",
    "UserError",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Load torch when an agent is asked for, not when the package is named: `pessimism list` is instant."""
    if name == "UserError":
        from pessimism.errors import UserError

        return UserError
    if name == "Callback":
        from pessimism.training.loop import Callback

        return Callback
    if name in __all__:
        from pessimism import api

        return getattr(api, name)
    raise AttributeError(f"module 'pessimism' has no attribute {name!r}")
