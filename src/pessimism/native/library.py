"""The C++ source of this package as a shared library, built once for each processor and compiler."""

import ctypes
import hashlib
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from pessimism.ops import compiler

SOURCE = Path(__file__).with_name("critic_update.cpp")
SOURCES = (SOURCE, *sorted(SOURCE.parent.glob("*.hpp")))
MACHINE = ("-march=native", "-mprefer-vector-width=512")
# No -ffast-math: linked into a library it would change the rounding of the whole process.
FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-shared", "-fPIC")


@cache
def load() -> ctypes.CDLL | str:
    """Return the library, or the reason why there is none on this machine."""
    command = compiler()
    if command is None:
        return "there is no C++ compiler"
    try:
        macros = _run(command, *MACHINE, "-x", "c++", "-dM", "-E", "/dev/null")
        if "__AVX512F__" not in macros:
            return "the processor has no AVX-512"
        library = ctypes.CDLL(str(_built(command, macros)))
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        return f"the C++ source does not build: {reason.strip().splitlines()[0]}"
    library.has_tiles.restype = ctypes.c_bool
    return library


@cache
def has_tiles() -> bool:
    """Say whether products go through the processor's AMX tiles, which the operating system has to allow."""
    library = load()
    return not isinstance(library, str) and bool(library.has_tiles())


def _built(command: str, macros: str) -> Path:
    """Return the library's file, where torch keeps what it compiles.

    The predefined macros tell compilers and processors apart: a home directory may be shared by many.
    """
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    text = "\n".join([*(source.read_text() for source in SOURCES), *MACHINE, *FLAGS, macros])
    key = hashlib.sha256(text.encode()).hexdigest()
    path = Path(cache_dir()) / "pessimism" / f"critic_update-{key[:16]}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:  # whole or not at all, whoever else builds
            fresh = Path(scratch) / path.name
            _run(command, *FLAGS, *MACHINE, str(SOURCE), "-o", str(fresh))
            fresh.replace(path)
    return path


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
