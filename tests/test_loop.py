"""The loop, with fakes that count."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from pessimism.envs.gym import ControlEnv
from pessimism.errors import UserError
from pessimism.replay.transitions import TransitionReplay
from pessimism.training.loop import Budget, Callback, Every, Hooks, Trainer
from pessimism.training.seeding import stream, stream_seed


class Corridor(gymnasium.Env):
    """Five steps long; the reward is the number of the step, and may be poisoned."""

    observation_space = spaces.Box(-1.0, 10.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, poison_at=None):
        self.total, self.poison_at = 0, poison_at

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        self.total += 1
        reward = math.nan if self.total == self.poison_at else float(self.time)
        return np.full(1, self.time, np.float32), reward, False, self.time == 5, {}


class CountingAgent:
    """Acts without a thought and remembers what it was asked."""

    alpha = torch.tensor(0.0)

    def __init__(self):
        self.updates, self.returns, self.samples = [], [], 0

    def sample(self, obs, generator):
        self.samples += 1
        return torch.zeros(len(obs), 1), torch.zeros(len(obs), 1)

    def update(self, batch, step):
        self.updates.append((step, tuple(batch.reward.shape)))
        return {"train/critic_loss": torch.tensor(float(step))}

    def episode_finished(self, episode_return):
        self.returns.append(episode_return)
        return {}

    def state_dict(self):
        return {}


class Remember:
    def __init__(self):
        self.written = []

    def write(self, step, metrics):
        self.written.append((step, {k: v for k, v in metrics.items() if not k.startswith("time/")}))

    def close(self):
        pass


def trainer(steps=12, env=None, hooks=None, update_every=1):
    agent = CountingAgent()
    budget = Budget(
        steps=steps,
        random_steps=4,
        updates_per_step=3,
        batch_size=2,
        log_now=Every(4),
        evaluate_now=Every(0),
        measure_now=Every(0),
        save_now=Every(5),
        update_every=update_every,
    )
    return agent, Trainer(
        agent=agent,
        replay=TransitionReplay(100, 1, 1, 0.9, stream(0, "replay")),
        env=ControlEnv(env or Corridor(), "corridor"),
        budget=budget,
        seed=0,
        generators={},
        hooks=hooks,
    )


def test_learning_starts_after_the_random_steps_with_all_batches_of_a_step_at_once():
    agent, loop = trainer()
    loop.run()
    assert agent.updates == [(step, (3, 2, 1)) for step in range(5, 13)]
    assert agent.samples == 8
    assert agent.returns == [15.0, 15.0]
    assert loop.replay.added == 12


def test_learning_may_wait_for_every_third_step():
    agent, loop = trainer(update_every=3)
    loop.run()
    assert [step for step, _ in agent.updates] == [6, 9, 12]


def test_training_metrics_are_means_since_the_last_line():
    sink = Remember()
    _, loop = trainer(hooks=Hooks(sinks=[sink]))
    loop.run()
    means = {step: metrics.get("train/critic_loss") for step, metrics in sink.written}
    assert means == {4: None, 8: 6.5, 12: 10.5}  # steps 5 to 8, and 9 to 12
    assert sink.written[1][1]["rollout/ep_rew_mean"] == 15.0


def test_checkpoints_fall_on_their_clock_and_on_the_last_step():
    saved = []
    _, loop = trainer(hooks=Hooks(save=lambda checkpoint: saved.append(checkpoint.step)))
    loop.run()
    assert saved == [5, 10, 12]


def test_a_callback_ends_a_run_after_saving_it():
    saved = []

    class Stop(Callback):
        def on_step(self, progress):
            return progress.step < 7

    _, loop = trainer(hooks=Hooks(callbacks=[Stop()], save=lambda checkpoint: saved.append(checkpoint.step)))
    assert loop.run().step == 7
    assert saved == [5, 7]


def test_a_poisoned_reward_stops_the_run_with_a_report():
    _, loop = trainer(env=Corridor(poison_at=8))
    with pytest.raises(UserError, match=r"reward nan \(step 8, episode 1\); the last checkpoint is kept"):
        loop.run()


def test_a_time_limit_does_not_stop_the_bootstrap():
    _, loop = trainer()
    loop.run()
    assert loop.replay.newest(12)[:, 3].tolist() == pytest.approx([0.9] * 12)


def test_named_streams_are_independent_of_each_other():
    seeds = {stream_seed(seed, name, part) for seed in (0, 1) for name in ("a", "b") for part in (0, 1)}
    assert len(seeds) == 8
    assert stream_seed(3, "train", 5) == stream_seed(3, "train", 5)


def test_an_environment_that_does_not_repeat_is_not_resumed():
    class Moody(Corridor):
        def step(self, action):
            obs, reward, *rest = super().step(action)
            return obs, reward + 0.001 * self.total, *rest

    _, loop = trainer(steps=8, env=Moody())
    loop.run()
    checkpoint = loop.checkpoint()
    loop.agent.load_state_dict = lambda state: None
    with pytest.raises(UserError, match="did not repeat the running episode"):
        loop.restore(checkpoint)


def test_a_run_that_has_diverged_is_not_saved_over_a_good_one():
    saved = []
    agent, loop = trainer(hooks=Hooks(save=lambda checkpoint: saved.append(checkpoint.step)))
    agent.update = lambda batch, step: {"train/critic_loss": torch.tensor(math.inf if step > 8 else 1.0)}
    with pytest.raises(UserError, match="train/critic_loss became inf by step 10; the last checkpoint is kept"):
        loop.run()
    assert saved == [5]
