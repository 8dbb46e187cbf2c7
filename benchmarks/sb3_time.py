"""What a strategy costs beside SB3's own step: updates of SB3's SAC and of pessimism.sb3.GPLSAC, in turns.

python benchmarks/sb3_time.py [--rounds 20] [--updates 10]

Processor time of `train` in milliseconds per update, at the sizes of HalfCheetah (17 + 6), batch 256. Each round
times every contestant once. The ratio to SB3's SAC with as many critics is taken within a round; the median counts.
"""

import statistics
import time

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.logger import Logger

from pessimism.sb3 import GPLSAC
from pessimism.tools.script import Parser, start

OBS, ACTION, BATCH = 17, 6, 256


class Still(gymnasium.Env):
    """Only spaces: no step is taken."""

    observation_space = spaces.Box(-1, 1, (OBS,), np.float32)
    action_space = spaces.Box(-1, 1, (ACTION,), np.float32)


def filled(model: SAC) -> SAC:
    """Return the agent with random transitions to learn from."""
    model.set_logger(Logger(None, []))
    draw = np.random.default_rng(0)
    for _ in range(2 * BATCH):
        obs, following = draw.uniform(-1, 1, (2, 1, OBS)).astype(np.float32)
        action = draw.uniform(-1, 1, (1, ACTION)).astype(np.float32)
        model.replay_buffer.add(obs, following, action, draw.normal(size=1), np.zeros(1), [{}])
    return model


def milliseconds(model: SAC, updates: int) -> float:
    """Return the processor time of one update."""
    before = time.process_time()
    model.train(updates, BATCH)
    return 1000 * (time.process_time() - before) / updates


def main() -> None:
    """Print a table."""
    parser = Parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--updates", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    shared = {"seed": 0, "device": "cpu", "buffer_size": 4 * BATCH}
    for members in (2, 10):
        contestants = {
            "SB3 SAC": SAC("MlpPolicy", Still(), **shared, policy_kwargs={"n_critics": members}),
            "minimum": GPLSAC("MlpPolicy", Still(), **shared, n_critics=members, pessimism={"name": "minimum"}),
            "fixed": GPLSAC("MlpPolicy", Still(), **shared, n_critics=members, pessimism={"name": "fixed"}),
            "learned": GPLSAC("MlpPolicy", Still(), **shared, n_critics=members),
        }
        models = {name: filled(model) for name, model in contestants.items()}
        for model in models.values():
            model.train(2, BATCH)
        rounds = [
            {name: milliseconds(model, args.updates) for name, model in models.items()} for _ in range(args.rounds)
        ]
        for name in models:
            cost = statistics.median(times[name] for times in rounds)
            ratio = statistics.median(times[name] / times["SB3 SAC"] for times in rounds)
            print(f"{members:2d} critics  {name:8s}  {cost:6.1f} ms  {ratio:.3f} of SB3's SAC")


if __name__ == "__main__":
    start(main)
