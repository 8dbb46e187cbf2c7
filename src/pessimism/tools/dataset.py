"""The replay of a run as a data set: an npz file, or a Minari data set."""

import contextlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pessimism.config.schema import Config
from pessimism.envs.control import ControlEnv
from pessimism.errors import UserError
from pessimism.extras import missing
from pessimism.replay.prior import Recorded
from pessimism.training.directory import WRITING, flush_directory, flush_file
from pessimism.training.prior import FILE, MINARI, read_run
from pessimism.training.run import load_run


class Written(NamedTuple):
    """A data set that was written."""

    place: str
    steps: int
    episodes: int
    terminated: int

    def __str__(self) -> str:
        ends = f"{self.episodes} episodes, {self.terminated} of them terminated"
        return f"{self.place}: {self.steps} transitions of {ends}"


def write_dataset(
    run: Path, target: str, *, trust_env: bool = False, say: Callable[[str], None] = lambda line: None
) -> Written:
    """Write the transitions of a run's newest checkpoint to a file, a directory, or `minari:ID`."""
    assembly, _ = load_run(run, trust_env=trust_env, say=say)
    env = assembly.trainer.env
    steps = read_run(run, env)
    arrays = _arrays(steps, env)
    place = target
    if target.startswith(MINARI):
        _write_minari(target.removeprefix(MINARI), arrays, steps.ended, env, assembly.config)
    else:
        place = str(_write_npz(Path(target), arrays))
    return Written(place, len(steps.reward), int(steps.ended.sum()), int(steps.terminated.sum()))


def _arrays(steps: Recorded, env: ControlEnv) -> dict[str, Any]:
    """Return the steps by Minari's names, in the environment's own shapes and units: [T, ...] each."""
    shape = (-1, *env.space.shape)
    return {
        "observations": steps.obs.reshape(shape),
        "actions": env.scaled_batch(steps.action),
        "rewards": steps.reward,
        "terminations": steps.terminated,
        "truncations": steps.ended & ~steps.terminated,
        "next_observations": steps.next_obs.reshape(shape),
    }


def _write_npz(path: Path, arrays: dict[str, Any]) -> Path:
    """Write an npz file, whole or not at all; in a directory it gets a name that prior data are found by."""
    if path.suffix != ".npz":
        path = path / FILE
    temporary = path.with_name(path.name + WRITING)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
        flush_file(temporary)
        temporary.replace(path)
        flush_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    return path


def _write_minari(
    name: str, arrays: dict[str, Any], ended: NDArray[np.bool_], env: ControlEnv, config: Config
) -> None:
    """Write a data set of episodes into Minari's own directory."""
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
    except ImportError:
        raise missing("Minari", "minari") from None
    cuts = np.flatnonzero(ended)[:-1] + 1
    parts = {key: np.split(array, cuts) for key, array in arrays.items()}
    following = parts.pop("next_observations")
    episodes = [dict(zip(parts, fields, strict=True)) for fields in zip(*parts.values(), strict=True)]
    for episode, after in zip(episodes, following, strict=True):
        episode["observations"] = np.concatenate((episode["observations"], after[-1:]))  # [T + 1, ...]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about fields of the description that are left empty
            minari.create_dataset_from_buffers(
                name,
                [EpisodeBuffer(id=index, **episode) for index, episode in enumerate(episodes)],
                observation_space=env.space,
                action_space=env.env.action_space,
                algorithm_name=config.algorithm,
                description=f"replay of {config.algorithm} on {config.env}, seed {config.seed}",
            )
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write {MINARI}{name}: {' '.join(str(error).split())[:200]}") from None
