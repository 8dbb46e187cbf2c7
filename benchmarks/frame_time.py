"""Count an environment's steps per second of processor time, action repeat 2."""

import time

import numpy as np

from pessimism.envs.frames import PixelView
from pessimism.envs.make import make
from pessimism.tools.script import Parser, start


def main() -> None:
    """Take random actions in each task."""
    parser = Parser(__doc__)
    parser.add_argument("what", choices=("pixels", "states"), help="what is observed")
    parser.add_argument("quality", choices=("standard", "fast"), help="of DeepMind Control's drawing")
    parser.add_argument("tasks", nargs="+", help="such as dmc/cheetah-run")
    parser.add_argument("--seconds", type=float, default=5, help="processor time for each task (5)")
    asked = parser.parse_args()
    view = PixelView() if asked.what == "pixels" else None
    for task in asked.tasks:
        env = make(task, view=view, action_repeat=2, quality=asked.quality)
        env.reset(0)
        draw, steps, started = np.random.default_rng(0), 0, time.process_time()
        while not steps or time.process_time() - started < asked.seconds:
            if env.step(draw.uniform(-1, 1, env.action_size).astype(np.float32)).truncated:
                env.reset(0)
            steps += 1
        speed = steps / (time.process_time() - started)
        print(f"{task:24} {asked.what} {asked.quality} {speed:.0f}")
        env.close()


if __name__ == "__main__":
    start(main)
