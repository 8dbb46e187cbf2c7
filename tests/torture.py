"""`make torture`: kills, flipped bits, bad environments and bad commands, with a summary of what was tried.

    python tests/torture.py [--seconds 300] [--only kills,flips,environments,commands,pipes]

Each trial is a process of its own, forked from this one, so that nothing has to be imported again. Where the time
is not enough for all trials they are taken evenly from all of them, and the summary says how many of how many. Exit
code 1 means that something did not hold; each such trial is named with what it did.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: a process with threads cannot be forked safely

import torch._dynamo  # noqa: F401  torch imports it at the first update

import pessimism.training.run  # noqa: F401  with all that commands import late
from bad import BAD_COMMANDS, BAD_ENVIRONMENTS, ENVIRONMENTS, FILES, SMALL
from pessimism.cli import main
from pessimism.envs.make import make
from sameness import assert_same_run, final_tensors

LINE = "pessimism.envs.toys:pessimism-toys/Line-v0"
TINY = """
--random-steps 12 --batch-size 8 --hidden 8 --critic.hidden 8 --compile false --threads 1 --evaluation.every 10
--evaluation.episodes 1 --bias.every 20 --bias.episodes 1 --checkpoint.every 10 --log.every 5
--log.tensorboard false
""".split()
PIXELS = "--replay-capacity 64 --pixels.filters 4 --pixels.features 8".split()
FAMILIES = {  # one algorithm of each: its environment, and what makes it small
    "gpl-sac": (LINE, ["--critic.members", "3", "--updates-per-step", "2"]),
    "gpl-qr-sac": (LINE, ["--critic.members", "2", "--critic.atoms", "5", "--updates-per-step", "2"]),
    "redq": (LINE, ["--critic.members", "3", "--updates-per-step", "2"]),
    "gpl-sac-top": (LINE, ["--updates-per-step", "2", "--env-kwargs", "{max_episode_steps: 8}"]),
    "mbpo": ("Hopper-v4", "--updates-per-step 1 --model.rollouts 20 --model.members 2 --model.elites 1 "
             "--model.hidden 8 --model.train-every 10 --model.patience 0".split()),
    "gpl-drq": (LINE.replace("Line", "DrawnLine"), PIXELS),
}  # fmt: skip
STEPS, MORE = 30, 40
FLIPS = 16  # bits of each file
CRASH = 77  # exit code of a trial that raised what it must not


@dataclass
class Section:
    """What was tried, and what did not hold."""

    name: str
    possible: int = 0
    tried: int = 0
    failures: list[str] = field(default_factory=list)

    def fail(self, trial: str, what: str) -> None:
        self.failures.append(f"{self.name}: {trial}: {what}")


def command(algorithm: str, out: str, steps: int = STEPS) -> list[str]:
    env, more = FAMILIES[algorithm]
    return ["train", algorithm, "--env", env, "--steps", str(steps), "--out", out, *TINY, *more]


def forked(work: Callable[..., int], *arguments: Any) -> tuple[int, str]:
    """Run a function in a process of its own; return how it ended and what it wrote to the standard error."""
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            code = CRASH
            try:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                os.dup2(errors.fileno(), 2)
                code = work(*arguments)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        errors.seek(0)
        return os.waitstatus_to_exitcode(status), errors.read().decode(errors="replace")


def evenly(items: Sequence[Any], end: float, section: Section) -> Iterator[Any]:
    """Yield all items, or as many as there is time for until `end`, spread over all of them; one at least."""
    order = sorted(range(len(items)), key=lambda index: int(f"{index:016b}"[::-1], 2))
    section.possible += len(items)
    for position, index in enumerate(order):
        if position and time.monotonic() > end:
            return
        section.tried += 1
        yield items[index]


class Events:
    """Counts what a process does to files below a directory, and kills it at one of them."""

    def __init__(self, place: Path, last: int | None) -> None:
        self.place, self.last, self.count = str(place), last, 0
        flush = os.fsync

        def fsync(descriptor: int) -> None:
            self.happened()
            flush(descriptor)

        os.fsync = fsync
        sys.addaudithook(self.audit)

    def audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        else:
            path, writes = arguments[0] if arguments else "", event in KILLS
        if writes and isinstance(path, str | os.PathLike) and str(Path(path).absolute()).startswith(self.place):
            self.happened()

    def happened(self) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


KILLS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}


def observed(algorithm: str, out: Path, last: int | None) -> int:
    """Train, killed at an event; without one, leave their number beside the run."""
    events = Events(out, last)
    code = main(command(algorithm, str(out)))
    Path(f"{out}.count").write_text(str(events.count))
    return code


def kills(section: Section, seconds: float) -> None:
    """Kill a run of each family at each file-system event; started again, it must end as one never interrupted."""
    for algorithm in FAMILIES:
        end, place = time.monotonic() + seconds / len(FAMILIES), Path(algorithm).absolute()
        place.mkdir()
        whole, broken = place / "whole", place / "broken"

        code, said = forked(observed, algorithm, whole, None)
        if code != 0:
            section.fail(algorithm, f"the run itself ends with {code}: {said[-300:]}")
            continue
        total = int(Path(f"{whole}.count").read_text())
        for last in evenly(range(1, total + 1), end, section):
            shutil.rmtree(broken, ignore_errors=True)
            code, said = forked(observed, algorithm, broken, last)
            if code != -signal.SIGKILL:
                section.fail(f"{algorithm} at event {last}", f"was not killed ({code}) {said[-200:]}")
                continue
            code, said = forked(main, command(algorithm, str(broken)))
            if code != 0:
                section.fail(f"{algorithm} at event {last}", f"does not resume: {code} {said[-300:]}")
            elif problem := difference(whole, broken):
                section.fail(f"{algorithm} at event {last}", problem)


def difference(whole: Path, other: Path) -> str:
    """Return how a run differs from one that was never touched."""
    try:
        assert_same_run(whole, other)
    except Exception as error:
        return f"is another run: {' '.join(str(error).split())[:200] or type(error).__name__}"
    return ""


def flips(section: Section, seconds: float) -> None:
    """Flip a bit of each file of a run; resumed, it is refused in one line or ends with the same weights."""
    for algorithm in ("gpl-sac", "gpl-drq"):
        end, place = time.monotonic() + seconds / 2, Path(f"flips-{algorithm}").absolute()
        start, whole, other = place / "start", place / "whole", place / "other"
        forked(main, command(algorithm, str(start)))
        forked(main, command(algorithm, str(whole), MORE))
        draw = random.Random(0)
        files = sorted(path for path in start.rglob("*") if path.is_file() and path.stat().st_size)
        trials = [
            (path.relative_to(start), draw.randrange(8 * path.stat().st_size))
            for path in files
            for _ in range(FLIPS)
        ]
        for name, bit in evenly(trials, end, section):
            shutil.rmtree(other, ignore_errors=True)
            shutil.copytree(start, other)
            content = bytearray((other / name).read_bytes())
            content[bit // 8] ^= 1 << bit % 8
            (other / name).write_bytes(content)
            code, said = forked(main, command(algorithm, str(other), MORE))
            trial = f"{algorithm}, bit {bit} of {name}"
            if code == 2 and len(said.strip().splitlines()) == 1:
                continue
            if code != 0:
                section.fail(trial, f"ends with {code}: {said[-300:]}")
            elif not same_weights(whole, other):
                section.fail(trial, "ends with other weights, and exit code 0")


def same_weights(one: Path, other: Path) -> bool:
    first, second = final_tensors(one), final_tensors(other)
    return first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)


def answered(section: Section, trial: str, arguments: list[str], message: str) -> None:
    """Run a command that must end with exit code 2 and one line that holds the message."""
    code, said = forked(main, arguments)
    if code != 2 or len(said.strip().splitlines()) != 1 or message not in said:
        section.fail(trial, f"ends with {code}: {said.strip()[-300:]}")


def environments(section: Section, seconds: float) -> None:
    """Train in each bad environment of the table."""
    Path("bad_envs.py").write_text(ENVIRONMENTS)
    for what in evenly(list(BAD_ENVIRONMENTS), time.monotonic() + seconds, section):
        algorithm, message = BAD_ENVIRONMENTS[what]
        kwargs = f"{{what: {what.removesuffix(' images')}}}"
        asked = ["--env", "bad_envs:Bad-v0", "--env-kwargs", kwargs, *SMALL, "--out", f"bad/{what}"]
        answered(section, what, ["train", algorithm, *asked], message)


def commands(section: Section, seconds: float) -> None:
    """Give each bad command of the table; none may leave anything, nor import what a file names."""
    for name, text in FILES.items():
        Path(name).write_text(text)
    before = sorted(Path.cwd().iterdir())
    for text in evenly(list(BAD_COMMANDS), time.monotonic() + seconds, section):
        answered(section, text, text.split(), BAD_COMMANDS[text])
        if sorted(Path.cwd().iterdir()) != before:
            section.fail(text, "leaves something behind")
            before = sorted(Path.cwd().iterdir())


def pipes(section: Section, seconds: float) -> None:
    """Close the output that a command writes to, and interrupt one before it trains."""
    python = [sys.executable, "-m", "pessimism"]
    trials = {
        "list": ([*python, "list"], (0, 141)),
        "train": (python + command("gpl-sac", "piped", 200), (0, 141)),
        "Ctrl-C at the start": (python + command("gpl-sac", "interrupted", 100_000), (130,)),
    }
    for name in evenly(list(trials), time.monotonic() + seconds, section):
        arguments, codes = trials[name]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if "Ctrl-C" in name:
            time.sleep(1.0)  # it still imports
            process.send_signal(signal.SIGINT)
        else:
            process.stdout.read(1)
            process.stdout.close()
        said = process.stderr.read()
        code = process.wait()
        if code not in codes or len(said.strip().splitlines()) > 1:
            section.fail(name, f"ends with {code}: {said[-300:]}")


SECTIONS = {  # and their share of the time
    "kills": (kills, 0.5),
    "flips": (flips, 0.25),
    "environments": (environments, 0.1),
    "commands": (commands, 0.1),
    "pipes": (pipes, 0.05),
}


def torture(only: Sequence[str], seconds: float) -> int:
    """Try everything; return 1 if something did not hold."""
    sections, started = [], time.monotonic()
    total = sum(SECTIONS[name][1] for name in only)
    home = Path(tempfile.mkdtemp(prefix="torture-"))
    make("Hopper-v4").close()  # Gymnasium imports MuJoCo at the first use
    for name in only:
        try_all, share = SECTIONS[name]
        section = Section(name)
        (home / name).mkdir()
        with contextlib.chdir(home / name):
            try_all(section, seconds * share / total)
        sections.append(section)
        print(
            f"{name}: {section.tried} of {section.possible} trials, {len(section.failures)} did not hold",
            flush=True,
        )
        for failure in section.failures:
            print(f"  {failure}")
    failures = sum(len(section.failures) for section in sections)
    tried = sum(section.tried for section in sections)
    print(f"{tried} trials in {time.monotonic() - started:.0f} s: {failures or 'none'} did not hold")
    if not failures:
        shutil.rmtree(home)
    else:
        print(f"files are in {home}")
    return int(bool(failures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="about how long all of it may take (300)")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas between them (all)")
    asked = parser.parse_args()
    sys.exit(torture(asked.only.split(","), asked.seconds))
