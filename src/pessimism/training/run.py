"""Run a config: check it, lock its directory, resume from its newest checkpoint, train, and mark it done."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from pessimism.agents.sac import ActorCritic, SACAgent
from pessimism.config.schema import Config
from pessimism.config.tasks import target_entropy, task_folder, truncated_size
from pessimism.envs.control import ControlEnv, EnvFactory
from pessimism.envs.frames import PixelView
from pessimism.envs.make import known, make
from pessimism.errors import UserError
from pessimism.native.critic import refusal
from pessimism.native.library import is_built
from pessimism.nn.compilation import cache_problem, compiler
from pessimism.replay.prior import Recorded
from pessimism.terminal import announced
from pessimism.training.bias import BiasMeter, TrainingBias
from pessimism.training.build import build_agent, build_budget, build_replay
from pessimism.training.checkpoint import CheckpointStore, misfit
from pessimism.training.directory import RunDirectory, read_config
from pessimism.training.display import Display, interruptible
from pessimism.training.evaluate import Evaluator
from pessimism.training.loop import Callback, Trainer
from pessimism.training.prior import absolute, read_prior
from pessimism.training.recorder import Recorder, check_same
from pessimism.training.resources import check_networks, estimate_needs
from pessimism.training.sinks import check_wandb
from pessimism.training.state import Progress, Streams

WITHOUT_PRIOR: dict[str, Any] = {"prior": (), "prior_checksum": None}  # settings of an agent that only acts


class Assembly(NamedTuple):
    """A config and the objects that it stands for."""

    config: Config  # with what the task decides filled in
    entropy_source: str  # where its target entropy comes from
    agent: ActorCritic
    trainer: Trainer
    make_env: EnvFactory


class Result(NamedTuple):
    """How a run ended."""

    path: Path
    step: int
    finished: bool


def default_path(config: Config) -> Path:
    """Return the default directory of a config's run."""
    return Path("runs") / config.algorithm / task_folder(config.env) / f"seed_{config.seed}"


def pixel_view(config: Config) -> PixelView | None:
    """Return how the config's agent sees its environment, if it sees images."""
    pixels = config.pixels
    return None if pixels is None else PixelView(pixels.size, pixels.stack, pixels.camera)


def env_factory(config: Config, **kwargs: Any) -> EnvFactory:  # noqa: ANN401
    """Return what makes the config's environment; `kwargs` are given to it beside the config's own."""
    return partial(
        make,
        config.env,
        config.env_kwargs | kwargs,
        entries=truncated_size(config.env) if config.observation == "truncated" else None,
        view=pixel_view(config),
        action_repeat=config.action_repeat,
    )


def assemble(config: Config, make_env: EnvFactory | None = None, env: ControlEnv | None = None) -> Assembly:
    """Build everything that a run needs in memory; nothing is written. `env`: an existing one to train in."""
    _prepare_torch(config)
    make_env = make_env or env_factory(config)
    env = env or make_env()
    _check_episodes(config, env)
    prior = read_prior(config.prior, env) if config.prior else None
    config, entropy_source = _resolved(config, env, prior)
    check_networks(config, env.obs_shape, env.action_size)
    seed, streams = config.seed, Streams(config.seed)
    agent = build_agent(config, env.obs_shape, env.action_size, streams)
    bias, evaluation, discount = config.bias, config.evaluation, config.discount
    trainer = Trainer(
        agent=agent,
        budget=build_budget(config),
        replay=build_replay(config, env.obs_shape, env.action_size, prior, streams),
        env=env,
        seed=seed,
        generators={"update": agent.generator, "pessimism": agent.pessimism.generator},
        evaluator=Evaluator(make_env, evaluation.episodes, seed, evaluation.limit),
        bias_meter=BiasMeter(make_env, bias.episodes, seed, bias.limit, tail=bias.tail, discount=discount),
        training_bias=TrainingBias(tail=bias.tail, discount=discount, seed=seed),
    )
    return Assembly(config, entropy_source, agent, trainer, make_env)


def run(
    config: Config,
    path: Path | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    make_env: EnvFactory | None = None,
    console: Console | None = None,
) -> Result:
    """Train until the config's steps are reached; the same call resumes an interrupted run."""
    console = console or Console(quiet=True)
    once = "" if not config.compile or is_built() else " and building the update in C++, which is done once"
    with announced(console, f"making the environment{once}"):
        assembly = assemble(config, make_env)
    return record(assembly, path or default_path(assembly.config), callbacks, console)


