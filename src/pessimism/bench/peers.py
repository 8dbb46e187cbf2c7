"""The peers' virtual environment: Stable-Baselines3 and SBX, apart from ours as SBX brings JAX."""

import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from pessimism.errors import UserError

# torch is pinned as it is in ours: the newest release may be a CUDA build of several gigabytes.
REQUIREMENTS = {"torch": "2.13.0", "stable-baselines3": "2.9.2", "sbx-rl": "0.28.0"}
VERSIONS = "import importlib.metadata as m, sys; print(*(m.version(name) for name in sys.argv[1:]))"


def peers_python(directory: Path, console: Console) -> Path:
    """Return the interpreter of the peers' environment, which is made where there is none."""
    python = directory.absolute() / "bin" / "python"
    if not directory.exists():
        console.print(f"making the peers' environment {directory} (about 2 GB; takes minutes, once)")
        create(directory, python)
    elif missing := missing_from(python):
        raise UserError(f"{directory} is not an environment with {missing}: remove it, or give another directory")
    return python


def create(directory: Path, python: Path) -> None:
    """Make the environment, or leave nothing behind."""
    packages = [f"{name}=={version}" for name, version in REQUIREMENTS.items()]
    try:
        run([sys.executable, "-m", "venv", str(directory)])
        (directory / ".gitignore").write_text("*\n")
        run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def missing_from(python: Path) -> str | None:
    """Return which requirement an environment lacks, if it lacks one."""
    for name, version in REQUIREMENTS.items():
        try:
            found = run([str(python), "-c", VERSIONS, name]).strip()
        except UserError:
            found = ""
        if found.partition("+")[0] != version:
            return f"{name} {version}"
    return None


def run(command: list[str]) -> str:
    """Run a command and return what it printed; its last line of complaint becomes the error."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError as error:
        raise UserError(f"cannot make the peers' environment: there is no {command[0]}") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        raise UserError(f"cannot make the peers' environment: {last}") from error
