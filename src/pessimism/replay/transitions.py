"""Uniform replay of states: n-step transitions, made when they are stored. Memory and sampling of all replays."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pessimism.errors import UserError
from pessimism.types import Agent, Batch, Metrics, Observation, Transition


class TransitionReplay:
    """A ring of float32 rows [obs | action | reward | discount | next_obs].

    A transition is one row: all U batches of an environment step are one gather. A row sums the discounted
    rewards of up to `n_step` steps, fewer at an episode's end, and bootstraps from the observation after them,
    unless the episode terminated there. The last steps, whose window is not full yet, are in `window`. With
    `file` the rows are in a file instead of in memory.
    """

    def __init__(
        self,
        capacity: int,
        obs_size: int,
        action_size: int,
        discount: float,
        generator: torch.Generator,
        *,
        n_step: int = 1,
        held_out_every: int = 0,
        file: Path | None = None,
    ) -> None:
        self.capacity, self.discount, self.generator = capacity, discount, generator
        self.n_step, self.held_out_every, self.file = n_step, held_out_every, file
        self.widths = (obs_size, action_size, 1, 1, obs_size)
        self.added = 0  # transitions ever stored
        self.window: list[Transition] = []  # newest steps of the running episode, fewer than n_step

    @cached_property
    def rows(self) -> Tensor:
        """The ring, made at the first use: its size can be asked for before."""
        return zeros(self.capacity, sum(self.widths), np.float32, self.file)

    @property
    def nbytes(self) -> int:
        """What the full ring takes, in memory or in `file`."""
        return 4 * self.capacity * sum(self.widths)

    def state_bytes(self, steps: int) -> int:
        """Return 0: the rows are all there is."""
        return 0

    def __len__(self) -> int:
        return len(self._valid())

    def add(self, transition: Transition) -> None:
        """Add a step. Stores the transition whose window it fills and, at an episode's end, all that are left."""
        self.window.append(transition)
        ended = transition.terminated or transition.truncated
        while len(self.window) == self.n_step or (ended and self.window):
            self._store_first()

    def _store_first(self) -> None:
        """Store the transition that starts where the window does, and remove its first step from there."""
        first, last = self.window[0], self.window[-1]
        reward = sum(self.discount**k * step.reward for k, step in enumerate(self.window))
        discount = 0.0 if last.terminated else self.discount ** len(self.window)
        row = np.concatenate((first.obs, first.action, (reward, discount), last.next_obs), dtype=np.float32)
        self.rows[self.added % self.capacity] = torch.from_numpy(row)
        self.added += 1
        del self.window[0]

    def sample(self, updates: int, batch_size: int) -> Batch:
        """Draw `updates` batches with replacement: fields [U, B, ...]."""
        valid = self._valid()
        if not valid:
            raise no_sample(self.n_step, len(self.window))
        numbers = draw(valid, updates * batch_size, self.generator, self.held_out_every)
        rows = self.rows.index_select(0, numbers % self.capacity).view(updates, batch_size, sum(self.widths))
        return Batch(*rows.split(self.widths, dim=-1))

    def held_out(self, batch_size: int) -> Batch | None:
        """Draw a batch [B, ...] of transitions that `sample` never gives out; None where there are none."""
        numbers = draw_held_out(self._valid(), batch_size, self.generator, self.held_out_every)
        if numbers is None:
            return None
        return Batch(*self.rows.index_select(0, numbers % self.capacity).split(self.widths, dim=-1))

    def _valid(self) -> range:
        """Return the numbers of the transitions that are kept."""
        return range(max(0, self.added - self.capacity), self.added)

    def refresh(self, step: int, agent: Agent) -> Metrics:
        """Do nothing: the transitions are all there is."""
        return {}

    def newest(self, count: int) -> Tensor:
        """Return the last `count` rows in the order in which they were stored."""
        return self.rows[torch.arange(self.added - count, self.added) % self.capacity]

    def restart(self, added: int) -> None:
        """Forget all transitions; the next one is number `added`."""
        self.added, self.window = added, []

    def cut(self, last: Observation) -> None:
        """End the running episode, as by a time limit: the steps in the window are stored as they are."""
        while self.window:
            self._store_first()

    def append_rows(self, rows: Tensor) -> None:
        """Store rows that `newest` of a replay of this shape gave out."""
        if rows.shape[1] != sum(self.widths):
            raise ValueError(f"rows of width {rows.shape[1]} do not fit a replay of width {sum(self.widths)}")
        self.rows[torch.arange(self.added, self.added + len(rows)) % self.capacity] = rows
        self.added += len(rows)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the steps in the window: [steps, obs + act + 1 + obs], double, as a sum of rewards is."""
        if self.n_step == 1:
            return {}
        steps = [np.concatenate((s.obs, s.action, (s.reward,), s.next_obs), dtype=np.float64) for s in self.window]
        rows = np.array(steps).reshape(len(steps), sum(self.widths) - 1)
        return {"window": torch.from_numpy(rows)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take the steps in the window back. None of them ended its episode, or it would have left."""
        obs_size, action_size, *_ = self.widths
        for row in state["window"].numpy() if self.n_step > 1 else ():
            obs, action, (reward,), next_obs = np.split(row, np.cumsum((obs_size, action_size, 1)))
            obs, action, next_obs = (part.astype(np.float32) for part in (obs, action, next_obs))
            self.window.append(Transition(obs, action, float(reward), False, next_obs))


