"""Any grid of runs: algorithms x tasks x seeds x values of settings."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pessimism.config.presets import Changes
from pessimism.config.resolve import preset
from pessimism.config.tasks import task_folder
from pessimism.errors import UserError
from pessimism.experiments.suites.suite import Job, Protocol, Suite

Axes = Mapping[str, Sequence[Any]]
"""Dotted name of a setting -> the values that it takes."""


def grid(algorithms: Sequence[str], envs: Sequence[str], seeds: Sequence[int], axes: Axes) -> list[Job]:
    """Return the runs of a grid; a first seed of everything comes before the second of anything.

    A run's directory is named after the settings that vary, so that the same grid finds its runs again.
    """
    for algorithm in algorithms:
        preset(algorithm)
    for name in ("steps", "threads"):
        if len(axes.get(name, ())) > 1:
            raise UserError(f"--{name} takes one value: the same run cannot be in two directories")
    if not envs:
        raise UserError("--env is missing: give one task or more")
    jobs = []
    for seed, algorithm, changes, env in itertools.product(seeds, algorithms, _points(axes), envs):
        varied = {name: value for name, value in changes.items() if len(axes[name]) > 1}
        label = ", ".join([algorithm, *(f"{name} {value}" for name, value in varied.items())])
        folder = label.replace(", ", ",").replace(" ", "=").replace("/", "_")
        directory = f"{folder}/{task_folder(env)}/seed_{seed}"
        jobs.append(Job(directory, label, algorithm, {"env": env, "seed": seed} | changes))
    return jobs


def _points(axes: Axes) -> Iterator[Changes]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def grid_suite(name: str, jobs: Sequence[Job]) -> Suite:
    """Return how the runs of a grid are compared: at their end, as the paper does."""
    config = jobs[0].config()
    every, episodes = config.evaluation.every, config.evaluation.episodes
    protocol = Protocol((config.steps,), max(every, min(5000, config.steps // 5)), every, episodes)
    algorithms = dict.fromkeys(job.algorithm for job in jobs)
    return Suite(name, f"Sweep of {', '.join(algorithms)}", "", "", (), (), config.steps, protocol)