def record(assembly: Assembly, path: Path, callbacks: Sequence[Callback], console: Console) -> Result:
    """Train inside a run directory."""
    config, needs = assembly.config, estimate_needs(assembly.config, assembly.trainer.replay)
    needs.check(path)
    opening = f"{config.algorithm} on {config.env}, seed {config.seed}, in {path}\n{needs}"
    if config.log.wandb:
        check_wandb()
    say = partial(console.print, highlight=False, soft_wrap=True)
    directory = RunDirectory(path)
    with directory.taken(config, assembly.entropy_source):
        if (done := directory.done) and done.get("step", 0) >= config.steps:
            say(f"{path} is done: {done['step']} steps")
            return Result(path, done["step"], True)
        say(opening)
        progress = _train(assembly, Recorder(directory, config), callbacks, console)
        finished = progress.step >= config.steps
        if finished:
            directory.finish({"step": progress.step, "episodes": progress.episode})
            say(f"done: {progress.step} steps, in {path}")
        else:
            say(f"stopped at step {progress.step}, which is saved: the same command resumes it")
    return Result(path, progress.step, finished)


def _train(assembly: Assembly, recorder: Recorder, callbacks: Sequence[Callback], console: Console) -> Progress:
    """Resume from the newest checkpoint and train, recording everything."""
    config, trainer = recorder.config, assembly.trainer
    step, torn = recorder.resume(trainer)
    say = partial(console.print, highlight=False, soft_wrap=True)
    for line in (*torn, *_start_lines(config, assembly.agent, step)):
        say(line)
    announces = assembly.agent.compiles and config.learn_at == "step"
    first_update = max(config.random_steps, step) + 1 if announces else None
    with interruptible(console) as interruption:
        display = Display(console, config.steps, step, first_update)
        try:
            for problem in recorder.attach(trainer, [display], [display, *callbacks, interruption], say):
                say(problem)
            return trainer.run()
        finally:
            recorder.close()


def load_run(
    path: Path, *, trust_env: bool = False, say: Callable[[str], None] = lambda line: None
) -> tuple[Assembly, int]:
    """Return a run at its newest checkpoint, and that checkpoint's step. Nothing in its directory changes.

    Its replay and its prior data are not loaded.
    A module that the run names for its environment is imported only with `trust_env`. `say` is called with a
    line for each damaged checkpoint that is skipped.
    """
    config = read_config(path)
    env = config.env if trust_env else known(config.env)
    checkpoint, torn = CheckpointStore(path, config.checkpoint.keep).load(None)
    for line in torn:
        say(line)
    if checkpoint is None:
        raise UserError(f"the run in {path} has no checkpoint yet: train it further")
    check_same(config, checkpoint, path)
    assembly = assemble(config.model_copy(update={"compile": False, "env": env, **WITHOUT_PRIOR}))
    if problem := misfit(assembly.agent.state_dict(), checkpoint.part("agent")):
        raise UserError(f"the checkpoint of step {checkpoint.step} in {path} does not fit its settings: {problem}")
    assembly.agent.load_state_dict(checkpoint.part("agent"))
    return assembly, checkpoint.step


def _resolved(config: Config, env: ControlEnv, prior: Recorded | None) -> tuple[Config, str]:
    """Fill in what task and prior data decide; return the config and the source of the target entropy."""
    entropy, source = target_entropy(config.env, env.action_size, config.entropy_per_action)
    if config.target_entropy not in (None, entropy):
        entropy, source = config.target_entropy, "asked for"
    checksum = prior.checksum if prior else None
    if config.prior_checksum not in (None, checksum):
        raise UserError(
            f"the prior data have the checksum {checksum}, not {config.prior_checksum}: they are not those that "
            "were asked for or that the run began with"
        )
    places = tuple(map(absolute, config.prior))  # a run may be resumed from another directory
    decided = {"target_entropy": entropy, "prior_checksum": checksum, "prior": places}
    return config.model_copy(update=decided), source


def _check_episodes(config: Config, env: ControlEnv) -> None:
    spec, strategy = env.env.spec, config.pessimism
    if strategy.learns_from_episodes and spec is not None and spec.max_episode_steps is None:
        raise UserError(
            f"the strategy {strategy.name} learns from finished episodes and {config.env} has no time limit: "
            "give one with --env-kwargs '{max_episode_steps: 1000}'"
        )


def _prepare_torch(config: Config) -> None:
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError("this torch finds no CUDA device: leave --device out, or install a CUDA build of torch")
    if config.compile and compiler() is not None and (problem := cache_problem()):
        raise UserError(f"torch cannot compile: {problem}; set TORCHINDUCTOR_CACHE_DIR, or --compile false")
    if config.threads:
        torch.set_num_threads(config.threads)
    # Adam's moments of inactive units decay into denormal numbers, which the CPU adds up a hundred times slower.
    torch.set_flush_denormal(True)


def _start_lines(config: Config, agent: ActorCritic, step: int) -> Iterator[str]:
    if step:
        yield f"resuming from the checkpoint of step {step}"
    if config.compile and compiler() is None:
        yield "no C++ compiler found: the update runs uncompiled, with the same numbers, slower"
    elif agent.compiles:
        yield "torch compiles the first update, which takes up to a minute the first time"
        if config.device == "cpu" and isinstance(agent, SACAgent):
            reason = refusal(agent.learner.critic, agent.learner.td_loss)
            yield f"the update in C++ would be faster, but {reason}"
