"""This library's contestants: agents at the sizes asked for, with a full replay and no environment."""

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from pessimism.agents.critic_learner import critic_learner
from pessimism.agents.sac import SACAgent
from pessimism.errors import UserError
from pessimism.nn.actor import SquashedGaussianActor
from pessimism.nn.compilation import compiler
from pessimism.nn.critic import EnsembleCritic, plain_critic, residual_critic
from pessimism.replay.transitions import TransitionReplay
from pessimism.strategies import FixedPenalty, LearnedPenalty, Pessimism, SubsetMinimum
from pessimism.training.build import linear
from pessimism.values import pairwise_distance_w2, quantile_huber_loss, squared_td_loss

if TYPE_CHECKING:
    from pessimism.bench.worker import Setting, Step


QUANTILES = 10  # the paper's M
DISCOUNT = 0.99


def own_step(setting: "Setting") -> "Step":
    """Return a step that samples the batches of an environment step and learns from them."""
    torch.manual_seed(0)
    replay = full_replay(setting)
    agent = build_agent(setting)
    steps = itertools.count()
    return lambda: agent.update(replay.sample(setting.updates, setting.batch), next(steps))


def full_replay(setting: "Setting") -> TransitionReplay:
    """Return a replay full of random transitions."""
    generator = torch.Generator().manual_seed(0)
    replay = TransitionReplay(setting.replay, setting.obs_size, setting.action_size, DISCOUNT, generator)
    rows = torch.randn(setting.replay, sum(replay.widths))
    rows[:, setting.obs_size + setting.action_size + 1] = DISCOUNT
    replay.append_rows(rows)
    return replay


def build_agent(setting: "Setting") -> SACAgent:
    """Return the agent that the setting describes."""
    compiled = setting.contestant == "pessimism-compiled"
    if compiled and compiler() is None:
        raise UserError("no C++ compiler found: install g++ or clang++, or set CXX")
    quantiles = setting.strategy.startswith("quantile")
    actor = SquashedGaussianActor(setting.obs_size, setting.action_size, setting.hidden)
    learner = critic_learner(
        build_critic(setting, atoms=QUANTILES if quantiles else 1),
        STRATEGIES[setting.strategy](setting.members),
        td_loss=quantile_huber_loss if quantiles else squared_td_loss,
        compile=compiled,
    )
    return SACAgent(actor=actor, learner=learner, target_entropy=-float(setting.action_size), compile=compiled)


def build_critic(setting: "Setting", atoms: int) -> EnsembleCritic:
    """Return the plain or the residual critic."""
    form = plain_critic if setting.critic == "plain" else residual_critic
    inputs = setting.obs_size + setting.action_size
    return form(inputs, members=setting.members, atoms=atoms, hidden=setting.hidden)


STRATEGIES: Mapping[str, Callable[[int], Pessimism]] = {
    "learned": lambda members: LearnedPenalty(),
    "fixed": lambda members: FixedPenalty(),
    "annealed": lambda members: LearnedPenalty(optimism=linear(0.5, 0.0, 50_000)),
    "quantile-w1": lambda members: LearnedPenalty(),
    "quantile-w2": lambda members: LearnedPenalty(disagreement=pairwise_distance_w2),
    "redq": SubsetMinimum,
}
