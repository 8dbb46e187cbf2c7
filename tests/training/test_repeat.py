"""Environments that do not repeat themselves are noticed; their runs are not lost, nor resumed as if exact."""

import time
from io import StringIO
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rich.console import Console

from pessimism.config.resolve import merge, preset_values, validated
from pessimism.envs.make import adapt
from pessimism.errors import UserError
from pessimism.training.evaluate import Evaluator
from pessimism.training.run import assemble, record, run


class Odd(gymnasium.Env):
    """Seven steps long with a constant reward; `kind` says what else decides its observations."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    made = 0

    def __init__(self, kind="", length=7):
        self.kind, self.length, self.resets, self.chance = kind, length, 0, np.random.default_rng()
        Odd.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.resets = 0, self.resets + 1
        return self._obs(), {}

    def step(self, action):
        self.time += 1
        return self._obs(), 1.0, False, self.time == self.length, {}

    def _obs(self):
        other = {
            "random": self.chance.normal,
            "clock": lambda: time.perf_counter_ns() % 2**24,  # exact in float32
            "random once": lambda: self.chance.normal() if self.time == 2 else 0.0,
            "curriculum": lambda: self.resets,
            "late curriculum": lambda: max(self.resets - 5, 0),
        }.get(self.kind, self.np_random.normal)()
        return np.array([self.time, other], np.float32)


def train(small, kind, steps, *, resume="exact", out="run", every=1000, **changes):
    file = StringIO()
    values = {**small, "env": "Odd", "steps": steps, "random_steps": 1000, "resume": resume, **changes}
    values |= {"evaluation": {"every": every}, "bias": {"every": 0}}
    config = validated(merge(preset_values("sac"), values))
    run(config, Path(out), make_env=lambda: adapt(Odd(kind), "odd"), console=Console(file=file, width=400))
    return file.getvalue()


@pytest.mark.parametrize("kind", ["random", "clock", "random once", "curriculum"])
@pytest.mark.parametrize("steps", [18, 21], ids=["within an episode", "at its end"])
def test_what_does_not_repeat_is_said_with_the_first_checkpoint_and_refused_at_a_resume(small, kind, steps):
    assert "the environment does not repeat itself" in train(small, kind, steps)
    before = {path: path.read_bytes() for path in Path("run/checkpoints").rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="did not repeat its newest episode.*--resume inexact continues"):
        train(small, kind, 40)
    assert {path: path.read_bytes() for path in Path("run/checkpoints").rglob("*") if path.is_file()} == before
    text = train(small, kind, 40, resume="inexact")
    assert "a new one begins" in text
    assert "done: 40 steps" in text


@pytest.mark.parametrize("steps", [46, 49])
def test_state_that_is_kept_across_episodes_is_found_at_a_resume(small, steps):
    assert "does not repeat itself" not in train(small, "late curriculum", steps)
    with pytest.raises(UserError, match="did not repeat its newest episode"):
        train(small, "late curriculum", 60)


def test_without_evaluation_no_second_environment_is_made(small, monkeypatch):
    monkeypatch.setattr(Odd, "made", 0)
    assert "repeat" not in train(small, "random", 18, every=0)
    assert Odd.made == 1


def test_an_environment_that_repeats_itself_is_resumed_exactly_whatever_is_asked(small):
    assert "repeat" not in train(small, "", 18)
    assert "a new one begins" not in train(small, "", 40, resume="inexact")


def test_the_episode_that_was_cut_stays_in_the_replay_with_its_true_end(small):
    def replay(kind, steps, resume="exact"):
        values = {"env": "Odd", "steps": steps, "random_steps": 1000, "resume": resume}
        values |= {"evaluation": {"every": 0}, "bias": {"every": 0}, "n_step": 3, "log": {"tensorboard": False}}
        config = validated(merge(preset_values("sac"), {**small, **values}))
        assembly = assemble(config, lambda: adapt(Odd(kind), "odd"))
        record(assembly, Path("run"), (), Console(quiet=True))
        return assembly.trainer.replay

    first = replay("clock", 18)  # four steps into the third episode: two of them have a whole window
    assert (first.added, len(first.window)) == (16, 2)
    second = replay("clock", 20, "inexact")
    rows = second.newest(second.added)
    assert second.added == 18
    assert torch.equal(rows[:16], first.newest(16))
    assert rows[16:, 0].tolist() == [2, 3]  # times of the cut steps
    assert rows[16:, -2].tolist() == [4, 4]  # what they lead to: the last observation before the interruption
    assert rows[16:, 4].tolist() == pytest.approx([0.99**2, 0.99])


def test_an_episode_without_an_end_is_cut_and_said_once():
    said = []
    evaluator = Evaluator(lambda: adapt(Odd(length=10**9), "odd"), 2, seed=0, limit=30)
    evaluator.say = said.append

    class Still:
        def mode(self, obs):
            return torch.zeros(len(obs), 1)

    for _ in range(2):
        evaluation = evaluator(Still(), 0)
        assert evaluation.lengths == [30, 30]
    assert said == ["2 episodes had no end after 30 steps and were cut there (--evaluation.limit)"]


def test_no_episodes_cannot_be_run():
    with pytest.raises(UserError, match="0 episodes cannot be run"):
        Evaluator(lambda: adapt(Odd(), "odd"), 0, seed=0)
