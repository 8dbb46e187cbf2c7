"""What MuJoCo draws with on this machine, what to say where there is nothing, and what it need not say."""

import ctypes
import os
import sys
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


# In the order of preference: EGL also reaches GPUs, and OSMesa complains when a process exits.
BACKENDS = {
    "egl": Backend((("libEGL.so.1",), ("libGL.so.1", "libOpenGL.so.0")), "libegl1 libgl1"),
    "osmesa": Backend((("libOSMesa.so.8", "libOSMesa.so.6"),), "libosmesa6"),
}
VARIABLE = "MUJOCO_GL"
NONE = "disabled"  # MuJoCo's and dm_control's word for no drawing at all; states need none


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


def prepare_rendering() -> None:
    """Set the choice for MuJoCo and dm_control, which read it at their first import."""
    if backend := choose().backend:
        os.environ[VARIABLE] = backend


def rendering_error(error: Exception) -> UserError:
    """Return one line for what a GL platform raised, with the fix."""
    backend, fix = os.environ.get(VARIABLE, ""), BACKENDS["egl"].fix
    if backend in BACKENDS and (missing := BACKENDS[backend].missing):
        reason, fix = f"{VARIABLE}={backend} needs {missing}", BACKENDS[backend].fix
    elif backend == NONE:
        reason = "no library to draw with"
    else:
        reason = f"{VARIABLE}={backend}: " if backend else ""
        reason += f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
    other = f", or unset {VARIABLE}" if backend and backend != NONE else ""
    return UserError(f"nothing can be rendered here ({reason}): {fix}{other}; pessimism doctor shows what works")


def silence_mujoco() -> None:
    """Keep MuJoCo's notes on its own model files off the screen and out of MUJOCO_LOG.TXT."""
    import mujoco

    mujoco.set_mju_user_warning(lambda message: None)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
