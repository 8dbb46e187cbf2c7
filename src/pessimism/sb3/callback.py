"""The bias meter for any off-policy agent of SB3."""

from collections.abc import Callable
from typing import Any

import gymnasium
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from pessimism.errors import UserError
from pessimism.sb3.episodes import Tracks
from pessimism.sb3.view import AgentView
from pessimism.training.bias import Bias, measure
from pessimism.training.state import stream_seed
from pessimism.types import Episode

GLOBAL = torch.default_generator
SB3Env = str | gymnasium.Env[Any, Any] | Callable[[], gymnasium.Env[Any, Any]] | VecEnv


class BiasCallback(BaseCallback):
    """Measures the bias of the critics during training: what they predict minus the returns that then happen.

    Works with SAC, TD3, DDPG, DQN, TQC, QR-DQN and their subclasses. Every `every` environment steps it plays
    `episodes` episodes of the policy that the critics evaluate, in `env`, which must be another environment than
    the one that the agent trains in. Results are logged as `bias/...` and kept in `history` as (step, Bias).
    Training is the same with and without it, random numbers included.

    Positive means over-estimation. Returns are discounted and soft (with the entropy weight of this moment), as
    the critics' are. `tail`: states of episodes that a time limit has cut count while the part of the return
    that was not seen weighs less than this.
    """

    def __init__(
        self,
        env: SB3Env,
        every: int = 1000,
        episodes: int = 10,
        *,
        tail: float = 0.01,
        seed: int = 0,
        longest: int = 10_000,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        for name, value in (("every", every), ("episodes", episodes), ("longest", longest)):
            if value < 1:
                raise UserError(f"BiasCallback: {name} is {value}, which must be 1 or more")
        self.env, self.every, self.episodes, self.tail, self.seed = _vectorized(env), every, episodes, tail, seed
        self.longest = longest  # steps after which an episode is cut, for environments without a time limit
        self.history: list[tuple[int, Bias]] = []
        self.next_step = every

    def _init_callback(self) -> None:
        if not isinstance(self.model, OffPolicyAlgorithm):
            name = type(self.model).__name__
            raise UserError(f"{name} has no critics of state-action pairs: the meter is for off-policy agents")
        if self.model.get_env() is self.env:
            raise UserError("BiasCallback needs an environment of its own: give it another than the agent's")

    def _on_training_start(self) -> None:
        self.next_step = (self.num_timesteps // self.every + 1) * self.every

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.next_step:
            self.next_step += self.every
            self.measure()
        return True

    def measure(self) -> Bias:
        """Measure now; the result is a function of the agent, the seed and the step alone."""
        assert isinstance(self.model, OffPolicyAlgorithm)
        view, step, training = AgentView(self.model, self.env), self.num_timesteps, self.model.policy.training
        self.model.policy.set_training_mode(False)
        with torch.random.fork_rng():  # SB3's policies draw from torch's global stream, as training does
            torch.manual_seed(stream_seed(self.seed, "bias-policy", step))
            episodes = self._play(view, stream_seed(self.seed, "bias", step))
            bias = measure(view, episodes, discount=self.model.gamma, tail=self.tail, generator=GLOBAL)
        self.model.policy.set_training_mode(training)
        self.history.append((step, bias))
        for name, value in bias.metrics().items():
            self.logger.record(name, value)
        self.logger.dump(step)
        return bias

    def _play(self, view: AgentView, seed: int) -> list[Episode]:
        """Play episodes; each environment has its share of them, so that short ones are not preferred."""
        count = self.env.num_envs
        left = [(self.episodes + index) // count for index in range(count)]
        tracks, episodes = Tracks(count, self.longest), []
        self.env.seed(seed)
        obs = view.flat(self.env.reset())  # [envs, obs]
        while any(left):
            action, log_prob = view.target_action(obs, GLOBAL)
            raw, reward, done, infos = self.env.step(view.in_env_units(action))
            tracks.add(obs, action, log_prob, view.normalized_reward(reward))
            obs = view.flat(raw)
            for index, episode in tracks.finished(obs, done, infos, view):
                if left[index]:
                    left[index] -= 1
                    episodes.append(episode)
        return episodes


def _vectorized(env: SB3Env) -> VecEnv:
    """Return the environment as SB3 steps it; observations and rewards are as the environment gives them."""
    while isinstance(env, VecNormalize):  # the agent's own statistics are used
        env = env.venv
    if isinstance(env, VecEnv):
        return env
    if isinstance(env, str):
        name = env
        return DummyVecEnv([lambda: gymnasium.make(name)])
    if isinstance(env, gymnasium.Env):
        single = env
        return DummyVecEnv([lambda: single])
    return DummyVecEnv([env])
