"""Environments that do what none should, and commands that ask for what cannot be: with the line that answers each.

Tests call them in their own process; `make torture` runs each as a process of its own.
"""

ENVIRONMENTS = """
import gymnasium, numpy as np, sys
from gymnasium import spaces

IMAGES = {
    "images": (84, 84, 3), "image shape": (84, 84, 3), "image type": (84, 84, 3), "stacked": (3, 84, 84, 3),
    "small": (8, 8, 3), "oblong": (84, 96, 3), "five": (84, 84, 5)
}

class Bad(gymnasium.Env):
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, what=""):
        self.what, self.count = what, 0
        if what == "constructor":
            raise KeyError("no such robot")
        if what == "constructor exits":
            sys.exit(0)
        if what == "no space":
            self.observation_space = None
        if what == "dict":
            self.observation_space = spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2,))})
        if what == "empty":
            self.observation_space = spaces.Box(-1.0, 1.0, (0,))
        if what in IMAGES:
            self.observation_space = spaces.Box(0, 255, IMAGES[what], np.uint8)
        largest = np.finfo(np.float32).max
        actions = {
            "unbounded": spaces.Box(-np.inf, np.inf, (1,), np.float32),
            "largest bounds": spaces.Box(-largest, largest, (1,), np.float32),
            "large bounds in double": spaces.Box(-1e300, 1e300, (1,), np.float64),
            "integers": spaces.Box(-5, 5, (1,), np.int32),
            "no actions": spaces.Box(-1.0, 1.0, (0,), np.float32),
            "discrete": spaces.Discrete(3),
            "actions in a dict": spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2,))}),
            "0-dimensional": spaces.Box(-1.0, 1.0, (), np.float32),
        }
        self.action_space = actions.get(what, self.action_space)

    def reset(self, *, seed=None, options=None):
        if self.what == "reset":
            raise RuntimeError("the simulator is gone")
        if self.what == "reset returns one":
            return np.zeros(2)
        if self.what == "shape of reset":
            return np.zeros(3), {}
        return self._obs(), {}

    def _obs(self):
        return np.zeros(self.observation_space.shape, self.observation_space.dtype)

    def step(self, action):
        self.count += 1
        if self.what == "step returns four":
            return self._obs(), 0.0, False, {}
        if self.count < 30:
            return self._obs(), 1.0, False, self.count % 10 == 0, {}
        if self.what == "step":
            raise RuntimeError("the robot\\nfell over")
        if self.what == "step exits":
            sys.exit(0)
        obs = {
            "shape of step": np.zeros((2, 2)), "observation none": None, "observation text": "ab",
            "observation nan": np.full(2, np.nan), "observation inf": np.full(2, np.inf),
            "observation too large": np.full(2, 1e300), "observation complex": np.full(2, 1j),
            "image shape": np.zeros((80, 84, 3), np.uint8), "image type": np.full((84, 84, 3), 0.5),
        }.get(self.what, self._obs())
        reward = {
            "reward none": None, "reward array": np.ones(2), "reward of one": np.ones(1), "reward text": "x",
            "reward nan": np.nan, "reward inf": np.inf,
        }.get(self.what, 1.0)
        over = np.zeros(2, bool) if self.what == "ends are arrays" else False
        return obs, reward, over, self.count % 10 == 0, {}

gymnasium.register("Bad-v0", Bad)
"""

BAD_ENVIRONMENTS = {  # what it does: the algorithm that meets it, and the answer
    "constructor": ("sac", "cannot be made: KeyError: 'no such robot' (bad_envs.py, line"),
    "constructor exits": ("sac", "cannot be made: SystemExit: 0 (bad_envs.py, line"),
    "no space": ("sac", "NoneType observations"),
    "dict": ("sac", "Dict observations"),
    "empty": ("sac", "empty observations"),
    "images": ("sac", "take an algorithm for pixels"),
    "stacked": ("sac", "take an algorithm for pixels"),
    "unbounded": ("sac", "unbounded actions"),
    "largest bounds": ("sac", "unbounded actions"),
    "large bounds in double": ("sac", "unbounded actions"),
    "integers": ("sac", "actions of int32: these agents need continuous ones"),
    "no actions": ("sac", "has no actions"),
    "discrete": ("sac", "Discrete actions"),
    "actions in a dict": ("sac", "Dict actions"),
    "reset": ("sac", "failed in reset: RuntimeError: the simulator is gone (bad_envs.py, line"),
    "reset returns one": ("sac", "after reset"),
    "shape of reset": ("sac", "observation of shape (3,) after reset: its observation_space has (2,)"),
    "step": ("sac", "failed in step: RuntimeError: the robot fell over (bad_envs.py, line"),
    "step exits": ("sac", "failed in step: SystemExit: 0 (bad_envs.py, line"),
    "step returns four": ("sac", "failed in step: ValueError: not enough values to unpack (expected 5, got 4)"),
    "shape of step": ("sac", "observation of shape (2, 2) after a step"),
    "observation none": ("sac", "observation of shape () after a step"),
    "observation text": ("sac", "observation of shape () after a step"),
    "observation nan": ("sac", "observation with nan at 0 after a step (step 30, episode 2)"),
    "observation inf": ("sac", "observation with inf at 0"),
    "observation too large": ("sac", "observation with inf at 0"),
    "observation complex": ("sac", "observation of complex128 after a step: numbers are needed"),
    "reward none": ("sac", "the reward None: a number is needed"),
    "reward array": ("sac", "a reward of shape (2,)"),
    "reward of one": ("sac", "a reward of shape (1,)"),
    "reward text": ("sac", "the reward 'x'"),
    "reward nan": ("sac", "the reward nan (step 30, episode 2); the last checkpoint is kept"),
    "reward inf": ("sac", "the reward inf"),
    "ends are arrays": ("sac", "failed in step: ValueError"),
    "stacked images": ("drqv2", "one image is needed, stacks are made here"),
    "small": ("drqv2", "8 x 8 pixels: the encoder takes square ones of 21 x 21"),
    "oblong": ("drqv2", "84 x 96 pixels: the encoder takes square ones"),
    "image shape": ("drqv2", "an image of uint8 (80, 84, 3): its observation_space has uint8 (84, 84, 3) (step"),
    "image type": ("drqv2", "an image of float64 (84, 84, 3): its observation_space has uint8 (84, 84, 3)"),
    "five": ("drqv2", "1 or 3 colours are needed"),
}

