"""A short film of a trained agent."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pessimism import records
from pessimism.envs.control import ControlEnv
from pessimism.errors import UserError
from pessimism.extras import missing
from pessimism.training.run import env_factory, load_run
from pessimism.training.state import stream_seed
from pessimism.types import Agent

SECONDS = 10


def film(run: Path, *, trust_env: bool = False) -> Path:
    """Film the newest checkpoint acting deterministically; return the video's path."""
    try:
        import imageio_ffmpeg
    except ImportError:
        raise missing("a video encoder", "report") from None
    assembly, _ = load_run(run, trust_env=trust_env)
    config = assembly.config
    env = env_factory(config, render_mode="rgb_array")()
    rate = env.env.metadata.get("render_fps", 30)
    every = max(1, round(rate / 25))  # about 25 frames a second, in real time
    frames = _frames(env, assembly.agent, config.seed, round(SECONDS * rate), every)
    first = next(frames)
    path = run / records.VIDEO
    try:
        writer = imageio_ffmpeg.write_frames(str(path), first.shape[1::-1], fps=rate / every, macro_block_size=1)
        writer.send(None)
        writer.send(np.ascontiguousarray(first))
        for frame in frames:
            writer.send(np.ascontiguousarray(frame))
        writer.close()
    except (OSError, RuntimeError) as error:  # ffmpeg is missing, does not run, or cannot write
        raise UserError(f"cannot write {path}: {' '.join(str(error).split())[:200]}") from None
    env.close()
    return path


def _frames(env: ControlEnv, agent: Agent, seed: int, steps: int, every: int) -> Iterator[NDArray[np.uint8]]:
    """Yield every `every`-th frame of one episode after another."""
    episode, obs = 0, env.reset(stream_seed(seed, "video", 0))
    for tick in range(steps):
        if tick % every == 0:
            yield env.render()
        after = env.step(agent.mode(torch.from_numpy(obs)[None])[0].numpy())
        obs = after.obs
        if after.terminated or after.truncated:
            episode += 1
            obs = env.reset(stream_seed(seed, "video", episode))
