"""A run in a process of its own that ends with its parent.

Started as `python -m pessimism.experiments.child PARENT train ...`.

When the process PARENT is gone, the run stops as if it had been asked to: after the step, with a checkpoint.
"""

import os
import signal
import sys
import threading
import time

from pessimism.cli import main

PATIENCE = 1.0  # seconds between looks


def stop_without(parent: int) -> None:
    """Ask this process to stop once it has another parent."""
    while os.getppid() == parent:
        time.sleep(PATIENCE)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=stop_without, args=(int(sys.argv[1]),), daemon=True).start()
    sys.argv = ["pessimism", *sys.argv[2:]]  # as the manifest shows it
    sys.exit(main(sys.argv[1:]))
