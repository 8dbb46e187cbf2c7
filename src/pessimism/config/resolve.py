"""From a command line, a file or Python to a checked config, and back to text. All callers use this module.

`parse_options` turns a command line into nested values. `resolved` applies them to a preset and checks the result;
sweeps and the Python classes call it with their own values.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from pessimism.config.presets import PRESETS, Changes, Preset
from pessimism.config.schema import Config
from pessimism.config.settings import HERE, MOST, ModelSettings, PixelSettings
from pessimism.config.strategies import STRATEGIES
from pessimism.config.tasks import canonical, task_name
from pessimism.errors import UserError, nearest

OUT = "--out"
CONFIG = "--config"
OPERATIONAL = ("steps", "log", "checkpoint", "threads", "replay_file", "resume", "prior")
"""Settings that may change when a run is resumed: they do not change what it computes.

Prior data may be in another place. That they are the same is what `prior_checksum` ensures.
"""
SEVERAL = ("--prior",)  # options that take several values

Leaf = tuple[str, Any]


def is_operational(path: str) -> bool:
    """Tell whether the setting at a dotted path may change when a run is resumed."""
    return path.partition(".")[0] in OPERATIONAL


def leaves(settings: BaseModel | Mapping[str, Any], prefix: str = "") -> Iterator[Leaf]:
    """Yield (dotted name, value) for every setting."""
    items = settings.model_dump().items() if isinstance(settings, BaseModel) else settings.items()
    for name, value in items:
        if isinstance(value, Mapping) and name != "env_kwargs":
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def field_info(settings: BaseModel, path: str) -> tuple[str, str, Any]:
    """Return help text, source and default of the setting at a dotted path."""
    *sections, name = path.split(".")
    for section in sections:
        settings = getattr(settings, section)
    field = type(settings).model_fields[name]
    extra = field.json_schema_extra
    source = extra["source"] if isinstance(extra, dict) else HERE
    return field.description or "which strategy", str(source), field.default


def merge(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` updated by `changes`, section by section.

    A different `pessimism.name` starts from that strategy's defaults: the fields of the old one would not fit.
    """
    merged = dict(base)
    for name, value in changes.items():
        old = merged.get(name)
        if isinstance(value, Mapping) and isinstance(old, dict) and name != "env_kwargs":
            other = "name" in value and value["name"] != old.get("name", value["name"])
            merged[name] = dict(value) if other else merge(old, value)
        else:
            merged[name] = value
    return merged


