"""The loop, with fakes that count."""

import math
import time

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from pessimism.envs.control import ControlEnv
from pessimism.errors import UserError
from pessimism.replay.transitions import TransitionReplay
from pessimism.training.evaluate import Evaluator
from pessimism.training.loop import Budget, Callback, Every, Hooks, Trainer
from pessimism.training.state import stream, stream_seed


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
        self.observed, self.policy_updates = [], []

    def sample(self, obs, generator):
        self.samples += 1
        return torch.zeros(len(obs), 1), torch.zeros(len(obs), 1)

    def observe(self, reward, ended):
        self.observed.append((reward, ended))

    def update(self, batch, step, *, policy=True):
        self.updates.append((step, tuple(batch.reward.shape)))
        self.policy_updates.append(policy)
        return {"train/critic_loss": torch.tensor(float(step))}

    def episode_finished(self, episode, hindsight):
        self.returns.append(episode.score)
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


def trainer(steps=12, env=None, hooks=None, update_every=1, learn_at="step"):
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
        learn_at=learn_at,
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


def test_the_last_update_of_an_episode_comes_before_the_strategy_is_told_of_its_end():
    """TOP draws the next beta when an episode ends: it is not for the updates of the episode before."""
    agent, loop = trainer()
    order = []
    agent.update = lambda batch, step, policy: order.append(step) or {}
    agent.episode_finished = lambda *_: order.append("end") or {}
    loop.run()
    assert order == [5, "end", 6, 7, 8, 9, 10, "end", 11, 12]


def test_learning_may_wait_for_every_third_step():
    agent, loop = trainer(update_every=3)
    loop.run()
    assert [step for step, _ in agent.updates] == [6, 9, 12]


def test_learning_may_wait_for_the_end_of_the_episode():
    order, shown = [], []
    agent, loop = trainer(learn_at="episode", hooks=Hooks(callbacks=[Callback()]))
    move, update = loop.env.env.step, agent.update
    loop.env.env.step = lambda action: order.append("move") or move(action)
    agent.update = lambda batch, step, policy: order.append(step) or update(batch, step, policy=policy)
    loop.hooks.callbacks[0].on_learning = lambda done, due: shown.append((done, due))
    loop.run()
    assert order == [*["move"] * 5, 5, *["move"] * 5, 6, 7, 8, 9, 10, "move", "move", 11, 12]
    assert shown == [(1, 1), *[(done, 5) for done in range(1, 6)], (1, 2), (2, 2)]
    every_step, usual = trainer()
    usual.run()
    assert (agent.updates, agent.policy_updates) == (every_step.updates, every_step.policy_updates)


def test_updates_at_the_end_of_training_are_not_made_again():
    agent, loop = trainer(steps=7, learn_at="episode")
    loop.run()
    loop.budget = loop.budget._replace(steps=12)
    loop.run()
    assert [step for step, _ in agent.updates] == list(range(5, 13))


def test_training_metrics_are_means_since_the_last_line():
    sink = Remember()
    _, loop = trainer(hooks=Hooks(sinks=[sink]))
    loop.run()
    means = {step: metrics.get("train/critic_loss") for step, metrics in sink.written}
    assert means == {4: None, 8: 6.5, 12: 10.5}  # steps 5 to 8, and 9 to 12
    assert sink.written[1][1]["rollout/ep_rew_mean"] == 15.0


def test_times_are_those_since_the_start():
    class Times(Remember):
        def write(self, step, metrics):
            self.written.append({name: value for name, value in metrics.items() if name.startswith("time/")})

    times = Times()
    _, loop = trainer(hooks=Hooks(sinks=[times]))
    before = time.process_time()
    loop.run()
    spent = time.process_time() - before
    processor = [line["time/processor"] for line in times.written]
    assert processor == sorted(processor)
    assert 0 < processor[-1] <= spent
    assert times.written[-1]["time/elapsed"] > 0


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
    with pytest.raises(UserError, match="did not repeat its newest episode"):
        loop.restore(checkpoint)


def test_a_run_that_has_diverged_is_not_saved_over_a_good_one():
    saved = []
    agent, loop = trainer(hooks=Hooks(save=lambda checkpoint: saved.append(checkpoint.step)))
    agent.update = lambda batch, step, policy: {"train/critic_loss": torch.tensor(math.inf if step > 8 else 1.0)}
    with pytest.raises(UserError, match="train/critic_loss became inf by step 10; the last checkpoint is kept"):
        loop.run()
    assert saved == [5]


def test_random_actions_are_uniform_over_all_actions():
    """Means of 400 draws from [-1, 1] and of their squares: 0 and 1/3, each within four standard errors."""
    _, loop = trainer(steps=400)
    loop.budget = loop.budget._replace(random_steps=400)
    loop.run()
    actions = loop.replay.newest(400)[:, 1]
    assert actions.min() >= -1
    assert actions.max() <= 1
    assert abs(float(actions.mean())) < 4 * math.sqrt(1 / 3 / 400)
    assert float(actions.square().mean()) == pytest.approx(1 / 3, abs=4 * math.sqrt(4 / 45 / 400))


def test_the_mean_td_error_beside_the_bias_is_that_since_the_last_measurement():
    class NoBias:
        def metrics(self):
            return {}

    sink = Remember()
    agent, loop = trainer(hooks=Hooks(sinks=[sink]))
    agent.update = lambda batch, step, policy: {"train/td_error": torch.tensor(float(step))}
    loop.bias_meter, loop.budget = lambda agent, step: NoBias(), loop.budget._replace(measure_now=Every(4))
    loop.run()
    errors = [(step, metrics["bias/dual_td"]) for step, metrics in sink.written if "bias/dual_td" in metrics]
    assert errors == [(8, 6.5), (12, 10.5)]  # steps 5 to 8, and 9 to 12


def test_evaluation_takes_deterministic_actions():
    class Decided(CountingAgent):
        def mode(self, obs):
            return 0.25 * torch.ones(len(obs), 1)

    class Echo(Corridor):
        """Pays the action."""

        def step(self, action):
            obs, _, *rest = super().step(action)
            return obs, float(action[0]), *rest

    agent = Decided()
    evaluation = Evaluator(lambda: ControlEnv(Echo(), "echo"), 2, seed=0)(agent, step=3)
    assert evaluation.returns == pytest.approx([1.25, 1.25])
    assert evaluation.lengths == [5, 5]
    assert agent.samples == 0


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_a_diverged_policy_is_named_and_not_the_environment(weight):
    agent, loop = trainer()
    agent.state_dict = lambda: {"critic.bias": torch.zeros(2), "actor.weight": torch.full((2,), weight)}
    agent.sample = lambda obs, generator: (torch.full((1, 1), math.nan), torch.zeros(1, 1))
    message = r"policy's action became nan \(step 5, episode 0\): actor diverged \(actor.weight is not a number\)"
    with pytest.raises(UserError, match=message):
        loop.run()


def test_diverged_weights_are_not_saved_over_good_ones():
    saved = []
    agent, loop = trainer(hooks=Hooks(save=lambda checkpoint: saved.append(checkpoint.step)))
    entropy = {"log_alpha": torch.tensor(-math.inf)}  # no entropy: that is a number
    agent.state_dict = lambda: (
        entropy | {"critic.weight": torch.tensor([math.nan if loop.progress.step > 8 else 1])}
    )
    with pytest.raises(UserError, match=r"by step 10 critic diverged \(critic.weight is not a number\)"):
        loop.run()
    assert saved == [5]
