"""Start, or resume, the runs that docs/results.md and docs/backbones.md are made from.

    python studies/evidence/run.py runs/evidence            # in the background: nohup ... &
    python studies/evidence/run.py runs/evidence --plan     # say what there is to do

The first call copies the committed version of the sources into the directory, and all runs are made with that
copy: work on the repository does not disturb them. Runs come in blocks, one seed of all arms on one task, so that
each finished block is a result. Stopped by Ctrl-C or SIGTERM, runs write a checkpoint; the same call resumes them.
Runs whose numbers are in data/ already, made on another machine, are not made again.
"""

import csv
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from blocks import SAME

from pessimism.tools.script import Parser, start

if TYPE_CHECKING:
    from pessimism.experiments.suites.suite import Job

COPY, VERSION = "source", "VERSION"
COLLECTED = Path(__file__).parent / "data" / "runs.csv"
Block = tuple[str, str, int, int]  # suite, task, seed, steps


def blocks() -> Iterator[Block]:
    """Yield the blocks in the order of the protocol."""
    hopper, others = "Hopper-v4", ("Walker2d-v4", "HalfCheetah-v4")

    def half(seeds: range, steps: int) -> Iterator[Block]:
        yield from (("calibration", hopper, seed, steps) for seed in seeds)
        yield from (("calibration", task, seed, steps) for seed in seeds for task in others)

    yield from half(range(3), 20_000)
    yield from (("start-low", hopper, seed, 20_000) for seed in range(3))
    yield from (("alpha-rate", task, seed, 20_000) for seed in range(3) for task in (others[1], hopper, others[0]))
    yield from (("hopper-full", hopper, seed, 15_000) for seed in (0, 1))
    yield from (("start-high", hopper, seed, 20_000) for seed in range(3))
    yield from (("backbones", hopper, seed, 30_000) for seed in range(3))
    yield from half(range(3, 5), 20_000)
    yield ("hopper-full", hopper, 2, 15_000)
    yield from half(range(5), 30_000)
    yield from (("hopper-full", hopper, seed, 30_000) for seed in range(3))
    yield from (("backbones", task, seed, 30_000) for seed in range(3) for task in others)


def copy_sources(out: Path) -> Path:
    """Export the committed version of the repository, once; return the copy's directory."""
    copy, repository = out / COPY, Path(__file__).resolve().parents[2]
    if not copy.exists():
        commit = _git(repository, "rev-parse", "HEAD").decode().strip()
        archive = _git(repository, "archive", commit, "src", "studies")
        out.mkdir(parents=True, exist_ok=True)
        partial = out / f"{COPY}.partial"
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(partial, filter="data")
        (out / VERSION).write_text(commit + "\n")
        partial.rename(copy)
    return copy


def collected() -> dict[tuple[str, ...], int]:
    """Return the steps of the finished runs whose numbers are in data/, by suite, arm, task and seed."""
    with COLLECTED.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["state"] == "done"]
    return {(row["suite"], row["arm"], row["task"], f"seed_{row['seed']}"): int(row["step"]) for row in rows}


def _git(repository: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(repository), *words], check=True, capture_output=True).stdout


def runs_of(block: Block, arms: list[str]) -> "list[Job]":
    """Return a block's runs, of some arms or of all. Runs that another suite makes are left out."""
    from pessimism.experiments.suites.catalogue import find
    from pessimism.experiments.suites.shrink import shrunk
    from pessimism.experiments.suites.suite import jobs

    suite, task, seed, steps = block
    found = jobs(shrunk(find(suite), seeds=[seed], steps=steps, envs=[task]), shared=False)
    by_arm = [(job.directory.partition("/")[0], job) for job in found]
    return [job for arm, job in by_arm if (suite, arm) not in SAME and (not arms or arm in arms)]


def train_all(out: Path, suites: list[str], arms: list[str], workers: int, plan: bool) -> int:
    """Carry out all runs that are not done, in order; return 0 if all are done then. No suites: all of them."""
    from pessimism.experiments.sweep.work import Outcome, carry_out, is_done, work_on

    stops, known = 0, collected()

    def stop(number: int, frame: object) -> None:
        nonlocal stops
        stops += 1

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)

    def done(block: Block, job: "Job") -> bool:
        path = Path(work_on(job, out / block[0], threads=1).path)
        return known.get(path.relative_to(out).parts, 0) >= block[3] or is_done(path, job.config())

    locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def work(block: Block, job: "Job") -> bool:
        todo = work_on(job, out / block[0], threads=1)
        with locks[todo.path]:  # the same run may be in two stages
            if done(block, job):
                return True
            print(f"{' '.join(map(str, block))}: {job.label} starts", flush=True)
            outcome = Outcome("stopped") if stops else carry_out(todo, lambda: stops)
        print(f"{' '.join(map(str, block))}: {job.label} {outcome.state} {outcome.reason}", flush=True)
        return outcome.state == "done"

    found = []
    for block in blocks():
        suite, task, seed, steps = block
        part = runs_of(block, arms) if not suites or suite in suites else []
        found += [(block, job) for job in part]
        if plan and part:
            count = sum(done(block, job) for job in part)
            print(f"{suite:12} {task:15} seed {seed}  {steps:6} steps: {count} of {len(part)} runs done")
    if plan:
        return 0
    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(lambda pair: not stops and work(*pair), found))
    return 0 if all(results) else 1


def main() -> int:
    """Copy the sources, then work with the copy."""
    parser = Parser(__doc__)
    parser.add_argument("out", type=Path, help="directory of the runs and of the copied sources")
    parser.add_argument("--suites", nargs="+", default=[], help="only these, such as start-low (default: all)")
    parser.add_argument("--arms", nargs="+", default=[], help="only these, such as gpl-sac redq (default: all)")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time, one thread each (default: 2)")
    parser.add_argument("--niceness", type=int, default=10, help="priority of the runs, 0 to 19 (default: 10)")
    parser.add_argument("--plan", action="store_true", help="say what is done and what is not, and stop")
    args = parser.parse_args()
    out = args.out.resolve()
    copy = copy_sources(out)
    script = copy / "studies" / "evidence" / "run.py"
    if Path(__file__).resolve() != script.resolve():
        environment = os.environ | {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
        rest = ["--workers", str(args.workers), "--niceness", str(args.niceness), *["--plan"] * args.plan]
        rest += ["--suites", *args.suites] if args.suites else []
        rest += ["--arms", *args.arms] if args.arms else []
        os.chdir(out)
        os.execve(sys.executable, [sys.executable, str(script), str(out), *rest], environment)
    os.nice(args.niceness)
    return train_all(out, args.suites, args.arms, args.workers, args.plan)


if __name__ == "__main__":
    start(main)
