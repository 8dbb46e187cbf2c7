"""What compiled functions need: a C++ compiler and a cache."""

import os
import shutil
import sys
import tempfile
from pathlib import Path


def compiler() -> str | None:
    """Return the C++ compiler that torch.compile would use on the CPU, if there is one."""
    usual = "clang++" if sys.platform == "darwin" else "g++"
    return shutil.which(os.environ.get("CXX", usual))  # as torch looks for it: no other one if CXX does not exist


def cache_problem() -> str:
    """Return why torch cannot keep what it compiles, or an empty text."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    try:
        place = Path(cache_dir())
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return ""
    except OSError as error:
        return f"{os.environ.get('TORCHINDUCTOR_CACHE_DIR', 'the cache')} cannot be written ({error.strerror})"
