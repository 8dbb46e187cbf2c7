"""From directories to runs. Whatever is broken, unfinished or missing stays in the list, with the reason."""

import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray

from pessimism import records
from pessimism.analysis.curves import by_metric, read_rows
from pessimism.config.presets import PRESETS
from pessimism.config.resolve import OPERATIONAL, leaves, preset_values, validated
from pessimism.config.schema import Config
from pessimism.errors import UserError

Array = NDArray[np.float64]
Settings = dict[str, Any]
"""Dotted name -> value, as `config.yaml` has them: also those of another version of this library."""

LOADER = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # the same in C, where PyYAML was built with it: for many runs
SIGNS_OF_A_RUN = {records.CONFIG, records.METRICS, records.MANIFEST, records.EVALUATIONS}
IDENTITY = ("algorithm", "env", "seed")
TAIL = 4096  # bytes of an output.log in which its last line is
TASK = ("env", "env_kwargs", "target_entropy")
INCIDENTAL = (*OPERATIONAL, "evaluation", "bias", "compile", "device")  # they make no other algorithm
LARGEST = 1e100  # beyond it sums of squares overflow, and no return or bias is that large
LONGEST = 150  # characters of an algorithm's or a task's name, which also names files


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
    """Return the run in a directory. One that cannot be read is broken, and does not end the report."""
    try:
        return _read_run(path, name)
    except Exception as error:  # a damaged file has countless forms
        problem = f"cannot be read: {type(error).__name__}: {one_line(error)[:200]}"
        return Run(path, name, "broken", problems=(problem,))


def _read_run(path: Path, name: str) -> Run:
    problems: list[str] = []
    settings = _settings(path, problems)
    manifest = _manifest(path / records.MANIFEST, problems)
    series = _series(path / records.METRICS, problems)
    evaluations = _evaluations(path, series, problems)
    timing = _series(path / records.TIMING, problems)
    run = Run(path, name, "unfinished", settings=settings, manifest=manifest, series=series)
    state: Literal["done", "unfinished", "broken"] = "unfinished"
    if any(key not in settings for key in IDENTITY):
        state = "broken"
    elif (path / records.DONE).exists():
        done = _json(path / records.DONE, problems).get("step", 0)
        state = "done" if _is_number(done) and done >= run.setting("steps", 0) else "unfinished"
    if state == "unfinished":
        problems.append(f"unfinished: {run.reached:,} of {run.setting('steps', 0):,} steps; may still be running")
    if state != "done" and (last := last_output(path)):
        problems.append(f"its {records.OUTPUT} ends with: {last}")
    if state != "broken" and not evaluations.steps:
        problems.append("no evaluation yet")
    return replace(
        run,
        state=state,
        label=_short(str(settings.get("algorithm", ""))),
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
    return _short(f"{settings.get('env', '')}{' (' + ', '.join(extras) + ')' if extras else ''}")


def _short(name: str) -> str:
    """Return a name of bearable length; those that begin alike stay apart."""
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}... {zlib.crc32(name.encode()):08x}"


def _plain(value: Any) -> Any:  # noqa: ANN401
    return list(value) if isinstance(value, tuple) else value


def _settings(path: Path, problems: list[str]) -> Settings:
    try:
        values = yaml.load((path / records.CONFIG).read_text(), Loader=LOADER)
    except FileNotFoundError:
        problems.append(f"there is no {records.CONFIG}")
        return {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        problems.append(f"{records.CONFIG} cannot be read: {getattr(error, 'problem', None) or one_line(error)}")
        return {}
    settings = {str(name): value for name, value in leaves(values)} if isinstance(values, dict) else {}
    missing = [name for name in IDENTITY if name not in settings]
    if missing:
        problems.append(f"{records.CONFIG} does not say {' and '.join(missing)}")
    return _usable(settings, problems)


USABLE: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "algorithm": (lambda value: isinstance(value, str), "a name"),
    "env": (lambda value: isinstance(value, str), "a name"),
    "seed": (lambda value: type(value) is int and value >= 0, "a whole number"),
    "steps": (lambda value: type(value) is int and 0 < value < 10**15, "a number of steps"),
    "action_repeat": (lambda value: type(value) is int and value > 0, "a number of frames"),
    "env_kwargs": (lambda value: isinstance(value, Mapping), "a table of arguments"),
}
"""Settings that the report computes with -> what they must be."""


def _usable(settings: Settings, problems: list[str]) -> Settings:
    """Return the settings without those that are not what they must be, each of which is a problem."""
    bad = [name for name, (fits, _) in USABLE.items() if name in settings and not fits(settings[name])]
    for name in bad:
        shown = one_line(settings[name])[:60]
        problems.append(f"{records.CONFIG}: {name} is not {USABLE[name][1]}: {shown}")
    return {name: value for name, value in settings.items() if name not in bad}


def _manifest(path: Path, problems: list[str]) -> dict[str, Any]:
    """Return the manifest with the sections that are tables, as they must be."""
    values = _json(path, problems)
    bad = [name for name in ("versions", "machine", "env") if not isinstance(values.get(name, {}), dict)]
    if bad:
        problems.append(f"{path.name}: {' and '.join(bad)} cannot be read")
    return {name: value for name, value in values.items() if name not in bad}


def _json(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        problems.append(f"there is no {path.name}")
        return {}
    except (OSError, ValueError, RecursionError) as error:
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
        bad = [step for step, value in zip(steps, values, strict=True) if not _is_number(value)]
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
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as stored:
            steps, returns = stored["timesteps"], stored["results"]
        if not (steps.dtype.kind in "iu" and returns.dtype.kind in "iuf" and returns.ndim == 2 and returns.size):
            raise ValueError("not steps and the returns of episodes")
        if len(steps) != len(returns) or (np.diff(steps) <= 0).any() or steps[0] < 0:
            raise ValueError("its steps do not rise, or are not those of the returns")
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        problems.append(f"{file.name} cannot be read ({one_line(error)}): means of {records.METRICS} instead")
        return fallback
    usable = np.abs(returns := returns.astype(np.float64)) < LARGEST
    found = Evaluations(steps.tolist(), list(np.where(usable, returns, np.nan)))
    bad = steps[~usable.all(axis=1)].tolist()
    if bad:
        problems.append(f"{file.name} has returns that are not numbers at step {bad[0]:,}{_more(bad)}")
    return found


def _is_number(value: object) -> bool:
    """Tell numbers that can be computed with from infinite ones, huge ones and everything else."""
    return isinstance(value, int | float) and abs(value) < LARGEST


def last_output(path: Path) -> str:
    """Return the last line that a run in a sweep printed: one that fails ends with the reason."""
    try:
        with (path / records.OUTPUT).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""


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
