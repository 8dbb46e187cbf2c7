"""The C++ source of this package as a shared library, built once for each processor and compiler."""

import ctypes
import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pessimism.nn.compilation import compiler

SOURCE = Path(__file__).with_name("critic_update.cpp")
SOURCES = (SOURCE, *sorted(SOURCE.parent.glob("*.hpp")))
# Hidden: a process may load the library for several instruction sets, and each has to use its own functions.
REQUIRED = ("-std=c++17", "-O3", "-shared", "-fPIC", "-fvisibility=hidden")
# Left out, one by one, where a compiler does not know them or has no library for them (Apple's has no OpenMP).
# No -ffast-math: linked into a library it would change the rounding of the whole process.
OPTIONAL = (
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-mprefer-vector-width=512",
)
VECTORS = {"__AVX512F__": "AVX-512", "__AVX2__": "AVX2", "__AVX__": "AVX", "__ARM_NEON": "NEON", "__SSE2__": "SSE2"}


@dataclass(frozen=True)
class Library:
    """The functions of `critic_update.cpp`, and what the processor and the compiler made of them."""

    functions: ctypes.CDLL
    path: Path
    vectors: str  # the widest that the source was compiled for
    tiles: bool  # AMX: the processor has them, and the operating system allows them
    pairs: bool  # AVX512_BF16: vectors multiply bfloat16 numbers, two at a time
    parallel: bool  # with OpenMP

    @property
    def instructions(self) -> str:
        """What products are computed with."""
        return "AMX" if self.tiles else self.vectors

    @property
    def bfloat16(self) -> bool:
        """Whether there are products of bfloat16 numbers."""
        return self.tiles or self.pairs


class NoLibraryError(Exception):
    """The library cannot be built here; the message says why."""


@cache
def load(target: str = "native") -> Library:
    """Return the library for an instruction set as compilers name it."""
    command = compiler()
    if command is None:
        raise NoLibraryError("there is no C++ compiler")
    try:
        machine, macros = _machine(command, target)
        path = _built(command, machine, macros)
        functions = ctypes.CDLL(str(path))
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        raise NoLibraryError(f"the C++ source does not build: {reason.strip().splitlines()[0]}") from None
    answers = (functions.has_tiles, functions.has_pairs, functions.is_parallel)
    for answer in answers:
        answer.restype = ctypes.c_bool
    vectors = next((name for macro, name in VECTORS.items() if macro in macros), "vectors of 128 bits")
    return Library(functions, path, vectors, *(answer() for answer in answers))


def is_built(target: str = "native") -> bool:
    """Return whether `load` would find the library ready."""
    command = compiler()
    if command is None:
        return False
    try:
        return _path(*_machine(command, target)).exists()
    except (OSError, subprocess.CalledProcessError):
        return False


def _machine(command: str, target: str) -> tuple[tuple[str, ...], str]:
    """Return the flag that names the instruction set, and the macros that the compiler then predefines.

    Clang on ARM calls the flag -mcpu.
    """
    flags: tuple[str, ...]
    for flags in ((f"-march={target}",), (f"-mcpu={target}",)):
        try:
            return flags, _run(command, *flags, "-x", "c++", "-dM", "-E", "/dev/null")
        except subprocess.CalledProcessError:
            continue
    return (), _run(command, "-x", "c++", "-dM", "-E", "/dev/null")


def _path(machine: tuple[str, ...], macros: str) -> Path:
    """Return the library's file. The predefined macros tell compilers and processors apart: homes may be shared."""
    flags = (*REQUIRED, *OPTIONAL, *machine)
    text = "\n".join([*(source.read_text() for source in SOURCES), *flags, macros])
    key = hashlib.sha256(text.encode()).hexdigest()
    return _cache() / f"critic_update-{key[:16]}.so"


def _cache() -> Path:
    """Return a directory that outlives the process: torch's cache if it was given one, else the user's."""
    given, home = os.environ.get("TORCHINDUCTOR_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    path = Path(given or home or Path.home() / ".cache") / "pessimism"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to
        path = Path(tempfile.gettempdir()) / f"pessimism-{os.getuid()}"
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def _built(command: str, machine: tuple[str, ...], macros: str) -> Path:
    path = _path(machine, macros)
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:  # whole or not at all, whoever else builds
            fresh = Path(scratch) / path.name
            build = (*REQUIRED, *machine, str(SOURCE), "-o", str(fresh))
            try:
                _run(command, *OPTIONAL, *build)
            except subprocess.CalledProcessError:
                known = [flag for flag in OPTIONAL if _accepts(command, flag, fresh)]
                _run(command, *known, *build)
            fresh.replace(path)
    return path


def _accepts(command: str, flag: str, output: Path) -> bool:
    try:
        _run(command, flag, *REQUIRED, "-x", "c++", "/dev/null", "-o", str(output))
    except subprocess.CalledProcessError:
        return False
    return True


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
