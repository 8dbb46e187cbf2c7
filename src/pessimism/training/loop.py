"""The training loop: act, store, learn, evaluate, measure, log, save."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from pessimism.envs.gym import Array, ControlEnv, NonFiniteError
from pessimism.errors import UserError
from pessimism.training.bias import BiasMeter
from pessimism.training.checkpoint import Checkpoint, generator_states, load_generators
from pessimism.training.evaluate import Evaluation, Evaluator
from pessimism.training.seeding import stream, stream_seed
from pessimism.training.sinks import Averages, Sink
from pessimism.types import Agent, Observation, Replay, Transition


class Every(NamedTuple):
    """A clock that is due every `period` environment steps; 0 is never."""

    period: int

    def __call__(self, step: int) -> bool:
        """Tell whether it is time."""
        return self.period > 0 and step % self.period == 0


class Budget(NamedTuple):
    """How long to train, and what happens how often."""

    steps: int
    random_steps: int
    updates_per_step: int
    batch_size: int
    log_now: Every
    evaluate_now: Every
    measure_now: Every
    save_now: Every
    policy_every: int = 0  # critic updates per policy update; 0: all of a step
    update_every: int = 1  # environment steps between learning


@dataclass
class Progress:
    """Where a run is. An episode is its number, which seeds it, and the actions taken so far."""

    step: int = 0
    episode: int = 0
    actions: list[Array] = field(default_factory=list)
    episode_return: float = 0.0


class Callback:
    """Hears of a run from Python. `on_step` may return False to end it."""

    def on_step(self, progress: Progress) -> bool | None:
        """Hear of an environment step."""

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Hear of everything that is logged."""

    def on_end(self, progress: Progress) -> None:
        """Hear of the end."""


@dataclass
class Hooks:
    """What a run reports to. Each may be left out."""

    sinks: Sequence[Sink] = ()
    callbacks: Sequence[Callback] = ()
    episode_finished: Callable[[float, int], None] = lambda score, length: None
    evaluated: Callable[[int, Evaluation], None] = lambda step, evaluation: None
    save: Callable[[Checkpoint], None] = lambda checkpoint: None


