"""The only place that turns settings into objects."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch

from pessimism.agents.critic_learner import LearnerOptions, TDLoss, critic_learner
from pessimism.agents.pixel_learner import PixelLearner
from pessimism.agents.pixels import PixelAgent
from pessimism.agents.sac import ActorCritic, Options, SACAgent, Schedule
from pessimism.config.choices import AUGMENTATIONS, CRITIC_FORMS, MEASURES, POLICY_FORMS
from pessimism.config.schema import Config
from pessimism.config.settings import CriticSettings, ModelSettings, PixelSettings
from pessimism.config.strategies import PenaltySettings, StrategySettings
from pessimism.config.tasks import task_name
from pessimism.errors import UserError
from pessimism.models.dynamics import DynamicsEnsemble
from pessimism.models.fitting import fit
from pessimism.models.rollouts import ModelReplay, RolloutPlan
from pessimism.models.termination import termination
from pessimism.native.products import refusal
from pessimism.nn.actor import NoisyActor, PixelActor, SquashedGaussianActor, VectorActor
from pessimism.nn.compilation import compiler
from pessimism.nn.critic import EnsembleCritic, PixelCritic
from pessimism.nn.encoder import Contrast, ConvEncoder, Crop, Trunk
from pessimism.nn.ensemble import unit_orthogonal_
from pessimism.nn.scaling import RewardScale
from pessimism.replay.frames import FrameReplay
from pessimism.replay.prior import PriorReplay, Recorded
from pessimism.replay.transitions import TransitionReplay
from pessimism.strategies import Pessimism
from pessimism.training.loop import Budget, Every
from pessimism.training.state import Streams
from pessimism.types import Replay
from pessimism.values import cross_entropy_loss, quantile_huber_loss, squared_td_loss

SMALLEST_IMAGE = 21  # pixels: four convolutions leave more than none of them, also after CURL's crop


def linear(start: float, end: float, steps: int) -> Schedule:
    """Return a schedule that moves from `start` to `end` over the first `steps` steps and stays there."""
    return lambda step: start + (end - start) * min(max(step / steps, 0.0), 1.0)


def build_strategy(settings: StrategySettings, **offered: Any) -> Pessimism:  # noqa: ANN401
    """Build the strategy by which the critics are read: the class that its entry names.

    The class is given the entry's fields, and those `offered` arguments that it has parameters for.
    """
    strategy: type[Pessimism] = resolve_name(settings.implementation)
    arguments = settings.model_dump(exclude={"name", "samples"})  # samples are for the critics
    if isinstance(settings, PenaltySettings):  # these two become functions
        arguments["disagreement"] = resolve_name(MEASURES[arguments.pop("measure")])
        arguments["optimism"] = linear(arguments["optimism"], 0.0, arguments.pop("optimism_steps"))
    return strategy(**arguments, **_accepted(strategy, offered))


def build_critic(settings: CriticSettings, inputs: int, samples: int = 1) -> EnsembleCritic:
    """Build the ensemble of critics. Its form is given those settings that it has parameters for."""
    form: Callable[..., EnsembleCritic] = resolve_name(CRITIC_FORMS[settings.form])
    return form(inputs, **_accepted(form, settings.model_dump() | {"samples": samples}))


def _accepted(function: Callable[..., object], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the offered arguments that a function or class has parameters for."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in offered.items() if name in parameters}


def build_td_loss(settings: CriticSettings) -> TDLoss:
    """Build the critics' loss: squared errors of means, regression on quantiles, or cross-entropy."""
    if settings.support is not None:
        return cross_entropy_loss
    if settings.atoms > 1:
        return partial(quantile_huber_loss, kappa=settings.kappa)
    return squared_td_loss if settings.scale == 0.5 else partial(squared_td_loss, scale=settings.scale)


def build_policy(config: Config, obs_size: int, action_size: int) -> VectorActor:
    """Build the policy's network."""
    if config.policy == "gaussian":
        form: Callable[..., SquashedGaussianActor] = resolve_name(POLICY_FORMS[config.policy_form])
        # XQC's code follows the policy's batches at every critic update, this one at its own updates: as fast.
        momentum = 0.99 ** (config.policy_every or config.updates_per_step)
        return form(obs_size, action_size, config.hidden, config.log_std, **_accepted(form, {"momentum": momentum}))
    noise = linear(*config.noise)
    return NoisyActor(obs_size, action_size, config.hidden, noise=noise, clip=config.noise_clip)


def build_networks(
    config: Config, obs_size: int, action_size: int, seed: int
) -> tuple[VectorActor, EnsembleCritic]:
    """Build policy and critics on states; `seed` is that of their first weights."""
    with first_weights(seed):
        actor = build_policy(config, obs_size, action_size)
        samples = config.pessimism.samples if isinstance(config.pessimism, PenaltySettings) else 1
        critic = build_critic(config.critic, obs_size + action_size, samples)
        if config.initialisation == "xavier":
            actor.xavier_()
            critic.xavier_()
        elif config.initialisation == "unit-orthogonal":
            unit_orthogonal_(actor)
            unit_orthogonal_(critic)
    return actor.to(config.device), critic.to(config.device)


