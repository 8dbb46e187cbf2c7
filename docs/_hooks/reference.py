"""Parts of the reference that are made from the library's tables: `<!-- table: NAME -->` in a page becomes one."""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from pessimism.cli import _parser
from pessimism.config.presets import PRESETS, Preset
from pessimism.config.resolve import field_info, leaves, preset_values
from pessimism.config.schema import Config
from pessimism.config.settings import ModelSettings, PixelSettings
from pessimism.config.strategies import STRATEGIES

PLACE = re.compile(r"<!-- table: ([\w-]+) -->")
SETTING = ("setting", "default", "what", "source")


def on_page_markdown(markdown: str, **_: Any) -> str:  # noqa: ANN401
    """Put the tables in."""
    return PLACE.sub(lambda match: "\n".join(TABLES[match[1]]()), markdown)


def classes() -> Iterator[str]:
    """Yield a class for each preset."""
    for name, entry in PRESETS.items():
        yield f"\n::: pessimism.{entry.python}\n    options: {{members: false, show_bases: false}}\n"
        yield f"The preset [`{name}`](settings.md#{name}).\n"


def commands() -> Iterator[str]:
    """Yield every command with its options."""
    for name, parser in _commands().items():
        yield f"\n## {name}\n\n{_sentence(parser.description or '')}\n"
        usage = re.sub(r"\s+", " ", parser.format_usage().replace("[-h] ", "").replace(" [-h]", ""))
        more = " [--SETTING VALUE ...]" if name in ("train", "sweep", "reproduce") else ""
        yield f"```\n{usage.removeprefix('usage: ').strip()}{more}\n```\n"
        yield from _table(
            ("argument", "what"),
            [_shown(action) for action in parser._actions if "--help" not in action.option_strings],
        )
        yield f"\n{_sentence(parser.epilog)}" if parser.epilog else ""


def settings() -> Iterator[str]:
    """Yield all settings of a run, section by section, with the values of `gpl-sac`."""
    config = Config.model_validate(preset_values("gpl-sac") | {"env": "any"})
    sections: dict[str, list[tuple[str, ...]]] = {}
    for path, value in leaves(config):
        sections.setdefault(path.rpartition(".")[0], []).append(_described(config, path, value))
    del sections["pessimism"]  # each strategy has its own
    for section, rows in sections.items():
        yield f"\n### {section or 'A run'}\n"
        yield from _table(SETTING, rows)
    for section, model in (("model", ModelSettings()), ("pixels", PixelSettings())):
        yield f"\n### {section}\n\n{model.__doc__}\n"
        yield from _fields(section, model)


def strategies() -> Iterator[str]:
    """Yield every strategy with its settings."""
    for name, entry in STRATEGIES.items():
        yield f"\n### {name}\n\n{entry.__doc__}\n"
        yield from _fields("pessimism", entry())


def presets() -> Iterator[str]:
    """Yield what each preset changes."""
    for name, entry in PRESETS.items():
        yield f"\n### {name}\n\n{_sentence(entry.summary)} Source: {entry.source}. Class: `{entry.python}`.\n"
        rows = [
            (f"`{path}`", _value(value), entry.sources.get(path, entry.source))
            for path, value in entry.changes.items()
        ]
        yield from _table(("setting", "value", "source"), rows)
        yield from _by_task(entry)


def _by_task(entry: Preset) -> Iterator[str]:
    tasks: dict[str, list[str]] = {}  # those with the same changes stand together
    for task, changes in entry.tasks.items():
        text = ", ".join(f"`{path}` {_value(value)}" for path, value in changes.items())
        tasks.setdefault(text, []).append(task)
    yield from _table(("on tasks", "also"), [(", ".join(names), text) for text, names in tasks.items()])


def _fields(section: str, values: BaseModel) -> Iterator[str]:
    names = [name for name in type(values).model_fields if name != "name"]
    yield from _table(SETTING, [_described(values, name, getattr(values, name), f"{section}.") for name in names])


def _described(values: BaseModel, path: str, value: object, prefix: str = "") -> tuple[str, str, str, str]:
    text, source, _ = field_info(values, path)
    return f"`{prefix}{path}`", "" if path == "env" else _value(value), text, source


def _commands() -> dict[str, argparse.ArgumentParser]:
    group = next(action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    return group.choices


def _shown(action: argparse.Action) -> tuple[str, str]:
    names = action.option_strings or [str(action.metavar or action.dest)]
    return ", ".join(f"`{name}`" for name in names), action.help or ""


def _value(value: object) -> str:
    return "none" if value is None else f"`{list(value) if isinstance(value, tuple) else value}`"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield "\n" + _row(head)
        yield _row(["---"] * len(head))
        yield from map(_row, rows)
        yield ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "classes": classes,
    "commands": commands,
    "settings": settings,
    "strategies": strategies,
    "presets": presets,
}
