"""Agent steps per CPU-second, action repeat 2: python docs/frame_time.py pixels|states QUALITY TASK [TASK ...]."""

import sys
import time

import numpy as np

from pessimism.envs import gym

what, quality, *tasks = sys.argv[1:]
for task in tasks:
    env = gym.make(task, view=gym.PixelView() if what == "pixels" else None, action_repeat=2, quality=quality)
    env.reset(0)
    draw, steps, started = np.random.default_rng(0), 0, time.process_time()
    while time.process_time() - started < 5:
        if env.step(draw.uniform(-1, 1, env.action_size).astype(np.float32)).truncated:
            env.reset(0)
        steps += 1
    print(f"{task:24} {what} {quality} {steps / (time.process_time() - started):.0f}")
    env.close()