class Trainer:
    """One agent learning in one environment. Everything that decides the future is in `checkpoint()`."""

    def __init__(
        self,
        *,
        agent: Agent,
        replay: Replay,
        env: ControlEnv,
        budget: Budget,
        seed: int,
        generators: dict[str, torch.Generator],
        evaluator: Evaluator | None = None,
        bias_meter: BiasMeter | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.agent, self.replay, self.env, self.budget, self.seed = agent, replay, env, budget, seed
        self.evaluator, self.bias_meter, self.hooks = evaluator, bias_meter, hooks or Hooks()
        self.explore = stream(seed, "explore")
        self.generators = {**generators, "explore": self.explore, "replay": replay.generator}
        self.progress, self.averages, self.dual_td = Progress(), Averages(), Averages()
        self.obs: Observation | None = None  # None between episodes
        self.started, self.started_at = time.perf_counter(), 0

    def run(self) -> Progress:
        """Train until the budget is spent or a callback asks to stop."""
        self.started, self.started_at = time.perf_counter(), self.progress.step
        try:
            while self.progress.step < self.budget.steps and self._step():
                pass
        except NonFiniteError as error:
            where = f"step {self.progress.step + 1}, episode {self.progress.episode}"
            raise UserError(f"{error} ({where}); the last checkpoint is kept") from None
        for callback in self.hooks.callbacks:
            callback.on_end(self.progress)
        return self.progress

    def _step(self) -> bool:
        """Take one environment step and do all that is due after it."""
        self._interact()
        step = self.progress.step
        if step > self.budget.random_steps and step % self.budget.update_every == 0:
            self._learn()
        if self.budget.log_now(step):
            self._log(self.averages.take())
        if self.bias_meter and self.budget.measure_now(step):
            self._log(self.bias_meter(self.agent, step).metrics() | self.dual_td.take())
        if self.evaluator and self.budget.evaluate_now(step):
            evaluation = self.evaluator(self.agent, step)
            self.hooks.evaluated(step, evaluation)
            self._log(evaluation.metrics())
        wanted = [callback.on_step(self.progress) is not False for callback in self.hooks.callbacks]
        if self.budget.save_now(step) or step == self.budget.steps or not all(wanted):
            self._check_finite(self.averages.means())
            self.hooks.save(self.checkpoint())
        return all(wanted)

    def _learn(self) -> None:
        """Update the agent on the batches that belong to this step."""
        step, budget = self.progress.step, self.budget
        self.averages.add(self.replay.refresh(step, self.agent))
        batches = self.replay.sample(budget.updates_per_step, budget.batch_size)
        for batch in batches.groups(budget.policy_every or budget.updates_per_step):
            metrics = self.agent.update(batch, step)
            self.averages.add(metrics)
            if "train/td_error" in metrics:
                self.dual_td.add({"bias/dual_td": metrics["train/td_error"]})

    def _interact(self) -> None:
        """Act, and store what happened."""
        progress = self.progress
        obs = self.env.reset(self._episode_seed()) if self.obs is None else self.obs
        action = self._action(obs)
        step = self.env.step(action)
        self.replay.add(Transition(obs, action, step.reward, step.terminated, step.obs, step.truncated))
        progress.step += 1
        progress.actions.append(action)
        progress.episode_return += step.reward
        self.obs = step.obs
        if step.terminated or step.truncated:
            self._finish_episode()

    def _action(self, obs: Observation) -> Array:
        if self.progress.step < self.budget.random_steps:
            uniform: Array = torch.rand(self.env.action_size, generator=self.explore).numpy()
            return 2 * uniform - 1
        action, _ = self.agent.sample(torch.from_numpy(obs)[None], self.explore)
        return np.asarray(action[0].numpy(), dtype=np.float32)

    def _finish_episode(self) -> None:
        progress = self.progress
        score, length = progress.episode_return, len(progress.actions)
        self.averages.add(self.agent.episode_finished(score))
        self.averages.add(
            {"rollout/ep_rew_mean": torch.tensor(score), "rollout/ep_len_mean": torch.tensor(float(length))}
        )
        self.hooks.episode_finished(score, length)
        self.progress = Progress(progress.step, progress.episode + 1)
        self.obs = None

    def _log(self, metrics: dict[str, float]) -> None:
        step = self.progress.step
        self._check_finite(metrics)
        elapsed = time.perf_counter() - self.started
        metrics["time/elapsed"], metrics["time/fps"] = elapsed, (step - self.started_at) / elapsed
        for sink in self.hooks.sinks:
            sink.write(step, metrics)
        for callback in self.hooks.callbacks:
            callback.on_metrics(step, metrics)

    def _check_finite(self, metrics: dict[str, float]) -> None:
        """Stop a run that has diverged, before a checkpoint of it takes the place of a good one."""
        for name, value in metrics.items():
            if not np.isfinite(value):
                raise UserError(f"{name} became {value} by step {self.progress.step}; the last checkpoint is kept")

    def _episode_seed(self) -> int:
        return stream_seed(self.seed, "train", self.progress.episode)

    def checkpoint(self) -> Checkpoint:
        """Return everything that the rest of the run depends on, but the replay's rows."""
        progress = self.progress
        actions = np.array(progress.actions, dtype=np.float32).reshape(-1, self.env.action_size)
        tensors = {f"agent.{name}": tensor for name, tensor in self.agent.state_dict().items()}
        tensors |= {f"replay.{name}": tensor for name, tensor in self.replay.state_dict().items()}
        tensors |= generator_states(self.generators) | {"episode.actions": torch.from_numpy(actions)}
        state = {
            "episode": progress.episode,
            "episode_return": progress.episode_return,
            "averages": self.averages.state(),
            "dual_td": self.dual_td.state(),
        }
        return Checkpoint(progress.step, tensors, state)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to a checkpoint: the running episode is played again, action by action."""
        tensors, state = checkpoint.tensors, checkpoint.state
        self.agent.load_state_dict(checkpoint.part("agent"))
        self.replay.load_state_dict(checkpoint.part("replay"))
        load_generators(self.generators, checkpoint.part("generator"))
        self.averages.load(state["averages"])
        self.dual_td.load(state["dual_td"])
        actions: list[Any] = list(tensors["episode.actions"].numpy())
        self.progress = Progress(checkpoint.step, state["episode"], actions, state["episode_return"])
        self.obs = None
        if actions:
            self.obs = self.env.reset(self._episode_seed())
            self._replay_episode(actions)

    def _replay_episode(self, actions: list[Array]) -> None:
        total = 0.0
        for action in actions:
            step = self.env.step(action)
            self.obs, total = step.obs, total + step.reward
        if total != self.progress.episode_return or step.terminated or step.truncated:
            raise UserError(
                "the environment did not repeat the running episode from its seed and actions, so that going on "
                "would not be exact: its reset(seed=...) must decide everything"
            )