@contextmanager
def first_weights(seed: int) -> Iterator[None]:
    """Seed torch's global random numbers for a block, and restore them after it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def build_agent(
    config: Config, obs_shape: Sequence[int], action_size: int, streams: Streams | None = None
) -> ActorCritic:
    """Build the agent; observations have the shape [obs], or [stack, H, W, C] where they are images."""
    streams = streams or Streams(config.seed)
    with torch.device(config.device):
        pessimism = build_strategy(
            config.pessimism,
            members=config.critic.members,
            generator=streams.pessimism,
            discount=config.discount,
            n_step=config.n_step,
            follow_rate=_follow_rate(config),
        )
    if config.pixels is not None:
        return build_pixel_agent(
            config, config.pixels, obs_shape, action_size, pessimism=pessimism, streams=streams
        )
    options, learning = _agent_options(config, streams), _learner_options(config)
    actor, critic = build_networks(config, obs_shape[0], action_size, streams.weights)
    critic.precision = config.precision
    if config.precision != "float32" and config.compile and (reason := refusal(config.precision)):
        raise UserError(f"--precision {config.precision} is for products in C++: {reason}")
    learner = critic_learner(critic, pessimism, compile=options["compile"], **learning)
    return SACAgent(actor=actor, learner=learner, **options)


def _follow_rate(config: Config) -> float:
    """Return the inverse of the environment steps in which critics follow their targets.

    Target critics take over the share tau per average, and a target moves by gamma**n of what they do.
    """
    averages = config.updates_per_step / config.update_every
    if config.average_with == "policy":
        averages /= config.policy_every or config.updates_per_step
    return config.tau * (1 - config.discount**config.n_step) * averages


def compiles(config: Config) -> bool:
    """Return whether updates are compiled: if asked for and there is a compiler."""
    return config.compile and compiler() is not None


def _learner_options(config: Config) -> LearnerOptions:
    return LearnerOptions(
        td_loss=build_td_loss(config.critic), tau=config.tau, lr=config.lr, average_with=config.average_with
    )


def _agent_options(config: Config, streams: Streams) -> Options:
    assert config.target_entropy is not None, "the task decides the target entropy before an agent is built"
    return Options(
        target_entropy=config.target_entropy if config.alpha else None,
        lr=config.lr,
        alpha=config.alpha,
        alpha_lr=config.alpha_lr,
        alpha_beta1=config.alpha_beta1,
        actor_clip=config.actor_clip or math.inf,
        lr_share=None if config.lr_end is None else linear(1.0, config.lr_end / config.lr, config.lr_steps),
        reward_scale=RewardScale(config.discount).to(config.device) if config.scale_rewards else None,
        generator=streams.update,
        compile=compiles(config),
    )


def build_pixel_agent(
    config: Config,
    pixels: PixelSettings,
    obs_shape: Sequence[int],
    action_size: int,
    *,
    pessimism: Pessimism,
    streams: Streams,
) -> PixelAgent:
    """Build encoder, policy and critics on images [stack, H, W, C], and their agent."""
    stack, height, width, channels = obs_shape
    if height != width or height < SMALLEST_IMAGE:
        needed = f"square ones of {SMALLEST_IMAGE} x {SMALLEST_IMAGE} pixels or more"
        raise UserError(f"the images have {height} x {width} pixels: the encoder takes {needed}")
    crop: Crop = resolve_name(AUGMENTATIONS[pixels.augmentation])(height)
    with first_weights(streams.weights):
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
    learner = PixelLearner(
        encoder=encoder.to(config.device),
        crop=crop,
        actor=actor.to(config.device),
        critic=critic.to(config.device),
        pessimism=pessimism,
        encoder_tau=pixels.encoder_tau,
        contrast=contrast,
        compile=compiles(config),
        **_learner_options(config),
    )
    return PixelAgent(actor=actor, learner=learner, **_agent_options(config, streams))


def build_replay(
    config: Config,
    obs_shape: Sequence[int],
    action_size: int,
    prior: Recorded | None = None,
    streams: Streams | None = None,
) -> Replay:
    """Build the source of batches: a replay, which may hold prior data too, or a model that is fitted to one."""
    streams = streams or Streams(config.seed)
    file = None if config.replay_file is None else Path(config.replay_file)
    share = config.pessimism.holds_out if config.held_out is None else config.held_out
    held_out_every = round(1 / share) if share else 0  # one of so many transitions is held out
    if config.pixels is not None:
        stack, height, width, channels = obs_shape
        return FrameReplay(
            config.replay_capacity,
            (height, width, channels),
            stack=stack,
            action_size=action_size,
            discount=config.discount,
            n_step=config.n_step,
            generator=streams.replay,
            held_out_every=held_out_every,
            file=file,
        )
    kind: Callable[..., TransitionReplay] = TransitionReplay
    if prior is not None:
        rows = prior.rows(config.discount, config.n_step)
        kind = partial(PriorReplay, prior=rows, share=config.prior_share)
    real = kind(
        config.replay_capacity,
        obs_shape[0],
        action_size,
        config.discount,
        streams.replay,
        n_step=config.n_step,
        held_out_every=held_out_every,
        file=file,
    )
    return real if config.model is None else build_model(config.model, config, real, streams.model_weights)


def build_model(settings: ModelSettings, config: Config, real: TransitionReplay, seed: int) -> ModelReplay:
    """Build MBPO's model, its first weights from `seed`, and rollouts on top of the replay of real transitions."""
    terminated = termination(task_name(config.env))
    with first_weights(seed):
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
    """Build the plan of the loop: how long to train, and what to do how often."""
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
        learn_at=config.learn_at,
    )
