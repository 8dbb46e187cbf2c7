"""The training loop: act, store, learn, evaluate, measure, log, save."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch

from pessimism.envs.control import ControlEnv, PolicyFault, Step
from pessimism.errors import EnvironmentFault, UserError
from pessimism.training.bias import BiasMeter, TrainingBias
from pessimism.training.checkpoint import Checkpoint, is_finite
from pessimism.training.evaluate import Evaluation, Evaluator
from pessimism.training.sinks import Sink
from pessimism.training.state import (
    LONGEST_MEASURED,
    Averages,
    Progress,
    Trace,
    generator_states,
    load_generators,
    stream,
    stream_seed,
)
from pessimism.types import Agent, Array, Observation, Replay, Transition

NOT_REPEATED = (
    "the environment did not repeat its newest episode from its seed and actions, so the run would not continue "
    "exactly: reset(seed=...) must decide everything. Nothing was changed; --resume inexact continues with a new "
    "episode"
)


class Every(NamedTuple):
    """Something that happens every `period` environment steps; 0: never."""

    period: int

    def __call__(self, step: int) -> bool:
        """Return whether it happens at this step."""
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
    learn_at: Literal["step", "episode"] = "step"  # when the updates of a step are made

    def learns(self, step: int) -> bool:
        """Return whether updates follow this step."""
        return step > self.random_steps and step % self.update_every == 0

    def groups(self, step: int) -> list[tuple[slice, bool]]:
        """Return how the critic updates of a step are grouped: which they are, and whether the policy's follows.

        The policy is updated after every `policy_every` critic updates of the run, a number that does not have to
        divide those of a step: with 2 and 3, the groups of the first steps have the sizes [2], [1, 1], [2], and the
        policy's updates follow the second step's first group and the third step's only one.
        """
        count, every = self.updates_per_step, self.policy_every or self.updates_per_step
        steps_before = (step - 1) // self.update_every - self.random_steps // self.update_every
        due = [index for index in range(1, count + 1) if (steps_before * count + index) % every == 0]
        ends = due if due and due[-1] == count else [*due, count]
        return [(slice(start, end), end in due) for start, end in itertools.pairwise([0, *ends])]


class Callback:
    """Follows a run from Python. Override what you need."""

    def on_step(self, progress: Progress) -> bool | None:
        """Called after every environment step; return False to stop."""

    def on_learning(self, done: int, due: int) -> None:
        """Called during the updates at an episode's end (learn_at), after those of each of the `due` steps."""

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Called with everything that is logged."""

    def on_end(self, progress: Progress) -> None:
        """Called at the end of the run."""


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
        training_bias: TrainingBias | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.agent, self.replay, self.env, self.budget, self.seed = agent, replay, env, budget, seed
        self.evaluator, self.bias_meter, self.hooks = evaluator, bias_meter, hooks or Hooks()
        self.training_bias = training_bias
        self.explore = stream(seed, "explore")
        self.generators = {**generators, "explore": self.explore, "replay": replay.generator}
        self.progress, self.averages, self.td_errors = Progress(), Averages(), Averages()
        self.learned = 0  # the newest step whose updates are made
        self.obs: Observation | None = None  # None between episodes
        nothing = np.zeros(env.obs_shape, np.uint8 if len(env.obs_shape) > 1 else np.float32)
        self.ended = Progress().trace(nothing, over=True)  # the newest episode that ended
        self._start_clocks()

    def run(self) -> Progress:
        """Train until the budget is spent or a callback asks to stop."""
        self._start_clocks()
        try:
            while self.progress.step < self.budget.steps and self._step():
                pass
        except (EnvironmentFault, PolicyFault) as error:
            where = f"step {self.progress.step + 1}, episode {self.progress.episode}"
            why = f": {self._diverged() or 'all weights are numbers'}" if isinstance(error, PolicyFault) else ""
            raise UserError(f"{error} ({where}){why}; the last checkpoint is kept") from error
        for callback in self.hooks.callbacks:
            callback.on_end(self.progress)
        return self.progress

    def _step(self) -> bool:
        """Take one environment step and do all that is due after it."""
        last = self._interact()
        step, over = self.progress.step, last.terminated or last.truncated
        if self.budget.learn_at == "step" or over or step == self.budget.steps:
            self._catch_up()
        if over:
            # After learning: what a strategy draws for the next episode is not for this one's last update.
            self._finish_episode(last.obs, last.terminated)
        if self.budget.log_now(step):
            self._log(self.averages.take())
        if self.bias_meter and self.budget.measure_now(step):
            self._log(self.bias_meter(self.agent, step).metrics() | self._signals())
        if self.evaluator and self.budget.evaluate_now(step):
            evaluation = self.evaluator(self.agent, step)
            self.hooks.evaluated(step, evaluation)
            self._log(evaluation.metrics())
        wanted = [callback.on_step(self.progress) is not False for callback in self.hooks.callbacks]
        if self.budget.save_now(step) or step == self.budget.steps or not all(wanted):
            self._check_finite(self.averages.means())
            if diverged := self._diverged():
                raise UserError(f"by step {step} {diverged}; the last checkpoint is kept")
            self.hooks.save(self.checkpoint())
        return all(wanted)

    def _catch_up(self) -> None:
        """Make the updates of all steps since the last ones: of one step or, with learn_at, of an episode."""
        due = [step for step in range(self.learned + 1, self.progress.step + 1) if self.budget.learns(step)]
        for done, step in enumerate(due, start=1):
            self._learn(step)
            for callback in self.hooks.callbacks if self.budget.learn_at == "episode" else ():
                callback.on_learning(done, len(due))
        self.learned = self.progress.step

    def _learn(self, step: int) -> None:
        """Update the agent on the batches that belong to a step."""
        budget = self.budget
        fitted = self.replay.refresh(step, self.agent)
        batches = self.replay.sample(budget.updates_per_step, budget.batch_size)
        self.averages.add(fitted)
        for updates, policy in budget.groups(step):
            metrics = self.agent.update(batches.at(updates), step, policy=policy)
            self.averages.add(metrics)
            if "train/td_error" in metrics:
                self.td_errors.add({"bias/dual_td": metrics["train/td_error"]})
        held_out = self.replay.held_out(budget.batch_size)
        if held_out is not None:
            self.td_errors.add(self.agent.validate(held_out))

    def _signals(self) -> dict[str, float]:
        """Return signals of the bias that need no extra episodes."""
        training = self.training_bias.metrics() if self.training_bias else {}
        return self.td_errors.take() | training

    def _interact(self) -> Step:
        """Act, store what happened, and return it."""
        progress = self.progress
        obs = self.env.reset(self._episode_seed(progress.episode)) if self.obs is None else self.obs
        action, log_prob = self._action(obs)
        step = self.env.step(action)
        self.replay.add(Transition(obs, action, step.reward, step.terminated, step.obs, step.truncated))
        self.agent.observe(step.reward, step.terminated or step.truncated)
        progress.step += 1
        progress.actions.append(action)
        progress.log_probs.append(log_prob)
        progress.add(obs, step.reward)
        self.obs = step.obs
        return step

    def _action(self, obs: Observation) -> tuple[Array, float]:
        """Return the next action and its log-probability under the policy, 0 where it is random."""
        if self.progress.step < self.budget.random_steps:
            uniform: Array = torch.rand(self.env.action_size, generator=self.explore).numpy()
            return 2 * uniform - 1, 0.0
        action, log_prob = self.agent.sample(torch.from_numpy(obs)[None], self.explore)
        return np.asarray(action[0].numpy(), dtype=np.float32), float(log_prob)

    def _finish_episode(self, last_obs: Observation, terminated: bool) -> None:
        progress, hindsight = self.progress, None
        score, length = progress.episode_return, len(progress.actions)
        episode = progress.finished(last_obs, terminated=terminated, random_steps=self.budget.random_steps)
        if self.training_bias and length <= LONGEST_MEASURED:
            hindsight = self.training_bias.add(self.agent, episode, progress.episode)
        self.averages.add(self.agent.episode_finished(episode, hindsight))
        self.averages.add(
            {"rollout/ep_rew_mean": torch.tensor(score), "rollout/ep_len_mean": torch.tensor(float(length))}
        )
        self.hooks.episode_finished(score, length)
        self.ended = progress.trace(last_obs, over=True)
        self.progress = Progress(progress.step, progress.episode + 1)
        self.obs = None

    def _log(self, metrics: dict[str, float]) -> None:
        step = self.progress.step
        self._check_finite(metrics)
        elapsed = time.perf_counter() - self.started
        metrics["time/elapsed"], metrics["time/fps"] = elapsed, (step - self.started_at) / elapsed
        metrics["time/processor"] = time.process_time() - self.processor_started
        for sink in self.hooks.sinks:
            sink.write(step, metrics)
        for callback in self.hooks.callbacks:
            callback.on_metrics(step, metrics)

    def _start_clocks(self) -> None:
        self.started_at = self.progress.step
        self.started, self.processor_started = time.perf_counter(), time.process_time()

    def _check_finite(self, metrics: dict[str, float]) -> None:
        """Stop a run that has diverged, before its checkpoint replaces a good one."""
        for name, value in metrics.items():
            if not np.isfinite(value):
                raise UserError(f"{name} became {value} by step {self.progress.step}; the last checkpoint is kept")

    def _diverged(self) -> str:
        """Name the networks with weights that are not numbers; an empty text if there are none."""
        bad = [name for name, tensor in self.agent.state_dict().items() if not is_finite(tensor)]
        networks = dict.fromkeys(name.partition(".")[0] for name in bad)
        return f"{' and '.join(networks)} diverged ({bad[0]} is not a number)" if bad else ""

    def _episode_seed(self, number: int) -> int:
        return stream_seed(self.seed, "train", number)

    def checkpoint(self) -> Checkpoint:
        """Return everything that the rest of the run depends on, but the replay's rows."""
        progress = self.progress
        trace = self.ended if self.obs is None else progress.trace(self.obs, over=False)
        tensors = {f"agent.{name}": tensor for name, tensor in self.agent.state_dict().items()}
        tensors |= {f"replay.{name}": tensor for name, tensor in self.replay.state_dict().items()}
        tensors |= generator_states(self.generators) | trace.tensors(self.env.action_size)
        tensors["episode.log_probs"] = torch.tensor(progress.log_probs, dtype=torch.float64)
        if self.training_bias:
            tensors["training_bias.episodes"] = self.training_bias.recent.rows
        state = {
            "episode": progress.episode,
            "learned": self.learned,
            "trace": trace.state(),
            "averages": self.averages.state(),
            "td_errors": self.td_errors.state(),
        }
        return Checkpoint(progress.step, tensors, state)

    def restore(self, checkpoint: Checkpoint, *, inexact: bool = False) -> bool:
        """Restore a checkpoint, and return whether the restore is exact.

        The newest episode is played again, action by action. Where the environment does not repeat it, the
        checkpoint is refused or, if `inexact`, that episode is cut off there and a new one begins.
        """
        tensors, state = checkpoint.tensors, checkpoint.state
        self.agent.load_state_dict(checkpoint.part("agent"))
        self.replay.load_state_dict(checkpoint.part("replay"))
        load_generators(self.generators, checkpoint.part("generator"))
        self.learned = state.get("learned", checkpoint.step)  # runs of version 0.1 learned after each step
        self.averages.load(state["averages"])
        self.td_errors.load(state["td_errors"])
        if self.training_bias:
            self.training_bias.recent.rows.copy_(tensors["training_bias.episodes"])
        trace = Trace.of(tensors, state["trace"])
        self.progress, self.obs, self.ended = Progress(checkpoint.step, state["episode"]), None, trace
        if not trace.actions:
            return True
        played = self._play_again(trace)
        if played is None and not inexact:
            raise UserError(NOT_REPEATED)
        if played is not None and not trace.over:
            played.step, played.log_probs = checkpoint.step, tensors["episode.log_probs"].tolist()
            self.progress, self.obs = played, trace.last
        elif not trace.over:
            self.replay.cut(trace.last)
            self.progress.episode += 1
        return played is not None

    def _play_again(self, trace: Trace) -> Progress | None:
        """Play an episode again; return None where the environment does not repeat it."""
        played, over = Progress(episode=trace.number), False
        try:
            obs = self.env.reset(self._episode_seed(trace.number))
            for action in trace.actions:
                if over:
                    return None
                step = self.env.step(action)
                played.actions.append(action)
                played.add(obs, step.reward)
                obs, over = step.obs, step.terminated or step.truncated
        except EnvironmentFault:
            return None
        return played if played.trace(obs, over=over).same(trace) else None
