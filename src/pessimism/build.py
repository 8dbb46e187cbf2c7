"""The only place that turns settings into objects."""

from typing import assert_never

import torch

from pessimism.agents.sac import SACAgent
from pessimism.config import (
    Config,
    CriticSettings,
    FixedPenaltySettings,
    LearnedPenaltySettings,
    MinimumSettings,
    PessimismSettings,
)
from pessimism.nn.actor import SquashedGaussianActor
from pessimism.nn.critic import EnsembleCritic, plain_critic, residual_critic
from pessimism.ops import compiler
from pessimism.replay.transitions import TransitionReplay
from pessimism.schedules import linear
from pessimism.strategies import ClippedMinimum, FixedPenalty, LearnedPenalty, Pessimism
from pessimism.training.loop import Budget, Every
from pessimism.training.seeding import stream, stream_seed


def build_pessimism(settings: PessimismSettings) -> Pessimism:
    """Build the rule by which the critics are read."""
    match settings:
        case LearnedPenaltySettings():
            return LearnedPenalty(
                settings.beta,
                lr=settings.lr,
                betas=(settings.beta1, 0.999),
                optimism=linear(settings.optimism, 0.0, settings.optimism_steps),
            )
        case FixedPenaltySettings():
            optimism = linear(settings.optimism, 0.0, settings.optimism_steps)
            return FixedPenalty(settings.beta, optimism=optimism)
        case MinimumSettings():
            return ClippedMinimum()
        case _:
            assert_never(settings)


def build_critic(settings: CriticSettings, inputs: int) -> EnsembleCritic:
    """Build the ensemble of critics."""
    match settings.form:
        case "residual":
            return residual_critic(
                inputs, members=settings.members, hidden=settings.hidden, spectral=settings.spectral
            )
        case "plain":
            return plain_critic(inputs, members=settings.members, hidden=settings.hidden)
        case _:
            assert_never(settings.form)


def build_agent(config: Config, obs_size: int, action_size: int) -> SACAgent:
    """Build the agent; its first weights are a function of the seed."""
    assert config.target_entropy is not None, "the task decides the target entropy before an agent is built"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(config.seed, "weights"))
        actor = SquashedGaussianActor(obs_size, action_size, config.hidden).to(config.device)
        critic = build_critic(config.critic, obs_size + action_size).to(config.device)
    with torch.device(config.device):
        pessimism = build_pessimism(config.pessimism)
    return SACAgent(
        actor=actor,
        critic=critic,
        pessimism=pessimism,
        target_entropy=config.target_entropy,
        tau=config.tau,
        lr=config.lr,
        alpha=config.alpha,
        alpha_lr=config.alpha_lr,
        alpha_beta1=config.alpha_beta1,
        actor_clip=config.actor_clip,
        generator=stream(config.seed, "update"),
        compile=config.compile and compiler() is not None,
    )


def build_replay(config: Config, obs_size: int, action_size: int) -> TransitionReplay:
    """Build the replay."""
    generator = stream(config.seed, "replay")
    return TransitionReplay(config.replay_capacity, obs_size, action_size, config.discount, generator)


def build_budget(config: Config) -> Budget:
    """Say what happens when."""
    return Budget(
        steps=config.steps,
        random_steps=config.random_steps,
        updates_per_step=config.updates_per_step,
        batch_size=config.batch_size,
        log_now=Every(config.log.every),
        evaluate_now=Every(config.evaluation.every),
        measure_now=Every(config.bias.every),
        save_now=Every(config.checkpoint.every),
    )
