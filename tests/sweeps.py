"""Shared by the tests of sweeps: a small grid as a real process, and the processes that it starts."""

import os
import subprocess
import sys
import time
from pathlib import Path

SMALL = """
--random-steps 40 --updates-per-step 1 --batch-size 16 --hidden 16 --critic.hidden 16 --critic.members 2
--compile false --evaluation.every 200 --evaluation.episodes 1 --bias.every 0 --checkpoint.every 50 --log.every 10
--log.tensorboard false
""".split()
TASK = ["--env", "InvertedPendulum-v4"]


def start(*words, **keywords):
    command = [sys.executable, "-m", "pessimism", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **keywords)


def finish(process, timeout=200):
    """Wait for a process; return its exit code and what it printed."""
    printed, _ = process.communicate(timeout=timeout)
    return process.returncode, printed


def descendants(pid):
    """Return the ids of all processes that a process started, and they in turn."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(status.parent.name)] = int(words[1])
    found, open_ends = [], [pid]
    while open_ends:
        end = open_ends.pop()
        children = [child for child, parent in parents.items() if parent == end]
        found += children
        open_ends += children
    return found


def trainer_below(pid):
    """Return the process below another that trains, or None."""
    for child in descendants(pid):
        try:
            if b"pessimism.experiments.child" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        except OSError:
            continue
    return None


def wait_until(condition, timeout=240):
    until = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)
    return value


def checkpointed(run):
    """Tell whether a run has a checkpoint, and so something to go on from."""
    return any(Path(run, "checkpoints").glob("step_*[0-9]"))


def train_alone(out, *words):
    """Train in one piece what a sweep did in several; return its metrics."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = start("train", "gpl-sac", *TASK, *SMALL, "--threads", 1, "--out", out, *words, env=environment)
    code, printed = finish(process)
    assert code == 0, printed
    return Path(out, "metrics.jsonl").read_bytes()