def nested(path: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return {"a": {"b": value}} for the path "a.b"."""
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


def unfolded(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"a": {"b": value}, ...} for {"a.b": value, ...}."""
    values: dict[str, Any] = {}
    for path, value in changes.items():
        values = merge(values, nested(path, value))
    return values


def option_names() -> list[str]:
    """Return the dotted names of all settings, those of every strategy included."""
    names = [name for name, _ in leaves(Config.model_construct(env="any")) if not name.startswith("pessimism.")]
    names += [f"model.{name}" for name in ModelSettings.model_fields]
    names += [f"pixels.{name}" for name in PixelSettings.model_fields]
    return names + sorted({f"pessimism.{name}" for entry in STRATEGIES.values() for name in entry.model_fields})


def validated(values: Mapping[str, Any]) -> Config:
    """Return the config, or say in one line which setting is wrong."""
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        path = [str(part) for part in first["loc"]]
        if path and path[0] == "pessimism" and len(path) > 1:
            del path[1]  # the union's tag
        name = ".".join(path)
        if first["type"] == "extra_forbidden" and name in option_names():
            raise UserError(f"the strategy {values['pessimism']['name']} has no setting {path[-1]}") from None
        if first["type"] == "union_tag_invalid":
            known = ", ".join(STRATEGIES)
            raise UserError(f"pessimism.name: there is no strategy {first['ctx']['tag']}, only {known}") from None
        if first["type"] == "extra_forbidden":
            raise UserError(f"unknown setting {name}{nearest(name, option_names())}") from None
        if first["type"] == "missing" and name in option_names():
            raise UserError(f"{name} is missing: give --{name.replace('_', '-')}") from None
        if first["type"] == "missing":  # of a setting that takes several values
            *setting, last = path
            raise UserError(f"{'.'.join(setting)}: {int(last) + 1} values or more are needed") from None
        message = first["msg"].removeprefix("Value error, ")
        given = repr(first["input"])
        given = given if len(given) <= 60 else f"{given[:60]}..."
        shown = f", not {given}" if name and not isinstance(first["input"], dict) else ""
        raise UserError(f"{name + ': ' if name else ''}{message}{shown}") from None
    for name, value in leaves(config):
        for number in value if isinstance(value, tuple | list) else (value,):
            if isinstance(number, int | float) and abs(number) > MOST:
                raise UserError(f"{name}: numbers up to {MOST} are possible, not {number}")
    return config


def differences(old: Config, new: Config) -> list[str]:
    """Return one text for each setting that changes what the run computes."""
    before, after = dict(leaves(old)), dict(leaves(new))
    return [
        f"{name}: {before.get(name)} there, {after.get(name)} asked for"
        for name in {**before, **after}
        if not is_operational(name) and before.get(name) != after.get(name)
    ]


def preset(name: str) -> Preset:
    """Return a preset by its name, or say which ones there are."""
    if name not in PRESETS:
        raise UserError(f"unknown algorithm {name}{nearest(name, PRESETS) or ': see pessimism list'}")
    return PRESETS[name]


def _on_task(entry: Preset, env: str) -> Changes:
    """Return what a preset changes further for a task; most presets change nothing."""
    return entry.tasks.get(task_name(canonical(env)), {}) if entry.tasks else {}


def preset_values(name: str, env: str | None = None) -> dict[str, Any]:
    """Return the preset's settings for a task as nested values, without the environment itself."""
    values = Config.model_construct(env="any", algorithm=name).model_dump(exclude={"env"})
    entry = preset(name)
    return merge(values, unfolded(entry.changes | _on_task(entry, env or "")))


def resolved(name: str, asked: Mapping[str, Any]) -> Config:
    """Return the config of an algorithm with the nested values asked for, its environment among them."""
    other = asked.get("algorithm", name)
    if other != name:
        raise UserError(f"algorithm = {other} does not go with {name}: an algorithm is chosen by its own name")
    values = preset_values(name, str(asked.get("env")))
    return validated(merge(values, asked))


def sources(config: Config, entropy_source: str) -> dict[str, str]:
    """Return where each setting's value comes from."""
    entry = PRESETS.get(config.algorithm, Preset("", "", HERE, {}))
    further = _on_task(entry, config.env)
    changes = entry.changes | further
    found: dict[str, str] = {}
    for path, value in leaves(config):
        _, source, default = field_info(config, path)
        if path == "target_entropy":
            found[path] = entropy_source
        elif changes.get(path, object()) == value:
            found[path] = entry.source if path in further else entry.sources.get(path, entry.source)
        else:
            found[path] = source if value == default else "asked for"
    return found


def dump_yaml(config: Config, entropy_source: str) -> str:
    """Return the config as YAML, with the source of each value as a comment behind it."""
    lines: list[str] = []
    section, origin = "", sources(config, entropy_source)
    for path, value in leaves(config):
        parent, _, name = path.rpartition(".")
        if parent != section:
            section = parent
            lines += [f"{parent}:"] if parent else []
        text = yaml.safe_dump({name: value}, default_flow_style=True, width=10_000).strip()[1:-1]
        lines.append(f"{'  ' if parent else ''}{text}  # {origin[path]}")
    return "\n".join(lines) + "\n"


def parse_options(rest: list[str], *, trust_env: bool = False) -> tuple[dict[str, Any], Path | None]:
    """Return the settings and the directory asked for by `--name value` pairs, YAML values."""
    known = _options()
    values: dict[str, Any] = {}
    from_files: dict[str, Any] = {}
    out: Path | None = None
    for option, text in _pairs(_joined(rest), [*known, OUT, CONFIG]):
        if option == OUT:
            out = Path(text)
        elif option == CONFIG:
            from_files = merge(read_yaml(Path(text)), from_files)
        else:
            values = merge(values, nested(known[option], _value(text, option)))
    if not (trust_env or "env" in values):
        _check_trusted(from_files)
    return merge(from_files, values), out


def parse_axes(rest: list[str]) -> dict[str, list[Any]]:
    """Return the values that each setting takes, by its dotted name: `--name V1,V2,...` pairs, YAML values."""
    known = _options()
    axes: dict[str, list[Any]] = {}
    for option, text in _pairs(rest, [*known, CONFIG]):
        if option == CONFIG:
            values = read_yaml(Path(text))
            _check_trusted(values)
            axes = {name: [value] for name, value in leaves(values)} | axes
        else:
            axes[known[option]] = [_value(part, option) for part in _parts(text)]
    return axes


def _check_trusted(values: Mapping[str, Any]) -> None:
    """Refuse a file that names a module: the user decides what Python imports, not a file."""
    module, colon, _ = str(values.get("env", "")).partition(":")
    if colon:
        raise UserError(
            f"the file names the environment {values['env']}, for which Python would run the module {module}: "
            "if you trust it, name it with --env"
        )


def _parts(text: str) -> list[str]:
    """Split at commas that are in no brackets."""
    return re.split(r",(?![^\[{(]*[\]})])", text)


def _options() -> dict[str, str]:
    return {f"--{name.replace('_', '-')}": name for name in option_names()}


def _joined(rest: list[str]) -> list[str]:
    """Return a command line with the values of options that have several as one YAML list."""
    joined: list[str] = []
    tokens = list(rest)
    while tokens:
        joined.append(tokens.pop(0))
        if joined[-1] in SEVERAL:
            count = next((index for index, token in enumerate(tokens) if token.startswith("--")), len(tokens))
            values, tokens = tokens[:count], tokens[count:]
            joined += [yaml.safe_dump(values, default_flow_style=True, width=10_000)] if count > 1 else values
    return joined


def _pairs(rest: list[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    tokens = iter(rest)
    for token in tokens:
        option, equals, inline = token.partition("=")
        if option not in known:
            raise UserError(f"unknown option {token}{nearest(option, known)}")
        text = inline if equals else next(tokens, None)
        if text is None or (not equals and text.startswith("--")):
            raise UserError(f"{option} needs a value")
        yield option, text


def _value(text: str, option: str) -> Any:  # noqa: ANN401
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        raise UserError(f"{option}: {shown!r} is not a value") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the settings in a file."""
    try:
        values = yaml.safe_load(path.read_text())
    except RecursionError:
        raise UserError(f"{path} cannot be read: it is nested too deeply") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a list of settings: write them as name: value")
    for name in values:
        section, dot, rest = str(name).partition(".")
        if dot and str(name) in option_names():
            raise UserError(f"{path}: write {name} as a section, {section}: {{{rest}: ...}}")
    return {str(name): value for name, value in values.items()}
