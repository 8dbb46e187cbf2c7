"""Run a config: check it, take its directory, go on where it was, train, and mark it done."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from rich.console import Console

from pessimism.agents.sac import SACAgent
from pessimism.build import build_agent, build_budget, build_replay
from pessimism.config import Config
from pessimism.envs import gym
from pessimism.envs.frames import PixelView
from pessimism.errors import UserError
from pessimism.native.library import load
from pessimism.ops import compiler
from pessimism.presets import sources
from pessimism.tasks import target_entropy, task_folder, truncated_size
from pessimism.training.bias import BiasMeter
from pessimism.training.checkpoint import CheckpointStore
from pessimism.training.directory import RunDirectory, read_config
from pessimism.training.display import Display
from pessimism.training.evaluate import Evaluator
from pessimism.training.loop import Callback, Progress, Trainer
from pessimism.training.recorder import Recorder
from pessimism.training.room import reckon


class Assembly(NamedTuple):
    """A config and the objects that it stands for."""

    config: Config  # with what the task decides filled in
    sources: dict[str, str]  # where each setting comes from
    agent: SACAgent
    trainer: Trainer
    make_env: gym.EnvFactory


class Result(NamedTuple):
    """How a run ended."""

    path: Path
    step: int
    finished: bool


def default_path(config: Config) -> Path:
    """Return the directory that a config's run lives in unless another is asked for."""
    return Path("runs") / config.algorithm / task_folder(config.env) / f"seed_{config.seed}"


def pixel_view(config: Config) -> PixelView | None:
    """Return how the config's agent sees its environment, if it sees pictures."""
    pixels = config.pixels
    return None if pixels is None else PixelView(pixels.size, pixels.stack, pixels.camera)


def env_factory(config: Config, **kwargs: Any) -> gym.EnvFactory:  # noqa: ANN401
    """Return what makes the config's environment; `kwargs` are given to it beside the config's own."""
    return partial(
        gym.make,
        config.env,
        entries=truncated_size(config.env) if config.observation == "truncated" else None,
        view=pixel_view(config),
        action_repeat=config.action_repeat,
        **config.env_kwargs | kwargs,
    )


def assemble(config: Config, make_env: gym.EnvFactory | None = None) -> Assembly:
    """Build everything that a run needs in memory; nothing is written."""
    _prepare_torch(config)
    make_env = make_env or env_factory(config)
    env = make_env()
    _check_episodes(config, env)
    config, origin = _resolved(config, env)
    agent = build_agent(config, env.obs_shape, env.action_size)
    bias_meter = BiasMeter(make_env, config.bias.episodes, config.bias.tail, config.discount, config.seed)
    trainer = Trainer(
        agent=agent,
        replay=build_replay(config, env.obs_shape, env.action_size),
        env=env,
        budget=build_budget(config),
        seed=config.seed,
        generators={"update": agent.generator, "pessimism": agent.pessimism.generator},
        evaluator=Evaluator(make_env, config.evaluation.episodes, config.seed),
        bias_meter=bias_meter,
    )
    return Assembly(config, origin, agent, trainer, make_env)


def run(
    config: Config,
    path: Path | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    make_env: gym.EnvFactory | None = None,
    console: Console | None = None,
) -> Result:
    """Train until the config's steps are reached; the same call goes on with a run that was cut off."""
    assembly = assemble(config, make_env)
    return record(assembly, path or default_path(assembly.config), callbacks, console or Console(quiet=True))


def record(assembly: Assembly, path: Path, callbacks: Sequence[Callback], console: Console) -> Result:
    """Train inside a run directory."""
    config, directory = assembly.config, RunDirectory(path)
    room = reckon(config, assembly.trainer.replay)
    room.check_memory()
    say = partial(console.print, highlight=False, soft_wrap=True)
    with directory.taken(config, assembly.sources, room.places(path, directory.nbytes)):
        if (done := directory.done) and done["step"] >= config.steps:
            say(f"{path} is done: {done['step']} steps")
            return Result(path, done["step"], True)
        say(f"{config.algorithm} on {config.env}, seed {config.seed}, in {path}")
        say(str(room))
        progress = _train(assembly.trainer, Recorder(directory, config), callbacks, console)
        finished = progress.step >= config.steps
        if finished:
            directory.finish({"step": progress.step, "episodes": progress.episode})
            say(f"done: {progress.step} steps, in {path}")
        else:
            say(f"stopped at step {progress.step}, which is saved: the same command goes on from there")
    return Result(path, progress.step, finished)


