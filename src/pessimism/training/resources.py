"""Memory and disk that a run needs, estimated before it starts."""

import math
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pessimism.config.schema import Config
from pessimism.errors import UserError
from pessimism.replay.prior import PriorReplay
from pessimism.types import Replay

LOGS_BYTES = 200_000_000  # space for logs and for the weights of the kept checkpoints
MEMINFO, GROUP_LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


class Needs(NamedTuple):
    """Bytes that a run takes at most."""

    stored: int  # transitions, or frames
    ring: int  # of these, in memory or in `file`
    state: int  # of what else the replay keeps in memory
    disk: int  # of the run's directory
    file: Path | None
    prior: str = ""  # prior data, which are in memory already, in words

    def __str__(self) -> str:
        place = f" in {self.file}" if self.file else ""
        more = f", and up to {self.state / 1e6:.1f} MB of imagined ones" if self.state else ""
        return f"replay of up to {self.stored} transitions: {self.ring / 1e6:.1f} MB{place}{more}{self.prior}"

    def check(self, run: Path) -> None:
        """Refuse a run that needs more memory or disk than is free; `run` is its directory."""
        needed, free = self.state + (0 if self.file else self.ring), free_memory()
        if free < needed:
            raise UserError(
                f"the replay needs up to {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free: "
                "give a smaller --replay-capacity, or a --replay-file"
            )
        with suppress(OSError):  # a directory that cannot be used is refused when it is taken
            check_disk(self.places(run))

    def places(self, run: Path) -> list[tuple[Path, int]]:
        """Return what is needed where on disk, less what the run's directory holds already."""
        there = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
        return [(run, max(0, self.disk - there)), *([(self.file, self.ring)] if self.file else [])]


def estimate_needs(config: Config, replay: Replay) -> Needs:
    """Return what a run of this config takes at most.

    The kept checkpoints need the transitions that were in the ring at the oldest of them, in whole files of
    those between two checkpoints; the rest of the replay's state is in each, and in the one being written.
    """
    stored = min(replay.capacity, config.steps)
    written = min(config.steps, stored + config.checkpoint.keep * config.checkpoint.every)
    state = replay.state_bytes(config.steps)
    rows = replay.nbytes * written // replay.capacity
    return Needs(
        stored=stored,
        ring=replay.nbytes * stored // replay.capacity,
        state=state,
        disk=rows + (config.checkpoint.keep + 1) * state + LOGS_BYTES,
        file=replay.file,
        prior=_prior_text(replay) if isinstance(replay, PriorReplay) else "",
    )


def _prior_text(replay: PriorReplay) -> str:
    size, share = replay.prior.nbytes / 1e6, f"{replay.share:.0%} of each batch"
    return f"; {len(replay.prior)} prior transitions: {size:.1f} MB, {share}"


def check_prior(source: Path | str, nbytes: int) -> None:
    """Refuse prior data of so many bytes that are larger than the free memory, before they are read."""
    needed, free = 3 * nbytes, free_memory()  # as they are read, as steps, and as rows of the replay
    if free < needed:
        raise UserError(
            f"the prior data in {source} need about {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are "
            "free: give fewer of them"
        )


def check_networks(config: Config, obs_shape: Sequence[int], action_size: int) -> None:
    """Refuse networks and batches that are larger than the free memory, before they are made."""
    updates = config.updates_per_step * config.batch_size
    batch = 4 * updates * (2 * math.prod(obs_shape) + 2)
    layers = 4 * 8 * config.batch_size * config.critic.members * (config.critic.hidden + config.critic.atoms)
    needed, free = agent_bytes(config, obs_shape, action_size) + batch + layers, free_memory()
    if free < needed:
        raise UserError(
            f"networks and batches need about {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free: "
            "give a smaller --hidden, --critic.hidden, --critic.members or --batch-size"
        )


def agent_bytes(config: Config, obs_shape: Sequence[int], action_size: int) -> int:
    """Estimate, to a factor of two, the memory of an agent with its gradients, targets and Adam's two moments.

    Forms of networks differ in their hidden layers. Two square ones are counted, as in the paper's critics.
    """
    inputs, encoder = obs_shape[0], 0
    if (pixels := config.pixels) is not None:
        inputs = pixels.features
        encoder = 2 * inputs * pixels.filters * (obs_shape[1] // 2 - 7) ** 2  # trunks on four convolutions
    critic, policy = config.critic.hidden, config.hidden
    critics = config.critic.members * critic * (inputs + action_size + 2 * critic + config.critic.atoms)
    return 4 * (5 * (critics + encoder) + 4 * policy * (inputs + 2 * policy + 2 * action_size))


def check_disk(places: Iterable[tuple[Path, int]]) -> None:
    """Refuse what does not fit on the disks; needs on the same disk add up."""
    totals: defaultdict[int, int] = defaultdict(int)
    for path, needed in places:
        place = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        device, free = place.stat().st_dev, shutil.disk_usage(place).free
        totals[device] += needed
        if free < totals[device]:
            raise UserError(
                f"the run needs up to {totals[device] / 1e9:.1f} GB of disk and {place} has {free / 1e9:.1f} GB "
                "free: give another --out or a smaller --replay-capacity"
            )


def free_memory() -> int:
    """Return the bytes that are available without swapping; where the system does not say, all of its memory."""
    if not MEMINFO.exists():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    sizes = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
    free = int(sizes["MemAvailable"].split()[0]) * 1024
    limit = GROUP_LIMIT.read_text().strip() if GROUP_LIMIT.exists() else "max"  # of a container
    return free if limit == "max" else min(free, int(limit))
