"""What a sweep would take here: runs, hours, disk. Nothing is started but a minute of measuring."""

import heapq
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from pessimism.analysis.report.wording import counted, duration
from pessimism.config.schema import Config
from pessimism.errors import UserError
from pessimism.experiments.suites.suite import Job, Suite
from pessimism.experiments.sweep.cost import Cost
from pessimism.experiments.sweep.launch import Resources, say_scale
from pessimism.experiments.sweep.work import is_done, work_on
from pessimism.processes import pinned
from pessimism.terminal import new_table

SECONDS, MOST = 40.0, 3.0  # of measuring all settings, and each; starting up and compiling come on top
START_UP, OVERHEAD = 40.0, 4.0  # seconds to start and compile once, and to build each setting: roughly
TELL_EVERY = 20.0  # seconds between lines in a pipe
PROCESSES = 8  # that measure at once, at most
LINE_BYTES = 600  # of a line in the logs, TensorBoard's included
# What the time of a step does not depend on.
FREE = {
    "algorithm",
    "seed",
    "steps",
    "random_steps",
    "replay_capacity",
    "discount",
    "tau",
    "lr",
    "alpha",
    "alpha_lr",
}
FREE |= {"alpha_beta1", "target_entropy", "actor_clip", "evaluation", "bias", "log", "checkpoint", "threads"}


class Estimate(NamedTuple):
    """One run."""

    job: Job
    seconds: float
    bytes: float
    done: bool


def cost_key(config: Config) -> str:
    """Return what the time of a step depends on: runs with the same are measured once."""
    values = config.model_dump(exclude=FREE)
    rule = values["pessimism"]
    values["pessimism"] = {name: rule[name] for name in ("name", "measure") if name in rule}
    return json.dumps(values, sort_keys=True)


def plan(suite: Suite, jobs: Sequence[Job], root: Path, resources: Resources, console: Console) -> int:
    """Measure, and print what the sweep would take."""
    resources.check()
    workers, threads = resources.here(len(jobs))
    distinct = {cost_key(job.config()): job.config() for job in jobs}
    with ProgressLine(len(distinct), console) as line:
        costs = dict(zip(distinct, measured(list(distinct.values()), workers, threads, line), strict=True))
    for key, cost in costs.items():
        if cost.error:
            raise UserError(f"{distinct[key].algorithm} on {distinct[key].env} cannot be measured: {cost.error}")
    share = max((cost.compiled for cost in costs.values()), default=0.0) or 1.0
    estimates = [estimate(job, costs[cost_key(job.config())], share, root.absolute(), threads) for job in jobs]
    show(suite, estimates, workers, console)
    notes = [f"a worker has {threads} thread{'s' * (threads > 1)} and the speed of those here"]
    notes.append(f"{len(distinct)} distinct settings measured, {min(workers, PROCESSES)} at a time")
    notes.append(f"compiled updates take {share:.2f} of the uncompiled ones that were measured")
    notes.append("evaluations count with episodes of full length, the machine as if nothing else ran on it")
    if any(job.config().model is not None for job in jobs):
        notes.append("fitting MBPO's model comes on top: it takes from seconds to minutes each time")
    console.print("\n".join(notes), highlight=False, soft_wrap=True)
    return 0


