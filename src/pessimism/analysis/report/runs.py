"""From directories to runs. Whatever is broken, unfinished or missing stays in the list, with the reason."""

import json
import math
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray

from pessimism import records
from pessimism.analysis.curves import by_metric, read_rows
from pessimism.config import OPERATIONAL, Config, leaves, validated
from pessimism.errors import UserError
from pessimism.presets import PRESETS, preset_values

Array = NDArray[np.float64]
Settings = dict[str, Any]
"""Dotted name -> value, as `config.yaml` has them: also those of another version of this library."""

LOADER = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # the same in C, where PyYAML was built with it: for many runs
SIGNS_OF_A_RUN = {records.CONFIG, records.METRICS, records.MANIFEST, records.EVALUATIONS}
IDENTITY = ("algorithm", "env", "seed")
TASK = ("env", "env_kwargs", "target_entropy")
INCIDENTAL = (*OPERATIONAL, "evaluation", "bias", "compile", "device")  # they make no other algorithm


@dataclass(frozen=True)
class Evaluations:
    """Returns of the evaluation episodes: one step and one array of episodes for each evaluation."""

    steps: Sequence[int] = ()
    returns: Sequence[Array] = ()


@dataclass(frozen=True)
class Run:
    """One run as its directory tells it."""

    path: Path
    name: str
    state: Literal["done", "unfinished", "broken", "repeated", "missing"]
    label: str = ""  # names its series
    task: str = ""
    seed: int | None = None
    settings: Settings = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    series: Mapping[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    evaluations: Evaluations = field(default_factory=Evaluations)
    timing: Mapping[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def readable(self) -> bool:
        """Whether it says what it is, so that its numbers have a place."""
        return self.state in ("done", "unfinished")

    @property
    def reached(self) -> int:
        """The last step that anything was recorded for."""
        return max((steps[-1] for steps, _ in self.series.values()), default=0)

    def setting(self, name: str, default: int) -> int:
        """Return a whole-number setting."""
        value = self.settings.get(name, default)
        return value if isinstance(value, int) else default


def run_directories(directory: Path) -> Iterator[Path]:
    """Yield every directory that holds a run, or what is left of one."""
    for place, inside, files in os.walk(directory):
        inside.sort()
        if SIGNS_OF_A_RUN & set(files):
            inside.clear()
            yield Path(place)


def read_run(path: Path, name: str) -> Run:
    """Return the run in a directory."""
    problems: list[str] = []
    settings = _settings(path, problems)
    manifest = _json(path / records.MANIFEST, problems)
    series = _series(path / records.METRICS, problems)
    evaluations = _evaluations(path, series, problems)
    timing = _series(path / records.TIMING, problems)
    run = Run(path, name, "unfinished", settings=settings, manifest=manifest, series=series)
    state: Literal["done", "unfinished", "broken"] = "unfinished"
    if any(key not in settings for key in IDENTITY):
        state = "broken"
    elif (path / records.DONE).exists():
        done = _json(path / records.DONE, problems).get("step", 0)
        state = "done" if done >= run.setting("steps", 0) else "unfinished"
    if state == "unfinished":
        problems.append(f"unfinished: {run.reached:,} of {run.setting('steps', 0):,} steps; may still be running")
    if state != "broken" and not evaluations.steps:
        problems.append("no evaluation yet")
    return replace(
        run,
        state=state,
        label=str(settings.get("algorithm", "")),
        task=_task(settings),
        seed=settings.get("seed"),
        evaluations=evaluations,
        timing=timing,
        problems=tuple(problems),
    )


def changes(settings: Settings) -> Settings:
    """Return what a run's settings change of its preset, by name: the value there."""
    algorithm, env = str(settings.get("algorithm")), str(settings.get("env"))
    if algorithm not in PRESETS:
        return {}
    preset = {name: _plain(value) for name, value in leaves(_preset(algorithm, env))}
    if preset["target_entropy"] is None:  # the task decides
        preset["target_entropy"] = settings.get("target_entropy")
    # What an older version wrote has no say on settings that came after it.
    return {name: value for name, value in settings.items() if name not in IDENTITY and value != preset.get(name)}


@cache
def _preset(algorithm: str, env: str) -> Config:
    return validated(preset_values(algorithm, env) | {"env": env})


def labelled(runs: Sequence[Run]) -> list[Run]:
    """Tell variants of an algorithm apart by the settings in which they differ."""
    variants = [
        {name: value for name, value in changes(run.settings).items() if learns_otherwise(name)} for run in runs
    ]
    found: list[Run] = []
    for run, own in zip(runs, variants, strict=True):
        others = [variant for other, variant in zip(runs, variants, strict=True) if other.label == run.label]
        telling = [name for name in own if any(other.get(name) != own[name] for other in others)]
        suffix = ", ".join(f"{name} {own[name]}" for name in telling)
        found.append(replace(run, label=f"{run.label} ({suffix})" if suffix else run.label))
    return found


def without_repeats(runs: Sequence[Run]) -> list[Run]:
    """Keep one run of each label, task and seed in the means; a second is named and left out of them."""
    first: dict[tuple[str, str, int | None], Run] = {}
    kept: list[Run] = []
    for run in runs:
        key = (run.label, run.task, run.seed)
        if run.readable and first.setdefault(key, run) is not run:
            problem = f"the same algorithm, task and seed as {first[key].name}: left out of all figures"
            kept.append(replace(run, state="repeated", problems=(problem, *run.problems)))
        else:
            kept.append(run)
    return kept


def learns_otherwise(name: str) -> bool:
    """Tell whether a setting changes what an algorithm learns on a task."""
    return name.partition(".")[0] not in (*TASK, *INCIDENTAL)


def _task(settings: Settings) -> str:
    """Return the task's id, with everything that makes it another task."""
    extras = [f"{name} {value}" for name, value in (settings.get("env_kwargs") or {}).items()]
    return f"{settings.get('env', '')}{' (' + ', '.join(extras) + ')' if extras else ''}"


def _plain(value: Any) -> Any:  # noqa: ANN401
    return list(value) if isinstance(value, tuple) else value


def _settings(path: Path, problems: list[str]) -> Settings:
    try:
        values = yaml.load((path / records.CONFIG).read_text(), Loader=LOADER)
    except FileNotFoundError:
        problems.append(f"there is no {records.CONFIG}")
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        problems.append(f"{records.CONFIG} cannot be read: {getattr(error, 'problem', None) or one_line(error)}")
        return {}
    settings = dict(leaves(values)) if isinstance(values, dict) else {}
    missing = [name for name in IDENTITY if name not in settings]
    if missing:
        problems.append(f"{records.CONFIG} does not say {' and '.join(missing)}")
    return settings


def _json(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        problems.append(f"there is no {path.name}")
        return {}
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {one_line(error)}")
        return {}
    return values if isinstance(values, dict) else {}


def _series(path: Path, problems: list[str]) -> dict[str, tuple[list[int], list[float]]]:
    """Return the metrics of a file, with gaps (NaN) where a value is not a finite number."""
    try:
        rows, torn = read_rows(path)
    except OSError:
        problems.append(f"there is no {path.name}")
        return {}
    if torn:
        after = f" and the {torn - 1} after it are" if torn > 1 else " is"
        problems.append(f"{path.name}: line {len(rows) + 1} is not whole; it{after} not used")
    series = by_metric(rows)
    for name, (steps, values) in series.items():
        bad = [
            step
            for step, value in zip(steps, values, strict=True)
            if not (isinstance(value, int | float) and math.isfinite(value))
        ]
        if bad:
            problems.append(f"{name} is not a number at step {bad[0]:,}{_more(bad)}")
            finite = [math.nan if step in set(bad) else value for step, value in zip(steps, values, strict=True)]
            series[name] = (steps, finite)
    return series


def _evaluations(
    path: Path, series: Mapping[str, tuple[list[int], list[float]]], problems: list[str]
) -> Evaluations:
    """Return the evaluation episodes, or the means in the metrics where their file is not to be had."""
    steps, means = series.get("eval/mean_reward", ([], []))
    fallback = Evaluations(steps, [np.array([value]) for value in means])
    file = path / records.EVALUATIONS
    if not file.exists():
        if steps:
            problems.append(f"there is no {file.name}: the means of {records.METRICS} stand for the episodes")
        return fallback
    try:
        with np.load(file, allow_pickle=False) as stored:
            found = Evaluations(stored["timesteps"].tolist(), list(stored["results"].astype(np.float64)))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        problems.append(f"{file.name} cannot be read ({one_line(error)}): means of {records.METRICS} instead")
        return fallback
    bad = [step for step, returns in zip(found.steps, found.returns, strict=True) if not np.isfinite(returns).all()]
    if bad:
        problems.append(f"{file.name} has returns that are not numbers at step {bad[0]:,}{_more(bad)}")
    return found


def _more(items: Sequence[object]) -> str:
    return f" and {len(items) - 1} more" if len(items) > 1 else ""


def one_line(error: object) -> str:
    """Return a message without its line breaks."""
    return " ".join(str(error).split())


def checked(directories: Sequence[Path]) -> list[Path]:
    """Refuse what is not a directory."""
    for directory in directories:
        if not directory.is_dir():
            raise UserError(f"there is no directory {directory}: give the directory of a run or of several")
    return list(directories)
