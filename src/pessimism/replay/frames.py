"""Uniform replay of images: each frame is kept once, stacks and n-step windows are made when sampled."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pessimism.replay.transitions import draw, draw_held_out, no_sample, zeros
from pessimism.types import Agent, Batch, Metrics, Observation, Transition

TAIL = 4  # columns of `facts` after the action: reward, terminated, final, history


class FrameReplay:
    """A ring of slots. An episode of T steps takes T + 1 of them, of which the last holds its last frame alone.

    Slot t of an episode is the frame o_t, and in `facts` the action a_t, the reward r_t, whether the episode
    terminated by it, whether it is the final slot, and how many of the frames before o_t its stack takes in.

    Slots and transitions are numbered as they come. `slot_of` leads from a transition to its slot and
    `number_of` from a slot to the transitions before it. A transition can be sampled while the frames of its
    stack are in the ring, and once its window of n steps is there or its episode has ended. Either is monotonic
    in its number, so what can be sampled is a range of numbers, and no draw is rejected.

    With `file` the frames are in a file instead of in memory.
    """

    def __init__(
        self,
        capacity: int,
        frame_shape: tuple[int, ...],  # (H, W, C)
        *,
        stack: int,
        action_size: int,
        discount: float,
        n_step: int,
        generator: torch.Generator,
        held_out_every: int = 0,
        file: Path | None = None,
    ) -> None:
        if capacity < stack + n_step:
            raise ValueError(f"{capacity} frames hold no transition of {stack} frames and {n_step} steps")
        self.capacity, self.frame_shape, self.stack, self.action_size = capacity, frame_shape, stack, action_size
        self.n_step, self.generator, self.file = n_step, generator, file
        self.held_out_every = held_out_every
        self.powers = discount ** torch.arange(n_step + 1, dtype=torch.float64)
        self.frame_bytes = prod(frame_shape)
        self.facts = zeros(capacity, action_size + TAIL, np.float32)
        self.slot_of, self.number_of = zeros(2, capacity, np.int64)
        self.added = 0  # slots ever stored
        self.transitions = 0  # of these, without the final ones
        self.ended = -1  # the newest final slot

    @cached_property
    def frames(self) -> Tensor:
        """The frames [capacity, H * W * C], made at the first use: a file is for the process that trains."""
        return zeros(self.capacity, self.frame_bytes, np.uint8, self.file)

    @property
    def nbytes(self) -> int:
        """Memory that the full ring takes, all but a few bytes a frame of it in `file` if there is one."""
        facts = sum(t.nbytes for t in (self.facts, self.slot_of, self.number_of))
        return self.capacity * self.frame_bytes + facts

    def state_bytes(self, steps: int) -> int:
        """Return 0: the slots are all there is."""
        return 0

    def __len__(self) -> int:
        """Count the transitions that can be sampled."""
        return len(self._valid())

    def add(self, transition: Transition) -> None:
        """Store the newest frame of the observation, and of the one after it if the episode ends there."""
        history = self._history_of_next()
        steps = [(transition.obs, (*transition.action, transition.reward, transition.terminated, 0, history))]
        if transition.terminated or transition.truncated:
            nothing = [0.0] * (self.action_size + 2)
            steps.append((transition.next_obs, (*nothing, 1, min(history + 1, self.stack - 1))))
        observations, facts = zip(*steps, strict=True)
        frames = np.stack([obs[-1].reshape(-1) for obs in observations])
        self._append(torch.from_numpy(frames), torch.tensor(facts, dtype=torch.float32))

    def _history_of_next(self) -> int:
        """Return how many stored frames the next slot's stack takes in: none where an episode begins."""
        *_, final, history = self.facts[(self.added - 1) % self.capacity]
        return 0 if self.added == 0 or final else min(int(history) + 1, self.stack - 1)

    def _append(self, frames: Tensor, facts: Tensor) -> None:
        for part, place in self._spans(self.added, self.added + len(facts)):
            self.frames[place], self.facts[place] = frames[part], facts[part]
        slots = torch.arange(self.added, self.added + len(facts))
        final = facts[:, -2].bool()
        numbers = self.transitions + torch.cumsum(~final, 0)  # up to and with the slot
        self.number_of[slots % self.capacity] = numbers - (~final).long()
        self.slot_of[(numbers[~final] - 1) % self.capacity] = slots[~final]
        self.added += len(facts)
        self.transitions += int((~final).sum())
        self.ended = max([self.ended, *slots[final].tolist()])

    def _spans(self, first: int, last: int) -> Iterator[tuple[slice, slice]]:
        """Yield where the slots from `first` to `last` are: among themselves, and in the ring."""
        start = first
        while start < last:
            place = start % self.capacity
            count = min(last - start, self.capacity - place)
            yield slice(start - first, start - first + count), slice(place, place + count)
            start += count

    def _valid(self) -> range:
        """Return the numbers of the transitions that can be sampled."""
        oldest, after = max(0, self.added - self.capacity), max(self.added - self.n_step, self.ended)
        if after <= oldest:
            return range(0)
        first = oldest
        while first - self.facts[first % self.capacity, -1] < oldest:
            first += 1
        numbers = self.number_of[[first % self.capacity, after % self.capacity]].tolist()
        return range(*numbers)

    def sample(self, updates: int, batch_size: int) -> Batch:
        """Draw `updates` batches with replacement: uint8 stacks [U, B, stack, H, W, C], the rest [U, B, ...]."""
        valid = self._valid()
        if not valid:
            raise no_sample(self.n_step, self.transitions)
        numbers = draw(valid, updates * batch_size, self.generator, self.held_out_every)
        return Batch(*(field.unflatten(0, (updates, batch_size)) for field in self._batch(numbers)))

    def held_out(self, batch_size: int) -> Batch | None:
        """Draw a batch [B, ...] of transitions that `sample` never gives out; None where there are none.

        Their frames and rewards may still be part of other transitions' stacks and windows.
        """
        numbers = draw_held_out(self._valid(), batch_size, self.generator, self.held_out_every)
        return None if numbers is None else self._batch(numbers)

    def _batch(self, numbers: Tensor) -> Batch:
        """Return the transitions with these numbers: fields [N, ...]."""
        slots = self.slot_of[numbers % self.capacity]
        window = self._facts(slots[:, None] + torch.arange(self.n_step))  # [N, n, facts]
        reward, terminated, final, _ = window[..., self.action_size :].unbind(-1)
        inside = torch.cumprod(1 - final, 1)
        steps = inside.sum(1).long()
        total = (self.powers[:-1] * inside * reward).sum(1)
        discount = self.powers[steps] * (1 - (inside * terminated).sum(1))
        obs, next_obs = self._stacks(torch.stack((slots, slots + steps)))
        action = window[:, 0, : self.action_size]
        return Batch(obs, action, total.float()[:, None], discount.float()[:, None], next_obs)

    def _facts(self, slots: Tensor) -> Tensor:
        return self.facts.index_select(0, slots.flatten() % self.capacity).unflatten(0, slots.shape)

    def _stacks(self, slots: Tensor) -> Tensor:
        """Return the stacks that end in these slots, oldest frame first: [..] -> [.., stack, H, W, C]."""
        history = self._facts(slots)[..., -1:].long()
        back = torch.arange(self.stack - 1, -1, -1)
        index = slots[..., None] - torch.minimum(back, history)
        frames = self.frames.index_select(0, index.flatten() % self.capacity)
        return frames.view(*index.shape, *self.frame_shape)

    def refresh(self, step: int, agent: Agent) -> Metrics:
        """Do nothing: the transitions are all there is."""
        return {}

    def newest(self, count: int) -> Tensor:
        """Return the last `count` slots as rows of bytes [frame | facts], in the order in which they came."""
        rows = torch.empty(count, self.frame_bytes + 4 * self.facts.shape[1], dtype=torch.uint8)
        for part, place in self._spans(self.added - count, self.added):
            rows[part, : self.frame_bytes] = self.frames[place]
            rows[part, self.frame_bytes :] = self.facts[place].view(torch.uint8)
        return rows

    def restart(self, added: int) -> None:
        """Forget all slots; the next one is number `added`."""
        self.added, self.transitions, self.ended = added, 0, -1

    def cut(self, last: Observation) -> None:
        """End the running episode, as by a time limit, with the observation after its last step."""
        facts = [*[0.0] * (self.action_size + 2), 1.0, self._history_of_next()]
        self._append(torch.from_numpy(last[-1].reshape(1, -1)), torch.tensor([facts]))

    def append_rows(self, rows: Tensor) -> None:
        """Store rows that `newest` of a replay of this shape gave out."""
        width = self.frame_bytes + 4 * self.facts.shape[1]
        if rows.shape[1] != width:
            raise ValueError(f"rows of width {rows.shape[1]} do not fit a replay of width {width}")
        facts = rows[:, self.frame_bytes :].contiguous().view(torch.float32)
        self._append(rows[:, : self.frame_bytes], facts)

    def state_dict(self) -> dict[str, Tensor]:
        """Return nothing: the rows are all there is."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take nothing back."""
