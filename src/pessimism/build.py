"""The only place that turns settings into objects."""

import math
from collections.abc import Callable
from functools import partial
from typing import TypedDict, assert_never

import torch
from torch import Tensor

from pessimism.agents.sac import SACAgent
from pessimism.config import Config
from pessimism.envs.tasks import task_name
from pessimism.models.dynamics import DynamicsEnsemble
from pessimism.models.fitting import fit
from pessimism.models.rollouts import ModelReplay, RolloutPlan
from pessimism.models.termination import termination
from pessimism.nn.actor import SquashedGaussianActor
from pessimism.nn.critic import EnsembleCritic, plain_critic, residual_critic
from pessimism.ops import compiler
from pessimism.replay.transitions import TransitionReplay
from pessimism.schedules import Schedule, linear
from pessimism.settings import (
    BanditSettings,
    CriticSettings,
    FixedPenaltySettings,
    LearnedPenaltySettings,
    MinimumSettings,
    ModelSettings,
    PenaltySettings,
    PessimismSettings,
    SquaredBiasSettings,
    SubsetMinimumSettings,
)
from pessimism.strategies import (
    BanditPenalty,
    ClippedMinimum,
    FixedPenalty,
    LearnedPenalty,
    Pessimism,
    SquaredBiasPenalty,
    SubsetMinimum,
)
from pessimism.training.loop import Budget, Every
from pessimism.training.seeding import stream, stream_seed
from pessimism.types import Replay
from pessimism.values import (
    ensemble_spread,
    pairwise_distance,
    pairwise_distance_w2,
    quantile_huber_loss,
    squared_td_loss,
)

MEASURES = {"wasserstein1": pairwise_distance, "wasserstein2": pairwise_distance_w2, "std": ensemble_spread}


class Shared(TypedDict):
    """What all penalties are given."""

    optimism: Schedule
    disagreement: Callable[[Tensor], Tensor]


def build_pessimism(settings: PessimismSettings, members: int, generator: torch.Generator) -> Pessimism:
    """Build the rule by which the critics are read."""
    match settings:
        case MinimumSettings():
            return ClippedMinimum()
        case SubsetMinimumSettings():
            return SubsetMinimum(members, settings.subset, generator=generator)
        case FixedPenaltySettings():
            return FixedPenalty(settings.beta, **_shared(settings))
        case LearnedPenaltySettings():
            betas = (settings.beta1, 0.999)
            return LearnedPenalty(settings.beta, lr=settings.lr, betas=betas, **_shared(settings))
        case SquaredBiasSettings():
            betas, of_expectation = (settings.beta1, 0.999), settings.square == "expectation"
            return SquaredBiasPenalty(
                settings.beta, of_expectation=of_expectation, lr=settings.lr, betas=betas, **_shared(settings)
            )
        case BanditSettings():
            return BanditPenalty(
                settings.arms,
                lr=settings.lr,
                decay=settings.decay,
                window=settings.window,
                generator=generator,
                **_shared(settings),
            )
        case _:
            assert_never(settings)


def _shared(settings: PenaltySettings) -> Shared:
    optimism = linear(settings.optimism, 0.0, settings.optimism_steps)
    return Shared(optimism=optimism, disagreement=MEASURES[settings.measure])


def build_critic(settings: CriticSettings, inputs: int) -> EnsembleCritic:
    """Build the ensemble of critics."""
    sizes = {"members": settings.members, "atoms": settings.atoms, "hidden": settings.hidden}
    match settings.form:
        case "residual":
            return residual_critic(inputs, spectral=settings.spectral, **sizes)
        case "plain":
            return plain_critic(inputs, **sizes)
        case _:
            assert_never(settings.form)


def build_td_loss(settings: CriticSettings) -> Callable[[Tensor, Tensor], Tensor]:
    """Build the critics' loss: squared errors of means, or regression on quantiles."""
    return squared_td_loss if settings.atoms == 1 else partial(quantile_huber_loss, kappa=settings.kappa)


def build_networks(config: Config, obs_size: int, action_size: int) -> tuple[SquashedGaussianActor, EnsembleCritic]:
    """Build policy and critics; their first weights are a function of the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(config.seed, "weights"))
        actor = SquashedGaussianActor(obs_size, action_size, config.hidden, config.log_std)
        critic = build_critic(config.critic, obs_size + action_size)
        if config.initialisation == "xavier":
            actor.xavier_()
            critic.xavier_()
    return actor.to(config.device), critic.to(config.device)


def build_agent(config: Config, obs_size: int, action_size: int) -> SACAgent:
    """Build the agent."""
    assert config.target_entropy is not None, "the task decides the target entropy before an agent is built"
    actor, critic = build_networks(config, obs_size, action_size)
    with torch.device(config.device):
        generator = stream(config.seed, "pessimism")
        pessimism = build_pessimism(config.pessimism, config.critic.members, generator)
    return SACAgent(
        actor=actor,
        critic=critic,
        pessimism=pessimism,
        target_entropy=config.target_entropy,
        td_loss=build_td_loss(config.critic),
        tau=config.tau,
        lr=config.lr,
        alpha=config.alpha,
        alpha_lr=config.alpha_lr,
        alpha_beta1=config.alpha_beta1,
        actor_clip=config.actor_clip or math.inf,
        generator=stream(config.seed, "update"),
        compile=config.compile and compiler() is not None,
    )


def build_replay(config: Config, obs_size: int, action_size: int) -> Replay:
    """Build the source of batches: a replay, or a model that is fitted to one."""
    generator = stream(config.seed, "replay")
    real = TransitionReplay(config.replay_capacity, obs_size, action_size, config.discount, generator)
    return real if config.model is None else build_model(config.model, config, real)


def build_model(settings: ModelSettings, config: Config, real: TransitionReplay) -> ModelReplay:
    """Build MBPO's model and rollouts on top of the replay of real transitions."""
    terminated = termination(task_name(config.env))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(config.seed, "model"))
        model = DynamicsEnsemble(
            *real.widths[:2],
            members=settings.members,
            elites=settings.elites,
            hidden=settings.hidden,
            lr=settings.lr,
            device=config.device,
        )
    stopping = partial(
        fit,
        batch_size=settings.batch_size,
        holdout=settings.holdout,
        holdout_limit=settings.holdout_limit,
        patience=settings.patience,
    )
    plan = RolloutPlan(
        first_step=config.random_steps + 1,
        train_every=settings.train_every,
        rollouts=settings.rollouts,
        schedule=settings.schedule,
        epoch_steps=settings.epoch_steps,
        retain_epochs=settings.retain_epochs,
    )
    ratio = settings.real_ratio
    return ModelReplay(real, model, terminated=terminated, plan=plan, fit=stopping, real_ratio=ratio)


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
        policy_every=config.policy_every,
    )
