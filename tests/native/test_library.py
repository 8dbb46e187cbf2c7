"""Building the library: which compilers, flags and instruction sets it takes."""

import dataclasses
import shutil
import subprocess

import pytest

from learners import needs_library
from pessimism.native import library
from pessimism.nn.compilation import compiler
from pessimism.tools import doctor


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A cache without a library."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    library.load.cache_clear()
    yield tmp_path
    library.load.cache_clear()


def fake_compiler(path, script):
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return lambda: str(path)


def test_load_says_why_there_is_no_library(monkeypatch, fresh):
    monkeypatch.setattr(library, "compiler", lambda: None)
    with pytest.raises(library.NoLibraryError, match=r"there is no C\+\+ compiler"):
        library.load()
    broken = "case $* in *-dM*) echo __AVX2__;; *) echo no such option >&2; exit 1;; esac"
    monkeypatch.setattr(library, "compiler", fake_compiler(fresh / "c++", broken))
    with pytest.raises(library.NoLibraryError, match=r"the C\+\+ source does not build: no such option"):
        library.load()


@needs_library
@pytest.mark.slow
@pytest.mark.parametrize("unknown", ["-fopenmp", "-mprefer-vector-width=512", "-march=native"])
def test_a_flag_that_the_compiler_does_not_know_is_left_out(unknown, monkeypatch, fresh):
    picky = f'case "$*" in *{unknown}*) echo unknown option >&2; exit 1;; esac; exec {compiler()} "$@"'
    monkeypatch.setattr(library, "compiler", fake_compiler(fresh / "c++", picky))
    built = library.load()
    assert built.parallel is (unknown != "-fopenmp")


@needs_library
@pytest.mark.slow
def test_the_library_is_built_once(fresh):
    assert not library.is_built()
    library.load()
    assert library.is_built()
    (built,) = fresh.rglob("*.so")
    before = built.stat()
    library.load.cache_clear()
    library.load()
    assert built.stat().st_mtime_ns == before.st_mtime_ns


def test_a_home_that_cannot_be_written_to_is_not_an_error(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(library.tempfile, "gettempdir", lambda: str(tmp_path))
    assert library._cache().parent == tmp_path


@pytest.mark.parametrize("target", ["x86-64", "haswell", "skylake-avx512", "cooperlake", "sapphirerapids"])
@pytest.mark.parametrize("command", ["g++", "clang++"])
def test_the_source_compiles_for_processors_that_are_not_here(command, target):
    if shutil.which(command) is None:
        pytest.skip(f"there is no {command}")
    flags = [f"-march={target}", "-std=c++17", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-fsyntax-only"]
    if subprocess.run([command, flags[0], "-E", "-xc++", "/dev/null"], capture_output=True, check=False).returncode:
        pytest.skip(f"{command} does not know {target}")
    made = subprocess.run([command, *flags, str(library.SOURCE)], capture_output=True, check=False, text=True)
    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize(
    ("changes", "found", "note"),
    [
        ({"tiles": True}, "AMX", "--precision bfloat16 works"),
        ({"tiles": False, "pairs": True}, "AVX-512", "--precision bfloat16 works"),
        ({"tiles": False, "vectors": "NEON"}, "NEON", "quantiles"),
        ({"tiles": False, "vectors": "AVX2", "parallel": False}, "AVX2, one thread", "--threads 1"),
    ],
)
def test_doctor_says_what_the_update_was_built_for(changes, found, note, monkeypatch):
    made = library.Library(None, library.SOURCE, "AVX-512", tiles=True, pairs=False, parallel=True)
    monkeypatch.setattr(doctor, "load", lambda: dataclasses.replace(made, **changes))
    assert doctor._native()[0] == found
    assert note in doctor._native()[1]


def test_doctor_says_why_there_is_no_update_in_cpp(monkeypatch, fresh):
    monkeypatch.setattr(library, "compiler", lambda: None)
    assert doctor._native() == ("no", "there is no C++ compiler; updates go through torch, slower")
