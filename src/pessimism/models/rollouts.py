"""MBPO as a source of batches: real transitions, and imagined ones that branch off from them."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pessimism.models.dynamics import DynamicsEnsemble
from pessimism.models.termination import Termination
from pessimism.replay.transitions import TransitionReplay
from pessimism.types import Agent, Batch, Metrics, Observation, Transition

Fit = Callable[[DynamicsEnsemble, Tensor, Tensor, torch.Generator], Metrics]


class RolloutPlan(NamedTuple):
    """When the model is fitted, how far it is trusted, and how long its rollouts are kept."""

    first_step: int  # environment step of the first update
    train_every: int = 250
    rollouts: int = 100_000
    schedule: tuple[int, int, int, int] = (20, 150, 1, 1)
    epoch_steps: int = 1000
    retain_epochs: int = 1

    def due(self, step: int) -> bool:
        """Return whether the model is fitted before the updates of this environment step."""
        return (step - self.first_step) % self.train_every == 0

    def length(self, step: int) -> int:
        """Return k, the steps of a rollout: linear between two epochs, rounded down."""
        first, last, shortest, longest = self.schedule
        epoch = (step - self.first_step) // self.epoch_steps
        if epoch <= first:
            return shortest
        return int(shortest + min(1.0, (epoch - first) / max(last - first, 1)) * (longest - shortest))

    def capacity(self, step: int) -> int:
        """Return how many imagined transitions are kept."""
        fits = max(1, self.epoch_steps // self.train_every)
        return self.retain_epochs * fits * self.rollouts * self.length(step)


class ModelReplay:
    """A replay whose batches are mostly imagined: k steps of a learned model from real states.

    The agent is the same as without a model. The imagined transitions are part of the state: the policies and
    models that made them no longer exist.
    """

    def __init__(
        self,
        real: TransitionReplay,
        model: DynamicsEnsemble,
        *,
        terminated: Termination,
        plan: RolloutPlan,
        fit: Fit,
        real_ratio: float = 0.05,
    ) -> None:
        self.real, self.model, self.terminated, self.plan = real, model, terminated, plan
        self.fit, self.real_ratio = fit, real_ratio
        self.capacity, self.generator, self.file = real.capacity, real.generator, real.file
        self.pool = self._pool(1)

    @property
    def added(self) -> int:
        """Real transitions ever stored."""
        return self.real.added

    @property
    def nbytes(self) -> int:
        """Memory that the full replay of real transitions takes."""
        return self.real.nbytes

    def state_bytes(self, steps: int) -> int:
        """Return what the imagined transitions take when there are most of them."""
        most = max(self.plan.capacity(step) for step in (self.plan.first_step, steps))
        return most * self.real.nbytes // self.real.capacity

    def add(self, transition: Transition) -> None:
        """Store a real transition."""
        self.real.add(transition)

    def sample(self, updates: int, batch_size: int) -> Batch:
        """Draw batches whose first rows are real and the others imagined: fields [U, B, ...]."""
        count = int(batch_size * self.real_ratio)
        real, imagined = self.real.sample(updates, count), self.pool.sample(updates, batch_size - count)
        return Batch(*(torch.cat(fields, dim=1) for fields in zip(real, imagined, strict=True)))

    def held_out(self, batch_size: int) -> Batch | None:
        """Draw real transitions that no critic is fitted to; the model is fitted to all, and branches off there."""
        return self.real.held_out(batch_size)

    def refresh(self, step: int, agent: Agent) -> Metrics:
        """Fit the model and roll it out, when it is time."""
        if not self.plan.due(step):
            return {}
        obs, action, reward, _, next_obs = self.real.newest(len(self.real)).split(self.real.widths, dim=-1)
        device = self.model.input_mean.device
        inputs, targets = torch.cat((obs, action), dim=-1), torch.cat((reward, next_obs - obs), dim=-1)
        metrics = self.fit(self.model, inputs.to(device), targets.to(device), self.generator)
        self._resize(self.plan.capacity(step))
        length = self.plan.length(step)
        self._roll_out(agent, length)
        return metrics | {"model/rollout_length": torch.tensor(float(length))}

    def _roll_out(self, agent: Agent, length: int) -> None:
        """Branch off from real states; a branch that terminates is not continued."""
        starts = torch.randint(len(self.real), (self.plan.rollouts,), generator=self.generator)
        obs = self.real.rows[starts, : self.real.widths[0]]  # [B, obs]
        for _ in range(length):
            action, _ = agent.sample(obs, self.generator)
            device = self.model.input_mean.device
            outcome = self.model.sample(obs.to(device), action.to(device), self.generator)
            next_obs, reward = (part.cpu() for part in outcome)
            over = self.terminated(next_obs)
            discount = self.real.discount * (~over).float().unsqueeze(-1)
            self.pool.append_rows(torch.cat((obs, action, reward, discount, next_obs), dim=-1))
            obs = next_obs[~over]
            if not len(obs):
                break

    def _pool(self, capacity: int) -> TransitionReplay:
        obs_size, action_size = self.real.widths[:2]
        return TransitionReplay(capacity, obs_size, action_size, self.real.discount, self.generator)

    def _resize(self, capacity: int) -> None:
        if capacity != self.pool.capacity:
            old, self.pool = self.pool, self._pool(capacity)
            self.pool.append_rows(old.newest(len(old)))

    def newest(self, count: int) -> Tensor:
        """Return the last `count` real transitions as rows."""
        return self.real.newest(count)

    def restart(self, added: int) -> None:
        """Forget all real transitions; the next one is number `added`."""
        self.real.restart(added)

    def cut(self, last: Observation) -> None:
        """End the running episode, as by a time limit."""
        self.real.cut(last)

    def append_rows(self, rows: Tensor) -> None:
        """Store real transitions that `newest` gave out."""
        self.real.append_rows(rows)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the model, its optimizer and the imagined transitions."""
        pool = self.pool
        state = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        place = torch.tensor([pool.capacity, pool.added])
        return state | {"imagined": pool.newest(len(pool)), "imagined_place": place}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take the state back."""
        model = {name.removeprefix("model."): state[name] for name in state if name.startswith("model.")}
        self.model.load_state_dict(model)
        capacity, added = state["imagined_place"].tolist()
        self.pool = self._pool(capacity)
        self.pool.added = added - len(state["imagined"])  # the same rows at the same places of the ring
        self.pool.append_rows(state["imagined"])