class ProgressLine:
    """Says how far the measuring is: in a terminal all the time, in a pipe every now and then."""

    def __init__(self, settings: int, console: Console) -> None:
        self.settings, self.console, self.done = settings, console, 0
        self.status = console.status(self.text) if console.is_terminal else None
        self.spoken = time.monotonic()

    @property
    def text(self) -> str:
        """The line that is shown."""
        if not self.done:
            takes = duration(START_UP + self.settings * (seconds_each(self.settings) + OVERHEAD))
            return f"measuring {counted(self.settings, 'setting')}, about {takes}; the first one is also compiled"
        return f"measured {self.done} of {counted(self.settings, 'setting')}"

    def __enter__(self) -> "ProgressLine":
        if self.status is not None:
            self.status.start()
        else:
            self.console.print(self.text, highlight=False, soft_wrap=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self.status is not None:
            self.status.stop()

    def one_more(self) -> None:
        """Count a setting that was measured."""
        self.done += 1
        if self.status is not None:
            self.status.update(self.text)
        elif time.monotonic() - self.spoken > TELL_EVERY:
            self.spoken = time.monotonic()
            self.console.print(self.text, highlight=False, soft_wrap=True)


def seconds_each(settings: int) -> float:
    """Return how long the updates of each setting are measured."""
    return min(MOST, SECONDS / settings)


def measured(configs: Sequence[Config], workers: int, threads: int, line: ProgressLine) -> list[Cost]:
    """Return what each config costs while as many processes work as there will be workers."""
    seconds = seconds_each(len(configs))
    question = {"configs": [config.model_dump() for config in configs], "seconds": seconds}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "pessimism.experiments.sweep.measure"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | pinned(threads),
        )
        for _ in range(min(workers, PROCESSES))
    ]
    for index, process in enumerate(processes):
        assert process.stdin is not None
        print(json.dumps({**question, "compile": index == 0}), file=process.stdin, flush=True)
    answers = [
        list(_answers(process, line.one_more if index == 0 else None)) for index, process in enumerate(processes)
    ]
    if any(len(answer) != len(configs) for answer in answers):
        raise UserError("measuring stopped before its end: is there enough memory?")
    return [_typical(costs) for costs in zip(*answers, strict=True)]


def _answers(process: "subprocess.Popen[str]", tell: Callable[[], None] | None) -> Iterator[Cost]:
    assert process.stdout is not None
    for line in process.stdout:
        if tell is not None:
            tell()
        yield Cost(**json.loads(line))
    process.wait()


def _typical(costs: Sequence[Cost]) -> Cost:
    """Return the mean over processes; the first one alone has compiled."""
    mean: dict[str, Any] = {
        name: statistics.mean(getattr(cost, name) for cost in costs) for name in ("act", "evaluate", "learn")
    }
    first = costs[0]
    return Cost(**{**first.__dict__, **mean})


def estimate(job: Job, cost: Cost, share: float, root: Path, threads: int) -> Estimate:
    """Return what one run takes."""
    config = job.config()
    learned = max(0, config.steps - config.random_steps)
    factor = share if config.compile else 1.0
    seconds = (config.steps - learned) * cost.act + learned * cost.learn * factor
    for periodic in (config.evaluation, config.bias):
        times = config.steps // periodic.every if periodic.every else 0
        seconds += times * periodic.episodes * cost.episode * cost.evaluate
    lines = config.steps // config.log.every * LINE_BYTES
    size = min(config.steps, config.replay_capacity) * cost.row_bytes + config.checkpoint.keep * cost.state_bytes
    return Estimate(job, seconds, size + lines, is_done(Path(work_on(job, root, threads).path), config))


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Return when the last run ends if each goes to the first free worker, in order."""
    free = [0.0] * workers
    for taken in seconds:
        heapq.heappush(free, heapq.heappop(free) + taken)
    return max(free)


def show(suite: Suite, estimates: Sequence[Estimate], workers: int, console: Console) -> None:
    """Print both tables."""
    say_scale(suite, console)
    console.print(_runs_table(suite, estimates), _workers_table(estimates, workers))


def _runs_table(suite: Suite, estimates: Sequence[Estimate]) -> Table:
    table = new_table(f"{suite.name}: {suite.title}", ("runs of",), ("runs", "done", "each", "all", "GB"))
    groups: dict[str, list[Estimate]] = {}
    for one in estimates:
        groups.setdefault(one.job.label, []).append(one)
    for label, group in {**groups, "all": list(estimates)}.items():
        times = [one.seconds for one in group]
        each = " to ".join(dict.fromkeys((duration(min(times)), duration(max(times)))))
        gigabytes = sum(one.bytes for one in group) / 1e9
        done = sum(one.done for one in group)
        table.add_row(label, str(len(group)), str(done), each, duration(sum(times)), f"{gigabytes:.1f}")
    return table


def _workers_table(estimates: Sequence[Estimate], workers: int) -> Table:
    still = [one.seconds for one in estimates if not one.done]
    table = new_table("Still to do", ("workers",), ("time",))
    for count in sorted({1, workers, 8, 32, 128}):
        name = f"{count} (here)" if count == workers else str(count)
        table.add_row(name, duration(makespan(still, count)))
    return table
