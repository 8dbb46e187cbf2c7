"""Prior data from run directories, npz files and Minari data sets: read, checked, and made alike.

Everything is checked before a run starts. Nothing is unpickled, and nothing that a file names is imported.
"""

import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pessimism import records
from pessimism.envs.control import ControlEnv
from pessimism.errors import UserError
from pessimism.extras import missing
from pessimism.replay.prior import Recorded
from pessimism.training.checkpoint import CheckpointStore
from pessimism.training.directory import read_config
from pessimism.training.resources import check_prior
from pessimism.types import Array

MINARI = "minari:"  # before the id of a data set
FILE = "transitions.npz"  # of a directory that `pessimism dataset` wrote
OTHER_NAMES = {"terminations": "terminals", "truncations": "timeouts"}  # D4RL's
ROUNDING = 1e-4  # by which an action may pass its bounds, in units of half their range

Arrays = Mapping[str, NDArray[Any]]
"""Arrays [T, ...] by Minari's names: observations, actions, rewards, terminations, ..."""


def read_prior(names: Sequence[str], env: ControlEnv) -> Recorded:
    """Return the steps of all sources, one after the other, checked against the environment."""
    parts = [_read(name, env) for name in names]
    return Recorded(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def absolute(name: str) -> str:
    """Return a source's name as it is known from every directory."""
    return name if name.startswith(MINARI) else str(Path(name).absolute())


def _read(name: str, env: ControlEnv) -> Recorded:
    if name.startswith(MINARI):
        return checked(name, _minari_arrays(name.removeprefix(MINARI)), env)
    path = Path(name)
    if (path / records.CONFIG).exists():
        return read_run(path, env)
    return checked(name, _npz_arrays(path / FILE if path.is_dir() else path), env)


def read_run(path: Path, env: ControlEnv) -> Recorded:
    """Return the steps in the replay of a run's newest checkpoint.

    A replay does not say where time limits were: an episode ends where the next step does not start from what
    this one led to.
    """
    config = read_config(path)
    if config.pixels is not None or config.n_step > 1:
        kind = "images" if config.pixels is not None else f"sums of {config.n_step} steps"
        raise UserError(f"the replay of {path} holds {kind}: prior data are single steps from state to state")
    check_prior(path, sum(file.stat().st_size for file in (path / records.REPLAY).glob("rows_*")))
    rows = CheckpointStore(path, config.checkpoint.keep).rows()
    widths = (env.obs_size, env.action_size, 1, 1, env.obs_size)
    if rows.shape[1] != sum(widths):
        raise UserError(
            f"{path} holds transitions of other sizes than those of {env.name}, whose observations have "
            f"{env.obs_size} numbers and whose actions {env.action_size}"
        )
    obs, action, reward, discount, next_obs = np.split(rows.numpy(), np.cumsum(widths)[:-1], axis=1)
    arrays = {"observations": obs, "actions": action, "rewards": reward, "next_observations": next_obs}
    return checked(str(path), arrays | {"terminations": discount == 0}, env, relative=True)


def _npz_arrays(path: Path) -> Arrays:
    try:
        with zipfile.ZipFile(path) as file:
            check_prior(path, sum(entry.file_size for entry in file.infolist()))
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except FileNotFoundError:
        raise UserError(f"{path} is no prior data: there is no such file, and no run directory") from None
    except zipfile.BadZipFile:
        raise UserError(f"{path} is no prior data: give an npz file, a run directory or {MINARI}ID") from None
    except (OSError, ValueError, EOFError, zlib.error) as error:
        said = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UserError(f"{path} cannot be read: {said}") from None


def _minari_arrays(name: str) -> Arrays:
    try:
        import minari
    except ImportError:
        raise missing("Minari", "minari") from None
    try:
        dataset = minari.load_dataset(name)
        check_prior(f"{MINARI}{name}", _minari_bytes(dataset))
        episodes = list(dataset.iterate_episodes())
    except (OSError, ValueError, KeyError, ImportError) as error:
        said = " ".join(str(error).split())[:200]
        raise UserError(
            f"{MINARI}{name} cannot be read ({said}): minari download {name}, if it is not here"
        ) from None
    if not episodes or not isinstance(episodes[0].observations, np.ndarray):
        raise UserError(f"{MINARI}{name}: its observations are no arrays, which an agent cannot read")
    found = {name: [getattr(one, name) for one in episodes] for name in ("actions", "rewards", *OTHER_NAMES)}
    found["observations"] = [one.observations[:-1] for one in episodes]
    found["next_observations"] = [one.observations[1:] for one in episodes]
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _minari_bytes(dataset: Any) -> int:  # noqa: ANN401
    """Return what the arrays of a Minari data set take, as far as its spaces tell."""
    sizes = [math.prod(space.shape or ()) for space in (dataset.observation_space, dataset.action_space)]
    return 8 * int(dataset.total_steps) * (2 * sizes[0] + sizes[1] + 3)


def checked(where: str, arrays: Arrays, env: ControlEnv, *, relative: bool = False) -> Recorded:
    """Return arrays as steps, or say in one line what is wrong with them.

    Actions are in the environment's own units or, if `relative`, between -1 and 1.
    """
    take, shape = _Taking(where, arrays), env.space.shape
    reward = take.numbers("rewards", (), env.name, np.float64)[:, 0]
    obs, next_obs = (take.numbers(name, shape, env.name) for name in ("observations", "next_observations"))
    action = take.numbers("actions", env.action_shape, env.name)
    unit = action if relative else env.unscaled_batch(action)
    if (outside := np.abs(unit) > 1 + ROUNDING).any():
        step, index = np.argwhere(outside)[0]
        ends = np.array([[-1.0] * env.action_size, [1.0] * env.action_size], np.float32)
        low, high = (ends if relative else env.scaled_batch(ends).reshape(ends.shape))[:, index]
        there = f"actions[{step}] has {action[step, index]:g} at {index}"
        raise UserError(f"{where}: {there}, and {env.name} takes {low:g} to {high:g}")
    terminated = take.flags("terminations")
    ended = terminated | (take.flags("truncations") if take.has("truncations") else _breaks(obs, next_obs))
    ended[-1] = True  # what came next is not known
    return Recorded(obs, unit.clip(-1, 1), reward, terminated, ended, next_obs)


def _breaks(obs: Array, next_obs: Array) -> NDArray[np.bool_]:
    """Tell after which steps the next one starts from another state: [T]."""
    return np.append((obs[1:] != next_obs[:-1]).any(axis=1), True)


class _Taking:
    """Takes arrays of one source by name, checked."""

    def __init__(self, where: str, arrays: Arrays) -> None:
        self.where, self.arrays = where, arrays
        self.steps = len(np.atleast_1d(self._array("rewards")))
        if not self.steps:
            raise UserError(f"{where} holds no step")

    def has(self, name: str) -> bool:
        """Tell whether there is such an array."""
        return name in self.arrays or OTHER_NAMES.get(name) in self.arrays

    def numbers(self, name: str, shape: tuple[int, ...], task: str, kind: type[Any] = np.float32) -> NDArray[Any]:
        """Return finite numbers for each step: [T, *shape] -> [T, n]."""
        array, size = self._array(name), math.prod(shape)
        if array.shape not in ((self.steps, *shape), (self.steps, size)):
            needed = (self.steps, *shape)
            raise UserError(f"{self.where}: {name} has the shape {array.shape}, and {task} needs {needed}")
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which is refused
            single = array.reshape(self.steps, size).astype(np.float32)
        if not (finite := np.isfinite(single)).all():
            step, index = np.argwhere(~finite)[0]
            raise UserError(f"{self.where}: {name}[{step}] has {single[step, index]} at {index}: no finite number")
        return single if kind is np.float32 else array.reshape(self.steps, size).astype(kind)

    def flags(self, name: str) -> NDArray[np.bool_]:
        """Return what is true or false of each step: [T]."""
        array = self._array(name)
        if array.size != self.steps:
            needed = f"{self.steps} steps need ({self.steps},)"
            raise UserError(f"{self.where}: {name} has the shape {array.shape}, and {needed}")
        flat = array.reshape(-1)
        if (strange := (flat != 0) & (flat != 1)).any():
            step = int(np.argmax(strange))
            raise UserError(f"{self.where}: {name}[{step}] is {flat[step]}: 0 or 1 is needed")
        return flat.astype(bool)

    def _array(self, name: str) -> NDArray[Any]:
        key = name if name in self.arrays else OTHER_NAMES.get(name, name)
        if key not in self.arrays:
            there = ", ".join(self.arrays) or "nothing"
            raise UserError(f"{self.where} has no {name}: it holds {there}")
        array = self.arrays[key]
        if array.dtype.kind not in "fiub":
            raise UserError(f"{self.where}: {name} holds {array.dtype}: numbers are needed")
        return array
