"""One contestant in a process of its own: it sets up, warms up, and then runs blocks of steps on request.

A script for any interpreter, `python -P worker.py SETTING`: until it knows which contestant it is, it
imports the standard library only, as the peers' environment does not have this package.

SETTING is a JSON object with the fields of `Setting`. The worker answers with a JSON line (`Ready`), and
every line `{"steps": K}` with `{"seconds": S, "peak_mb": M}`, where a step is all that is learned from one
environment step, sampling included. It ends when its input does.
"""

import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypedDict

WARMUP_STEPS = 3  # the first compiles; the others fill caches, and the last says how long a step takes

Step = Callable[[], object]


@dataclass(frozen=True)
class Setting:
    """What is to be measured: the sizes of HalfCheetah-v4 and the paper's update, by default."""

    contestant: str = "pessimism-eager"
    critic: str = "plain"
    strategy: str = "learned"
    members: int = 10
    updates: int = 20
    batch: int = 256
    obs_size: int = 17
    action_size: int = 6
    hidden: int = 256
    replay: int = 100_000
    cores: Sequence[int] = (0,)  # as many threads


class Contestant(NamedTuple):
    """What a worker runs, and the distributions whose versions it reports."""

    step: Step
    distributions: Sequence[str]


class Ready(TypedDict):
    """What a worker says of itself before the first block; none of its times enter the measurement."""

    setup_seconds: float  # imports, networks, replay
    warmup_seconds: float  # the first steps, compilation included
    step_seconds: float
    versions: dict[str, str]


class Block(TypedDict):
    """What a worker says after each block."""

    seconds: float
    peak_mb: float


def main(argument: str) -> None:
    """Serve blocks until the input ends."""
    channel = protocol_channel()
    setting = Setting(**json.loads(argument))
    contestant, ready = prepare(setting)
    send(channel, ready)
    for line in sys.stdin:
        seconds = timed(contestant.step, json.loads(line)["steps"])
        send(channel, Block(seconds=seconds, peak_mb=peak_mb()))


def protocol_channel() -> TextIO:
    """Keep standard output for the protocol: what libraries print goes to standard error."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return channel


def send(channel: TextIO, message: Ready | Block) -> None:
    """Write one line."""
    channel.write(json.dumps(message) + "\n")
    channel.flush()


def prepare(setting: Setting) -> tuple[Contestant, Ready]:
    """Pin the process to its cores, build the contestant and warm it up."""
    started = time.perf_counter()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, setting.cores)
    importlib.import_module("torch").set_num_threads(len(setting.cores))  # before anything is compiled
    contestant = build(setting)
    setup = time.perf_counter() - started
    times = [timed(contestant.step, 1) for _ in range(WARMUP_STEPS)]
    versions = {name: importlib.metadata.version(name) for name in contestant.distributions}
    return contestant, Ready(
        setup_seconds=setup, warmup_seconds=sum(times), step_seconds=times[-1], versions=versions
    )


def build(setting: Setting) -> Contestant:
    """Return the contestant that the setting names."""
    if setting.contestant == "sb3" or setting.contestant.startswith("sbx"):
        return peer(setting)
    if setting.contestant.startswith(("preset-", "products-")):
        from pessimism.bench.preset_steps import preset_step

        return Contestant(preset_step(setting), ["pessimism", "torch"])
    if setting.contestant.startswith("limit-"):
        from pessimism.bench.limit import limit_step

        return Contestant(limit_step(setting), ["torch"])
    if setting.contestant.startswith("pixels-"):
        from pessimism.bench.pixels import pixel_step

        return Contestant(pixel_step(setting), ["pessimism", "torch"])
    from pessimism.bench.contestants import own_step

    return Contestant(own_step(setting), ["pessimism", "torch"])


def peer(setting: Setting) -> Contestant:
    """Return SAC of Stable-Baselines3, or of SBX, with a full replay and without an environment."""
    jax = setting.contestant.startswith("sbx")
    library: Any = importlib.import_module("sbx" if jax else "stable_baselines3")
    logger: Any = importlib.import_module("stable_baselines3.common.logger")
    updates = 1 if setting.contestant in ("sbx-crossq", "sbx-simba") else setting.updates
    model = getattr(library, "CrossQ" if setting.contestant == "sbx-crossq" else "SAC")(
        "SimbaPolicy" if setting.contestant == "sbx-simba" else "MlpPolicy",
        blank_environment(setting),
        buffer_size=setting.replay,
        batch_size=setting.batch,
        gradient_steps=updates,
        policy_kwargs=peer_networks(setting),
        device="cpu",
        seed=0,
        **({"policy_delay": setting.updates} if setting.contestant in ("sbx", "sbx-droq") else {}),
    )
    model.set_logger(logger.Logger(folder=None, output_formats=[]))
    random = importlib.import_module("numpy").random.default_rng(0)
    replay = model.replay_buffer
    for field in (replay.observations, replay.next_observations, replay.rewards, replay.actions):
        field[:] = random.uniform(-1.0, 1.0, field.shape)
    replay.full = True
    return Contestant(
        lambda: model.train(gradient_steps=updates, batch_size=setting.batch),
        ["sbx-rl", "jax"] if jax else ["stable-baselines3", "torch"],
    )


def peer_networks(setting: Setting) -> dict[str, Any]:
    """Return a peer's critics: the setting's, or those of its algorithm."""
    if setting.contestant in ("sbx-crossq", "sbx-simba"):
        return {}
    plain = {"n_critics": setting.members, "net_arch": [setting.hidden, setting.hidden]}
    if setting.contestant == "sbx-droq":  # what makes SBX's SAC DroQ
        return plain | {"n_critics": 2, "dropout_rate": 0.01, "layer_norm": True}
    return plain


def blank_environment(setting: Setting) -> object:
    """Return an environment that has spaces and nothing else: it is never stepped."""
    gymnasium: Any = importlib.import_module("gymnasium")
    environment = gymnasium.Env()
    environment.observation_space = gymnasium.spaces.Box(-10.0, 10.0, (setting.obs_size,))
    environment.action_space = gymnasium.spaces.Box(-1.0, 1.0, (setting.action_size,))
    return environment


def timed(step: Step, count: int) -> float:
    """Return the seconds that `count` steps take."""
    started = time.perf_counter()
    for _ in range(count):
        step()
    return time.perf_counter() - started


def peak_mb() -> float:
    """Return the largest memory that this process has used.

    Linux's `ru_maxrss` begins at the size of the process that started this one; VmHWM does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return float(fields["VmHWM"].split()[0]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts bytes


if __name__ == "__main__":
    main(sys.argv[1])
