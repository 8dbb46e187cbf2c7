"""Settings on the command line: `--name value` pairs for one run, `--name V1,V2` for a sweep, and files of them."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from pessimism.config import leaves, merge, nested, option_names
from pessimism.errors import UserError, nearest

OUT = "--out"
CONFIG = "--config"


def parse_options(rest: list[str]) -> tuple[dict[str, Any], Path | None]:
    """Return the settings and the directory asked for by `--name value` pairs, YAML values."""
    known = _known_options()
    values: dict[str, Any] = {}
    out: Path | None = None
    for option, text in _pairs(rest, [*known, OUT, CONFIG]):
        if option == OUT:
            out = Path(text)
        elif option == CONFIG:
            values = merge(_read_yaml(Path(text)), values)
        else:
            values = merge(values, nested(known[option], _value(text, option)))
    return values, out


def parse_axes(rest: list[str]) -> dict[str, list[Any]]:
    """Return the values that each setting takes, by its dotted name: `--name V1,V2,...` pairs, YAML values."""
    known = _known_options()
    axes: dict[str, list[Any]] = {}
    for option, text in _pairs(rest, [*known, CONFIG]):
        if option == CONFIG:
            axes = {name: [value] for name, value in leaves(_read_yaml(Path(text)))} | axes
        else:
            axes[known[option]] = [_value(part, option) for part in _parts(text)]
    return axes


def _parts(text: str) -> list[str]:
    """Split at commas that are in no brackets."""
    return re.split(r",(?![^\[{(]*[\]})])", text)


def _known_options() -> dict[str, str]:
    return {f"--{name.replace('_', '-')}": name for name in option_names()}


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
    except yaml.YAMLError:
        raise UserError(f"{option}: {text!r} is not a value") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a list of settings: write them as name: value")
    return values
