"""Each family of agents learns a task with a known answer: its policy's exact value approaches the best one.

On `Line` a point is pushed towards 0. The value of the learned deterministic policy is computed exactly, at all
states; so is the value of the best policy. Training is short and its seed fixed.
"""

import numpy as np
import pytest
import torch

from pessimism.config.resolve import merge, preset_values, validated
from pessimism.envs.toys import DrawnLine, Line, LineValues, factory
from pessimism.models.termination import TERMINATIONS, never
from pessimism.training.run import assemble

GAMMA, LENGTH = 0.9, 20
LINE = factory(Line, length=LENGTH)
SMALL = {
    "env": "Line",
    "steps": 300,
    "random_steps": 60,
    "updates_per_step": 4,
    "batch_size": 32,
    "hidden": 16,
    "critic": {"hidden": 16},
    "alpha": 0.05,
    "alpha_lr": 1e-2,
    "target_entropy": -2.0,
    "discount": GAMMA,
    "lr": 5e-3,
    "tau": 0.05,
    "replay_capacity": 1000,
    "compile": False,
    "threads": 1,
    "evaluation": {"every": 0},
    "bias": {"every": 0},
}
IMAGES = {
    "env": "pessimism.envs.toys:pessimism-toys/DrawnLine-v0",
    "env_kwargs": {"length": LENGTH},
    "steps": 400,
    "random_steps": 100,
    "update_every": 1,
    "alpha": 0.0,
    "action_repeat": 1,
    "noise": (0.6, 0.2, 400),
    "lr": 2e-3,
    "pixels": {"stack": 1, "augmentation": "none", "filters": 4, "features": 8},
}
MODEL = {
    "steps": 350,
    "policy_every": 0,
    "model": {
        "rollouts": 400,
        "train_every": 40,
        "epoch_steps": 80,
        "hidden": 16,
        "members": 3,
        "elites": 2,
        "lr": 1e-2,
    },
}


class Deterministic:
    """A policy without noise, as `LineValues` reads it; `see` turns states [B, 1] into observations."""

    alpha = torch.tensor(0.0)

    def __init__(self, agent, see):
        self.agent, self.see, self.actor = agent, see, self

    def sample(self, states, noise):
        action = self.agent.mode(self.see(states[:, 0]))  # [B, 1], whatever the noise
        return action[:, None].expand_as(states), torch.zeros_like(states)


class Best:
    """The best policy: straight to 0, as fast as it goes."""

    def mode(self, states):
        return (-states / 0.2).clamp(-1, 1)


def images(states):
    """Draw each state as the environment does: [B, 1] -> [B, 1, H, W, C]."""
    draw = DrawnLine().observation
    return torch.from_numpy(np.stack([draw(state)[None] for state in states.numpy()]))


def mean_value(agent, see=lambda states: states):
    return float(LineValues(Line(), Deterministic(agent, see), GAMMA, nodes=3).values.mean())


def share_of_the_best(preset, changes, make_env=LINE, see=lambda states: states):
    """Train, and return how much of the way from the untrained policy's value to the best one was made."""
    assembly = assemble(validated(merge(merge(preset_values(preset), SMALL), changes)), make_env)
    start, best = mean_value(assembly.agent, see), mean_value(Best())
    assembly.trainer.run()
    return (mean_value(assembly.agent, see) - start) / (best - start)


def test_the_best_policy_is_the_best():
    """No policy of a grid of others, slower, lazier or biased, has a higher value."""

    class Other(Best):
        def __init__(self, slope, offset):
            self.slope, self.offset = slope, offset

        def mode(self, states):
            return (-self.slope * (states - self.offset)).clamp(-1, 1)

    others = [Other(slope, offset) for slope in (0.5, 2.0, 4.0, 8.0) for offset in (0.0, 0.05)]
    assert max(mean_value(other) for other in others) < mean_value(Best())


@pytest.mark.parametrize("preset", ["gpl-sac", "redq"])
def test_agents_on_states_learn_the_best_policy(preset):
    assert 0.9 < share_of_the_best(preset, {"critic": {"members": 3}}) <= 1.001


def test_mbpo_learns_the_best_policy(monkeypatch):
    monkeypatch.setitem(TERMINATIONS, "Line", never)
    assert 0.9 < share_of_the_best("mbpo", MODEL) <= 1.001


@pytest.mark.slow
def test_agents_on_images_learn_the_best_policy():
    assert 0.9 < share_of_the_best("gpl-drq", IMAGES, None, images) <= 1.001
