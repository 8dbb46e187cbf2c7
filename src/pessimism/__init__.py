"""Sample-efficient reinforcement learning whose value estimates can be trusted."""

import os
from importlib import import_module
from typing import Any

# Threads of an update that wait for each other spin for some microseconds and then sleep. libgomp's default is to
# spin for milliseconds, with which a step is many times slower where other programs want the processor too: see
# docs/performance.md. Read when torch is first loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

_MODULES = {"Algorithm": "api", "Callback": "training.loop", "UserError": "errors"}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Load torch when a class is asked for, not with the package: `pessimism list` is instant.

    Type checkers and editors read `__init__.pyi`, which tools/stub.py writes.
    """
    if name in _MODULES:
        return getattr(import_module(f"pessimism.{_MODULES[name]}"), name)
    if name == "__all__":
        return __dir__()
    if name[0].isupper():  # a submodule's name is not, and presets must not be loaded while one is imported
        from pessimism.config.presets import PRESETS

        if name in {preset.python for preset in PRESETS.values()}:
            from pessimism.api import CLASSES

            return CLASSES[name]
    raise AttributeError(f"module 'pessimism' has no attribute {name!r}")


def __dir__() -> list[str]:
    from pessimism.config.presets import PRESETS

    return sorted([*_MODULES, *(preset.python for preset in PRESETS.values())])
