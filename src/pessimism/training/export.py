"""A trained policy as an ONNX file, which runs without torch and without this library."""

import logging
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pessimism.agents.sac import ActorCritic
from pessimism.envs.control import ControlEnv
from pessimism.errors import UserError
from pessimism.extras import missing
from pessimism.training.directory import new_file, replace_file

INPUT, OUTPUT = "observation", "action"
CHECKED = 100  # observations that the file is compared with torch on
TIMED = 1000  # calls that the latency is the median of
TOLERANCE = 1e-5  # of the actions, in units of half their range


class Exported(NamedTuple):
    """What an ONNX file computes, and how it compares with torch.

    Attributes:
        path: the file
        obs_shape: shape of its input
        obs_dtype: type of its input
        action_shape: shape of its output
        difference: largest difference from torch's actions, in the environment's units
        seconds: median of a call in ONNX Runtime, on one thread
    """

    path: Path
    obs_shape: tuple[int, ...]
    obs_dtype: str
    action_shape: tuple[int, ...]
    difference: float
    seconds: float

    def __str__(self) -> str:
        """Describe the file in two lines."""
        shapes = f"{INPUT} {list(self.obs_shape)} {self.obs_dtype} -> {OUTPUT} {list(self.action_shape)} float32"
        checked = f"largest difference from torch {self.difference:.1e}"
        return f"{self.path}: {shapes}\n{checked}, {1000 * self.seconds:.3f} ms per call (ONNX Runtime, one thread)"


class Policy(nn.Module):
    """The deterministic policy: an observation as the environment returns it -> an action as it takes it.

    There is no batch axis. An image observation is a stack of bytes [stack, H, W, C].
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, agent: ActorCritic, env: ControlEnv) -> None:
        super().__init__()
        self.agent, self.obs_shape, self.action_shape = agent, env.obs_shape, env.action_shape
        low, high = (torch.from_numpy(env.scaled(np.full(env.action_size, end, np.float32))) for end in (-1, 1))
        self.register_buffer("centre", (high + low) / 2)
        self.register_buffer("scale", (high - low) / 2)

    def forward(self, observation: Tensor) -> Tensor:
        """[*observation] -> [*action], in the environment's own units."""
        action = self.agent.mode(observation.reshape(1, *self.obs_shape))
        return self.centre + self.scale * action.reshape(self.action_shape)


def export_policy(agent: ActorCritic, env: ControlEnv, path: Path) -> Exported:
    """Write the policy of an agent as ONNX, after checking that it gives the same actions as torch."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ImportError:
        raise missing("the ONNX export", "onnx") from None
    policy, observations = Policy(agent, env), _observations(env)
    graph = _graph(policy, torch.from_numpy(observations[0]))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the networks are small
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    difference = _difference(policy, session, observations)
    if not difference <= TOLERANCE * max(1.0, float(policy.scale.max())):
        raise UserError(
            f"the exported policy differs from torch by {difference:.1e}, and is not written: report this"
        )
    try:
        replace_file(new_file(path), graph)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    shape, dtype = env.space.shape, str(observations.dtype)
    return Exported(path, shape, dtype, env.action_shape, difference, _latency(session, observations[0]))


def _observations(env: ControlEnv) -> NDArray[Any]:
    """Return random observations to compare on."""
    random, shape = np.random.default_rng(0), (CHECKED, *env.space.shape)
    if len(env.obs_shape) > 1:
        return random.integers(0, 256, shape, dtype=np.uint8)
    return random.standard_normal(shape, dtype=np.float32)


@torch.no_grad()
def _graph(policy: Policy, example: Tensor) -> bytes:
    """Return the policy as the bytes of an ONNX file."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # torch warns that it has no torchvision
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about its own code and about modes that no policy here has
            program = torch.onnx.export(
                policy, (example,), input_names=[INPUT], output_names=[OUTPUT], dynamo=True, verbose=False
            )
    finally:
        log.setLevel(level)
    return cast(torch.onnx.ONNXProgram, program).model_proto.SerializeToString()


@torch.no_grad()
def _difference(policy: Policy, session: Any, observations: NDArray[Any]) -> float:  # noqa: ANN401
    """Return the largest difference between the actions of the file and torch's."""
    pairs = ((session.run(None, {INPUT: obs})[0], policy(torch.from_numpy(obs)).numpy()) for obs in observations)
    return max(float(np.abs(there - here).max()) for there, here in pairs)


def _latency(session: Any, obs: NDArray[Any]) -> float:  # noqa: ANN401
    """Return the median time of a call in seconds."""
    times = [time.perf_counter()]
    for _ in range(TIMED):
        session.run(None, {INPUT: obs})
        times.append(time.perf_counter())
    return float(np.median(np.diff(times)))
