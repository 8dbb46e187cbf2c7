"""Environments as users give them in Python: an id, a function, an environment, or several at once."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
from gymnasium import vector

from pessimism.envs.control import AnyEnv, check_stateless
from pessimism.errors import UserError

Maker = Callable[[], AnyEnv]
EnvLike = str | AnyEnv | Maker | vector.VectorEnv[Any, Any, Any] | Sequence[Maker]
"""What the Python classes accept; SB3's vector environments too."""


class Given(NamedTuple):
    """What is known of the environments that were given."""

    name: str
    make: Maker | None  # None: by name


class CannotCopyError(UserError):
    """There is one environment only, such as a robot."""


class Copies:
    """Hands out the environment that was given, first, and copies of it afterwards.

    Copies keep what was changed on the environment. They are made from a copy of its state at the beginning.
    """

    def __init__(self, env: AnyEnv) -> None:
        self.first: AnyEnv | None = env
        self.trouble = ""
        try:
            self.template: AnyEnv = copy.deepcopy(env)
        except Exception as error:  # an environment may hold anything: sockets, windows, robots
            self.trouble = " ".join(f"{type(error).__name__}: {error}".split())[:200]

    def __call__(self) -> AnyEnv:
        """Return the next environment."""
        if self.first is not None:
            env, self.first = self.first, None
            return env
        if self.trouble:
            raise CannotCopyError(
                "evaluation and the bias meter need environments of their own and this one cannot be copied "
                f"({self.trouble}): give a function that makes it, or switch both off "
                '(evaluation={"every": 0}, bias={"every": 0})'
            )
        return copy.deepcopy(self.template)


def given(env: EnvLike) -> Given:
    """Return the name of what was given, and how to make it."""
    if isinstance(env, str):
        return Given(env, None)
    if isinstance(env, gymnasium.Env):
        return Given(_name(env), Copies(env))
    if isinstance(env, Sequence):
        return _several(list(env))
    if isinstance(env, vector.VectorEnv) or hasattr(env, "env_is_wrapped"):  # Gymnasium's, or SB3's VecEnv
        return _from_vector(env)
    if not callable(env):
        raise UserError(
            f"{env!r} is not an environment: give a Gymnasium id, an environment, or a function that makes one"
        )
    return Given(getattr(env, "__name__", type(env).__name__).strip("<>"), env)


def _from_vector(env: Any) -> Given:  # noqa: ANN401
    """Take a vector environment apart."""
    if hasattr(env, "env_fns"):  # Gymnasium's SyncVectorEnv and AsyncVectorEnv
        return _several(list(env.env_fns))
    kind = type(env).__name__
    if hasattr(env, "venv"):  # a wrapper of SB3, such as VecNormalize
        raise UserError(
            f"{kind} changes what its environments return, and its state is not saved here: "
            "give the environments without it"
        )
    if hasattr(env, "envs"):  # SB3's DummyVecEnv
        return _several([Copies(one) for one in env.envs], _name(env.envs[0]))
    raise UserError(f"{kind} cannot be taken apart: give a list of functions that make its environments")


def _several(makers: Sequence[Any], name: str | None = None) -> Given:
    if not makers or not all(callable(one) for one in makers):
        raise UserError("a list of environments must hold functions that make one each")
    name = name or getattr(makers[0], "__name__", "environment").strip("<>")
    return Given(name, makers[0] if len(makers) == 1 else lambda: InTurn(makers))


class InTurn(gymnasium.Env[Any, Any]):
    """Several environments as one: each episode takes place in one of them, which its seed chooses.

    So an episode can be played again from its seed, as resuming a run needs, and the transitions of an episode
    follow each other in the replay, as n-step returns and stacked images need.
    """

    def __init__(self, makers: Sequence[Maker]) -> None:
        self.makers = makers
        self.made: dict[int, AnyEnv] = {}
        self.now = self._env(0)
        self.observation_space, self.action_space = self.now.observation_space, self.now.action_space
        self.metadata, self.render_mode, self.spec = self.now.metadata, self.now.render_mode, self.now.spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in the environment that the seed chooses."""
        self.now = self._env((seed or 0) % len(self.makers))
        return self.now.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:  # noqa: ANN401
        """Take a step in the environment of this episode."""
        return self.now.step(action)

    def render(self) -> Any:  # noqa: ANN401
        """Draw the environment of this episode."""
        return self.now.render()

    def close(self) -> None:
        """Close all."""
        for env in self.made.values():
            env.close()

    def _env(self, index: int) -> AnyEnv:
        if index not in self.made:
            env = self.made[index] = self.makers[index]()
            check_stateless(env)
            first = self.made[0]
            for space, other in (
                (env.observation_space, first.observation_space),
                (env.action_space, first.action_space),
            ):
                if space != other:
                    raise UserError(f"the environments of a list differ: {space} and {other}")
        return self.made[index]


def _name(env: AnyEnv) -> str:
    return env.spec.id if env.spec else type(env.unwrapped).__name__
