"""How MuJoCo renders on this machine: which backend, errors in one line, MuJoCo's own notes silenced."""

import ctypes
import os
import sys
import textwrap
from typing import NamedTuple

from pessimism.errors import UserError


class Backend(NamedTuple):
    """A way to draw without a display: the libraries it loads and the Debian packages that hold them."""

    libraries: tuple[tuple[str, ...], ...]  # one of each tuple is needed
    packages: str

    @property
    def fix(self) -> str:
        """The command that installs it."""
        return f"apt-get install --no-install-recommends {self.packages}"

    @property
    def missing(self) -> str:
        """The first library that does not load; empty if all do."""
        return next((names[0] for names in self.libraries if not any(map(_loads, names))), "")


# In the order of preference: EGL also reaches GPUs.
BACKENDS = {
    "egl": Backend((("libEGL.so.1",), ("libGL.so.1", "libOpenGL.so.0")), "libegl1 libgl1"),
    "osmesa": Backend((("libOSMesa.so.8", "libOSMesa.so.6"),), "libosmesa6"),
}
VARIABLE = "MUJOCO_GL"
NONE = "disabled"  # MuJoCo's and dm_control's name for no rendering, which states do not need


class Choice(NamedTuple):
    """What MuJoCo draws with, and why."""

    backend: str  # empty: MuJoCo's own default, a window
    why: str


def choose() -> Choice:
    """Return the user's choice, or the first backend whose libraries are there."""
    if asked := os.environ.get(VARIABLE):
        return Choice(asked, f"{VARIABLE} is set")
    if sys.platform != "linux" or os.environ.get("DISPLAY"):
        return Choice("", "there is a display")
    for name, backend in BACKENDS.items():
        if not backend.missing:
            return Choice(name, "no display; the first that loads")
    return Choice(NONE, "no display and no library to draw with")


_chosen_here: set[str] = set()  # backends that this module set, and the user did not


def prepare_rendering() -> None:
    """Set the choice for MuJoCo and dm_control, which read it at their first import."""
    if not os.environ.get(VARIABLE) and (backend := choose().backend):
        os.environ[VARIABLE] = backend
        _chosen_here.add(backend)
    # Makes dm_control draw in the calling thread. In a separate one OSMesa fails loudly at exit.
    os.environ.setdefault("DISABLE_RENDER_THREAD_OFFLOADING", "1")


def check_rendering() -> None:
    """Refuse in one line where the libraries of the chosen backend are missing."""
    backend = os.environ.get(VARIABLE, "")
    if backend == NONE:
        raise _refusal("no library to draw with", BACKENDS["egl"].fix)
    if backend in BACKENDS and (missing := BACKENDS[backend].missing):
        other = "" if backend in _chosen_here else f", or unset {VARIABLE}"
        raise _refusal(f"{VARIABLE}={backend} needs {missing}", BACKENDS[backend].fix + other)


def rendering_error(error: Exception) -> UserError:
    """Return one line for what a GL platform raised, with the fix."""
    if isinstance(error, UserError):
        return error
    try:
        check_rendering()
    except UserError as known:
        return known
    backend, kind = os.environ.get(VARIABLE), type(error).__name__
    said = textwrap.shorten(f"{kind}: {error}", 100, placeholder=" ...")
    if backend in _chosen_here:  # its libraries are there: a camera that does not exist, a package that is missing
        return UserError(f"the environment cannot be drawn ({said}); pessimism doctor shows what works here")
    return _refusal(said, f"unset {VARIABLE}, which is {backend}" if backend else BACKENDS["egl"].fix)


def _refusal(reason: str, fix: str) -> UserError:
    return UserError(f"nothing can be rendered here ({reason}): {fix}; pessimism doctor shows what works")


def silence_mujoco() -> None:
    """Keep MuJoCo's notes on its own model files off the screen and out of MUJOCO_LOG.TXT."""
    try:
        import mujoco
    except Exception as error:  # the backend that MUJOCO_GL names is loaded at import
        raise rendering_error(error) from None
    mujoco.set_mju_user_warning(lambda message: None)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