SMALL = """
--steps 60 --random-steps 40 --batch-size 16 --hidden 16 --critic.hidden 16 --compile false
--threads 1 --evaluation.every 0 --bias.every 0 --log.tensorboard false
""".split()

BAD_COMMANDS = {  # the command: the answer
    "train gpl-sac --env Hopper-v4 --steps 10000000000000000000": "steps: numbers up to",
    "train gpl-sac --env Hopper-v4 --seed 99999999999999999999": "seed: numbers up to",
    "train gpl-sac --env Hopper-v4 --seed -1": "seed",
    "train gpl-sac --env Hopper-v4 --lr 1e400": "lr",
    "train gpl-sac --env Hopper-v4 --lr 1e100": "lr: numbers up to",
    "train gpl-sac --env Hopper-v4 --threads 100000": "threads: Input should be less than or equal to 1024",
    "train gpl-sac --env Hopper-v4 --hidden 1000000000": "hidden: Input should be less than or equal to 65536",
    "train gpl-sac --env Hopper-v4 --critic.hidden 1000000000": "critic.hidden",
    "train gpl-sac --env Hopper-v4 --env-kwargs 5": "env_kwargs",
    "train gpl-sac --env Hopper-v4 --env-kwargs [a,b]": "env_kwargs",
    "train gpl-sac --env Hopper-v4 --env-kwargs {1:,2:}": "env_kwargs",
    "train gpl-sac --env Hopper-v4 --env-kwargs {a": "--env-kwargs: '{a' is not a value",
    "train gpl-sac --env Hopper-v4 --env-kwargs {view:1}": "Hopper-v4 cannot be made: TypeError",
    "train gpl-sac --env Hopper-v4 --algorithm redq": "algorithm = redq does not go with gpl-sac",
    "train gpl-sac --env :x": "unknown environment :x: write Name-v0, or module:Name-v0",
    "train gpl-sac --env x:": "env",
    "train gpl-sac --env a:b:c": "unknown environment a:b:c",
    "train gpl-sac --env nowhere:X-v0": "environment nowhere:X-v0 cannot be made: ModuleNotFoundError",
    "train gpl-sac --env ../x:y": "environment ../x:y cannot be made",
    "train gpl-sac --env 5": "env",
    "train drqv2 --env dmc/walker-walk --replay-capacity 512 --n-step 999": "stacked frames and 999 steps",
    "train drqv2 --env dmc/walker-walk --noise [1,2]": "noise: 3 values or more are needed",
    "train drqv2 --env dmc/walker-walk --noise [1,2,3,4]": "noise",
    "train gpl-sac --config deep.yaml": "deep.yaml cannot be read: it is nested too deeply",
    "train gpl-sac --config dotted.yaml": "write critic.members as a section, critic: {members: ...}",
    "train gpl-sac --config module.yaml": "the file names the environment evil:X-v0",
    "sweep gpl-sac --env Hopper-v4 --config module.yaml": "the file names the environment evil:X-v0",
    "sweep gpl-sac --env Hopper-v4 --seeds 0": "0 contains no seed",
    "sweep gpl-sac --env Hopper-v4 --seeds 9-5": "did you mean 5-9",
    "sweep gpl-sac --env Hopper-v4 --seeds 1000000000": "10000 is the most",
    "sweep gpl-sac --env Hopper-v4 --seeds 0-99999999999999999999999": "10000 is the most",
    "sweep gpl-sac --env Hopper-v4 --workers 0": "0 is not a whole number from 1 to 1024",
    "sweep gpl-sac --env Hopper-v4 --threads 99999": "99999 is not a whole number from 1 to 1024",
    "bench --seconds -1": "-1 is not a number of seconds",
    "bench --seconds nan": "nan is not a number of seconds",
    "bench --threads 0": "0 is not a whole number",
    "eval run --episodes 0": "0 is not a whole number from 1 to 10000",
    "eval run --episodes -1": "-1 is not a whole number",
    "eval run --seed -1": "-1 is not a whole number",
    "bias run --episodes 0": "0 is not a whole number",
    "bias run --episodes 99999999999999999999999999999999": "is not a whole number from 1",
    "bias run --seed x": "x is not a whole number",
    "demo --seed -1": "-1 is not a whole number",
    "eval nowhere": "nowhere holds no run",
    "report nowhere": "there is no directory nowhere",
}

FILES = {  # that the commands read
    "deep.yaml": "env: Hopper-v4\nlr: " + "[" * 3000 + "]" * 3000,
    "dotted.yaml": "env: Hopper-v4\ncritic.members: 3\n",
    "module.yaml": "env: evil:X-v0\n",
    "evil.py": "from pathlib import Path\nPath('executed').touch()\n",
}