def zeros(rows: int, width: int, kind: type[np.generic], file: Path | None = None) -> Tensor:
    """Return zeros [rows, width], in memory or in a file.

    The operating system provides memory as it is written to; torch.zeros takes all of it at once. A file is
    sparse until it is full. Its name is removed as soon as it is open: its contents come from the checkpoint, and
    its space on the disk is free again when the process ends, however it ends.
    """
    if file is not None:
        return _mapped(file, (rows, width), kind)
    try:
        return torch.from_numpy(np.zeros((rows, width), kind))
    except MemoryError:
        size = rows * width * np.dtype(kind).itemsize / 1e9
        raise UserError(
            f"the system has no {size:.1f} GB of memory for {rows} transitions: give a smaller --replay-capacity"
        ) from None


def draw(valid: range, count: int, generator: torch.Generator, held_out_every: int) -> Tensor:
    """Draw `count` of the valid transitions' numbers, with replacement, none of them held out.

    Every `held_out_every`-th transition is held out: those whose number it divides. The others have
    consecutive numbers: no draw is rejected.
    """
    if not held_out_every:
        return valid.start + torch.randint(len(valid), (count,), generator=generator)
    index = torch.randint(drawable(valid, held_out_every), (count,), generator=generator)
    index += _given_out(valid.start, held_out_every)
    return index + index // (held_out_every - 1) + 1


def drawable(valid: range, held_out_every: int) -> int:
    """Return how many of the valid transitions `draw` chooses from."""
    if not held_out_every:
        return len(valid)
    return _given_out(valid.stop, held_out_every) - _given_out(valid.start, held_out_every)


def _given_out(before: int, held_out_every: int) -> int:
    """Return how many of the numbers below `before` are not held out."""
    return before - -(-before // held_out_every)


def draw_held_out(valid: range, count: int, generator: torch.Generator, held_out_every: int) -> Tensor | None:
    """Draw `count` of the valid numbers that `draw` leaves out; None where there are none."""
    if not held_out_every:
        return None
    first, last = (-(-number // held_out_every) for number in (valid.start, valid.stop))
    if first == last:
        return None
    return held_out_every * (first + torch.randint(last - first, (count,), generator=generator))


def _mapped(file: Path, shape: tuple[int, int], kind: type[np.generic]) -> Tensor:
    try:
        with file.open("xb+") as opened:
            file.unlink()
            return torch.from_numpy(np.memmap(opened, kind, "r+", shape=shape))
    except FileExistsError:
        raise UserError(f"{file} exists: the replay's file must be a new one") from None
    except OSError as error:
        raise UserError(f"cannot make the replay's file {file}: {error.strerror}") from None


def no_sample(n_step: int, steps: int) -> UserError:
    """Return the error of a replay that has no whole transition yet."""
    return UserError(
        f"no transition of {n_step} steps is complete after {steps} environment steps: "
        f"learning must begin later, with --random-steps {n_step + 1} or more"
    )