def _train(trainer: Trainer, recorder: Recorder, callbacks: Sequence[Callback], console: Console) -> Progress:
    """Go on from the newest checkpoint, recording everything."""
    step, torn = recorder.resume(trainer)
    for line in (*torn, *_start_lines(recorder.config, step)):
        console.print(line, highlight=False, soft_wrap=True)
    display = Display(console, recorder.config.steps, step)
    with _interruption(console) as interruption:
        try:
            recorder.attach(trainer, [display], [display, *callbacks, interruption])
            return trainer.run()
        finally:
            recorder.close()


def load_run(path: Path) -> tuple[Assembly, int]:
    """Return a run as its newest checkpoint left it, and that checkpoint's step. Its directory stays untouched."""
    config = read_config(path)
    checkpoint, _ = CheckpointStore(path, config.checkpoint.keep).load(None)
    if checkpoint is None:
        raise UserError(f"the run in {path} has no checkpoint yet: let it train on")
    assembly = assemble(config.model_copy(update={"compile": False}))
    assembly.agent.load_state_dict(checkpoint.part("agent"))
    return assembly, checkpoint.step


def _resolved(config: Config, env: gym.ControlEnv) -> tuple[Config, dict[str, str]]:
    """Fill in what the task decides; return the config and the source of each value."""
    entropy, source = target_entropy(config.env, env.action_size)
    if config.target_entropy not in (None, entropy):
        entropy, source = config.target_entropy, "asked for"
    config = config.model_copy(update={"target_entropy": entropy})
    return config, sources(config, source)


def _check_episodes(config: Config, env: gym.ControlEnv) -> None:
    spec = env.env.spec
    if config.pessimism.name == "bandit" and spec is not None and spec.max_episode_steps is None:
        raise UserError(
            f"the bandit learns from finished episodes and {config.env} has no time limit: "
            "give one with --env-kwargs '{max_episode_steps: 1000}'"
        )


def _prepare_torch(config: Config) -> None:
    if config.device == "cuda" and not torch.cuda.is_available():
        raise UserError("this torch finds no CUDA device: leave --device out, or install a CUDA build of torch")
    if config.threads:
        torch.set_num_threads(config.threads)
    # Adam's moments of inactive units decay into denormal numbers, which the CPU adds up a hundred times slower.
    torch.set_flush_denormal(True)


def _start_lines(config: Config, step: int) -> Iterator[str]:
    if step:
        yield f"going on from the checkpoint of step {step}"
    if config.compile and compiler() is None:
        yield "no C++ compiler found: the update runs uncompiled, with the same numbers, slower"
    elif config.compile:
        yield "the first update compiles, which takes some seconds"
        in_cpp = (
            config.device == "cpu" and config.pixels is None and config.critic.atoms == 1
        )  # as far as settings tell
        if in_cpp and isinstance(reason := load(), str):
            yield f"the critics' update is torch's, slower than the one in C++: {reason}"


class _Interruption(Callback):
    """Ends a run after the current step once the process was asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def on_step(self, progress: Progress) -> bool:
        """Go on unless asked not to."""
        return not self.asked


@contextmanager
def _interruption(console: Console) -> Iterator[_Interruption]:
    """Turn the first Ctrl-C, or a scheduler's SIGTERM, into a clean stop; the second stops at once."""
    interruption = _Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption  # signals belong to the main thread
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if interruption.asked:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        interruption.asked = True
        console.print("stopping after this step, with a checkpoint; once more stops at once")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
