"""Algorithms, their settings and tasks, as tables for the terminal."""

from rich.table import Table

from pessimism.config.presets import PRESETS
from pessimism.config.resolve import field_info, leaves, preset_values, sources
from pessimism.config.schema import Config
from pessimism.config.tasks import DMC_EASY, DMC_HARD, DMC_MEDIUM, PAPER_TASKS, target_entropy


def settings_table(algorithm: str, *, options: bool = False) -> Table:
    """Return all settings of an algorithm with their sources; `options`: as they are named on the command line."""
    config = Config.model_validate(preset_values(algorithm) | {"env": "any"})
    table = Table("option" if options else "setting", "value", "what", "source", title=f"settings of {algorithm}")
    origin = sources(config, field_info(config, "target_entropy")[1])
    for path, value in leaves(config):
        text, _, _ = field_info(config, path)
        shown = "" if path == "env" else "-" if value is None else str(value)
        table.add_row(f"--{path.replace('_', '-')}" if options else path, shown, text, origin[path])
    return table


def overview() -> list[Table]:
    """Return tables of the algorithms and of the tasks."""
    algorithms = Table("algorithm", "what", "source", title="algorithms")
    for name, one in PRESETS.items():
        algorithms.add_row(name, one.summary, one.source)
    tasks = Table("task", "target entropy", "source", title="tasks of the paper (any Gymnasium id works)")
    for task in PAPER_TASKS:
        entropy, source = target_entropy(task, 0)
        tasks.add_row(task, str(entropy), source)
    suite = Table("set", "tasks", title="DeepMind Control, from states or pixels (all other tasks of it work too)")
    for name, members in (("easy", DMC_EASY), ("medium (the paper's)", DMC_MEDIUM), ("hard", DMC_HARD)):
        suite.add_row(name, ", ".join(members))
    return [algorithms, tasks, suite]
