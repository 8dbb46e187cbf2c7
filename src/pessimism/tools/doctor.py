"""What is installed here, what is missing, and how fast an update is."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pessimism.config.schema import Config
from pessimism.envs.rendering import BACKENDS, choose
from pessimism.extras import extras, installed, package_name
from pessimism.native.library import NoLibraryError, load
from pessimism.nn.compilation import compiler
from pessimism.training.build import build_agent
from pessimism.types import Batch

PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "safetensors", "pydantic")
RENDER = (
    "import gymnasium, warnings; warnings.simplefilter('ignore');"
    "e = gymnasium.make('InvertedPendulum-v5', render_mode='rgb_array', width=64, height=64);"
    "e.reset(); assert e.render().any()"
)
SECONDS = 5.0
COVERED = (
    "plain, residual and DroQ's critics, one atom or quantiles; others, and reparameterised norms, go through torch"
)
HALF = "; --precision bfloat16 works"
NO_OPENMP = "the compiler has no OpenMP: taken with --threads 1; with libomp installed, delete {}"


def examine(console: Console) -> int:
    """Print a table of findings; return 0 if everything needed is there."""
    table = Table("what", "found", "note", title="pessimism doctor")
    table.add_row("python", platform.python_version(), sys.executable)
    for name in PACKAGES:
        table.add_row(name, metadata.version(name), "")
    for row in _optional_packages():
        table.add_row(*row)
    table.add_row("C++ compiler", compiler() or "missing", "" if compiler() else "updates run uncompiled, slower")
    table.add_row("update in C++", *_native())
    for row in _renderers():
        table.add_row(*row)
    table.add_row("threads", str(torch.get_num_threads()), f"of {os.cpu_count()} cores; --threads N")
    table.add_row(
        "CUDA", "yes" if torch.cuda.is_available() else "no", "--device cuda" if torch.cuda.is_available() else ""
    )
    console.print(table)
    speed = _milliseconds_per_step()
    console.print(f"one GPL-SAC step (10 residual critics, 20 updates, batch 256), uncompiled: {speed:.0f} ms")
    return 0


def _optional_packages() -> Iterator[tuple[str, str, str]]:
    """Yield a row for each package of each extra, with what installs it where it is missing."""
    for extra, requirements in extras().items():
        for requirement in requirements:
            version = installed(requirement)
            note = f"extra {extra}" if version else f"extra {extra}: pip install '{requirement}'"
            yield package_name(requirement), version or "missing", escape(note)


def _native() -> tuple[str, str]:
    """Say whether the C++ update is there, and what it is for."""
    try:
        library = load()
    except NoLibraryError as error:
        return "no", f"{error}; updates go through torch, slower"
    if not library.parallel:
        return f"{library.instructions}, one thread", NO_OPENMP.format(library.path)
    return library.instructions, COVERED + (HALF if library.bfloat16 else "")


def _renderers() -> Iterator[tuple[str, str, str]]:
    """Yield a row for each backend: whether it works, whether it is the one chosen, and why or why not."""
    choice = choose()
    for name, backend in BACKENDS.items():
        trouble = f"needs {backend.missing}: {backend.fix}" if backend.missing else _trouble(name)
        rival = choice.backend or "a window"
        why = f"chosen: {choice.why}" if name == choice.backend else f"not chosen: {rival} is"
        note = f"{why}; {trouble}" if trouble else why
        yield f"renderer {name}", "missing" if trouble else "works", escape(note)
    if choice.backend not in BACKENDS:
        yield "renderer", choice.backend or "MuJoCo's default", f"chosen: {choice.why}"


def _trouble(backend: str) -> str:
    """Try a backend in a process of its own, as MuJoCo takes one per process; return what it says on failing."""
    environment = {**os.environ, "MUJOCO_GL": backend}
    attempt = subprocess.run(
        [sys.executable, "-c", RENDER], env=environment, capture_output=True, check=False, text=True
    )
    return (attempt.stderr.strip().splitlines() or ["fails"])[-1] if attempt.returncode else ""


def _milliseconds_per_step() -> float:
    """Time updates of HalfCheetah's size for about five seconds; return the median."""
    obs_size, action_size, updates, batch_size = 17, 6, 20, 256
    config = Config(env="HalfCheetah-v4", target_entropy=-3.0, compile=False)
    agent = build_agent(config, (obs_size,), action_size)
    obs, action, one = (torch.randn(updates, batch_size, n) for n in (obs_size, action_size, 1))
    batch = Batch(obs, action.tanh(), one, torch.full_like(one, 0.99), obs)
    times, started = [], time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        before = time.perf_counter()
        agent.update(batch, 1)
        times.append(time.perf_counter() - before)
    return 1000 * sorted(times)[len(times) // 2]
