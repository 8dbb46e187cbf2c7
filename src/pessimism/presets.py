"""The algorithms: each is a name for settings, with where they come from."""

from typing import Any, NamedTuple

from pessimism.config import HERE, Config, field_info, leaves, merge, nested
from pessimism.errors import UserError, nearest

SAC_20 = "paper, App. B.2, SAC-20"


class Preset(NamedTuple):
    """What an algorithm changes of the defaults, which are GPL-SAC's."""

    summary: str
    source: str
    changes: dict[str, Any]  # dotted name -> value


PRESETS = {
    "gpl-sac": Preset("SAC with learned pessimism: 10 residual critics, 20 updates per step", "paper, Alg. 1", {}),
    "sac-20": Preset(
        "SAC with 20 updates per step: 2 plain critics, their minimum",
        SAC_20,
        {"critic.form": "plain", "critic.members": 2, "pessimism.name": "fixed", "pessimism.beta": 0.5},
    ),
    "sac": Preset(
        "SAC with one update per step: 2 plain critics, their minimum",
        "Haarnoja et al., 2018, in the implementation of SAC-20",
        {
            "critic.form": "plain",
            "critic.members": 2,
            "pessimism.name": "fixed",
            "pessimism.beta": 0.5,
            "updates_per_step": 1,
        },
    ),
}


def preset(name: str) -> Preset:
    """Return a preset by its name, or say which ones there are."""
    if name not in PRESETS:
        raise UserError(f"unknown algorithm {name}{nearest(name, PRESETS) or ': see pessimism list'}")
    return PRESETS[name]


def preset_values(name: str) -> dict[str, Any]:
    """Return the preset's settings as nested values, without an environment."""
    values = Config(env="any", algorithm=name).model_dump(exclude={"env"})
    changes: dict[str, Any] = {}
    for path, value in preset(name).changes.items():
        changes = merge(changes, nested(path, value))
    return merge(values, changes)


def sources(config: Config, task_source: str) -> dict[str, str]:
    """Return where each setting's value comes from."""
    chosen = PRESETS[config.algorithm] if config.algorithm in PRESETS else Preset("", HERE, {})
    found: dict[str, str] = {}
    for path, value in leaves(config):
        _, source, default = field_info(config, path)
        if path == "target_entropy":
            found[path] = task_source
        elif chosen.changes.get(path, object()) == value:
            found[path] = chosen.source
        else:
            found[path] = source if value == default else "asked for"
    return found
