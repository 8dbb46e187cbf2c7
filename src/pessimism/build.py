"""The only place that turns settings into objects."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypedDict, assert_never

import torch
from torch import Tensor

from pessimism.agents.pixels import PixelAgent
from pessimism.agents.sac import Options, SACAgent
from pessimism.config import Config
from pessimism.errors import UserError
from pessimism.models.dynamics import DynamicsEnsemble
from pessimism.models.fitting import fit
from pessimism.models.rollouts import ModelReplay, RolloutPlan
from pessimism.models.termination import termination
from pessimism.nn.actor import NoisyActor, PixelActor, Policy, SquashedGaussianActor
from pessimism.nn.contrast import Contrast
from pessimism.nn.critic import EnsembleCritic, PixelCritic, plain_critic, residual_critic
from pessimism.nn.encoder import ConvEncoder, Crop, Trunk
from pessimism.nn.ensemble import unit_orthogonal_
from pessimism.ops import compiler
from pessimism.replay.frames import FrameReplay
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
    PixelSettings,
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
from pessimism.tasks import task_name
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
    if settings.atoms > 1:
        return partial(quantile_huber_loss, kappa=settings.kappa)
    return squared_td_loss if settings.scale == 0.5 else partial(squared_td_loss, scale=settings.scale)


def build_policy(config: Config, obs_size: int, action_size: int) -> Policy:
    """Build the policy's network."""
    match config.policy:
        case "gaussian":
            return SquashedGaussianActor(obs_size, action_size, config.hidden, config.log_std)
        case "noisy":
            noise = linear(*config.noise)
            return NoisyActor(obs_size, action_size, config.hidden, noise=noise, clip=config.noise_clip)
        case _:
            assert_never(config.policy)


def build_networks(config: Config, obs_size: int, action_size: int) -> tuple[SquashedGaussianActor, EnsembleCritic]:
    """Build policy and critics on states; their first weights are a function of the seed."""
    with first_weights(config.seed):
        actor = SquashedGaussianActor(obs_size, action_size, config.hidden, config.log_std)
        critic = build_critic(config.critic, obs_size + action_size)
        if config.initialisation == "xavier":
            actor.xavier_()
            critic.xavier_()
        elif config.initialisation == "unit-orthogonal":
            unit_orthogonal_(actor)
            unit_orthogonal_(critic)
    return actor.to(config.device), critic.to(config.device)


@contextmanager
def first_weights(seed: int, name: str = "weights") -> Iterator[None]:
    """Let torch's own random numbers be a function of the seed, and leave them as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, name))
        yield


def build_agent(config: Config, obs_shape: Sequence[int], action_size: int) -> SACAgent:
    """Build the agent; observations have the shape [obs], or [stack, H, W, C] where they are pictures."""
    shared = _shared_by_agents(config)
    if config.pixels is not None:
        return build_pixel_agent(config, config.pixels, obs_shape, action_size, shared)
    actor, critic = build_networks(config, obs_shape[0], action_size)
    return SACAgent(actor=actor, critic=critic, **shared)


def _shared_by_agents(config: Config) -> Options:
    assert config.target_entropy is not None, "the task decides the target entropy before an agent is built"
    with torch.device(config.device):
        generator = stream(config.seed, "pessimism")
        pessimism = build_pessimism(config.pessimism, config.critic.members, generator)
    return Options(
        pessimism=pessimism,
        target_entropy=config.target_entropy if config.alpha else None,
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


def build_pixel_agent(
    config: Config, pixels: PixelSettings, obs_shape: Sequence[int], action_size: int, shared: Options
) -> PixelAgent:
    """Build encoder, policy and critics on pictures [stack, H, W, C], and their agent."""
    stack, height, width, channels = obs_shape
    if height != width:
        raise UserError(f"pictures of {height} x {width} pixels: the encoder takes square ones")
    crop = build_crop(pixels, height)
    with first_weights(config.seed):
        encoder = ConvEncoder(
            stack * channels,
            crop.size,
            filters=pixels.filters,
            offset=0.5 if pixels.centred else 0.0,
            form=pixels.convolutions,
        )
        trunks = [Trunk(encoder.features, pixels.features, squashed=pixels.squashed) for _ in range(2)]
        actor = PixelActor(trunks[0], build_policy(config, pixels.features, action_size))
        critic = PixelCritic(trunks[1], build_critic(config.critic, pixels.features + action_size))
        if config.initialisation == "unit-orthogonal":
            unit_orthogonal_(actor)
            unit_orthogonal_(critic)
        contrast = Contrast(pixels.features).to(config.device) if pixels.contrastive else None
    return PixelAgent(
        encoder=encoder.to(config.device),
        crop=crop,
        actor=actor.to(config.device),
        critic=critic.to(config.device),
        encoder_tau=pixels.encoder_tau,
        average_with=config.average_with,
        contrast=contrast,
        **shared,
    )


def build_crop(settings: PixelSettings, picture: int) -> Crop:
    """Build the augmentation: DrQ's shift moves by up to 4 pixels, CURL's crop leaves 84 of 100 pixels."""
    match settings.augmentation:
        case "shift":
            return Crop(picture, picture, padding=4, places=9)
        case "crop":
            size = round(0.84 * picture)
            return Crop(picture, size, padding=0, places=picture - size)
        case "none":
            return Crop(picture, picture, padding=0, places=1)
        case _:
            assert_never(settings.augmentation)


def build_replay(config: Config, obs_shape: Sequence[int], action_size: int) -> Replay:
    """Build the source of batches: a replay, or a model that is fitted to one."""
    generator = stream(config.seed, "replay")
    if config.pixels is not None:
        stack, height, width, channels = obs_shape
        return FrameReplay(
            config.replay_capacity,
            (height, width, channels),
            stack=stack,
            action_size=action_size,
            discount=config.discount,
            n_step=config.n_step,
            generator=generator,
            file=None if config.replay_file is None else Path(config.replay_file),
        )
    real = TransitionReplay(config.replay_capacity, obs_shape[0], action_size, config.discount, generator)
    return real if config.model is None else build_model(config.model, config, real)


def build_model(settings: ModelSettings, config: Config, real: TransitionReplay) -> ModelReplay:
    """Build MBPO's model and rollouts on top of the replay of real transitions."""
    terminated = termination(task_name(config.env))
    with first_weights(config.seed, "model"):
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
        update_every=config.update_every,
    )
