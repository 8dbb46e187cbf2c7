"""Run directories as the library's own recorder writes them, without training."""

import math
import re
import shutil
from pathlib import Path

import numpy as np

from pessimism import records
from pessimism.config.resolve import merge, nested, preset_values, validated
from pessimism.training.directory import RunDirectory
from pessimism.training.evaluate import Evaluation
from pessimism.training.sinks import EvaluationFile, JsonLinesSink, Lines


def write_run(
    path: Path,
    algorithm: str = "gpl-sac",
    env: str = "Hopper-v4",
    seed: int = 0,
    *,
    steps: int = 100_000,
    reached: int | None = None,
    every: int = 5000,
    top: float = 3300.0,
    **changed: object,
) -> Path:
    """Write a run whose return rises towards `top`; with `reached` short of `steps` it is unfinished."""
    values = merge(preset_values(algorithm, env), {"env": env, "seed": seed, "steps": steps})
    values = merge(values, {"evaluation": {"every": every}, "bias": {"every": every}})
    for name, value in changed.items():
        values = merge(values, nested(name.replace("__", "."), value))
    config = validated(values)
    directory, draw, last = RunDirectory(path), np.random.default_rng([seed, int(top)]), reached or steps
    speed = steps * draw.uniform(0.15, 0.35)
    with directory.taken(config, "synthetic"):
        sink = JsonLinesSink(Lines(path / records.METRICS), Lines(path / records.TIMING))
        evaluations = EvaluationFile(path)
        for step in range(every, last + 1, every):
            level = top * (1 - math.exp(-step / speed))
            found = Evaluation((level * draw.normal(1, 0.04, 5)).tolist(), [1000] * 5)
            bias = float(40 * math.exp(-step / speed) * draw.normal(1, 0.2))
            metrics = {"train/beta": 0.5 - 0.2 * step / steps + float(draw.normal(0, 0.01)), "bias/mean": bias}
            metrics |= {"bias/normalized_mean": bias / 100, "time/elapsed": step * 0.08, "time/fps": 12.5}
            sink.write(step, metrics | found.metrics())
            evaluations.add(step, found.returns, found.lengths)
        sink.close()
        if last >= steps:
            directory.finish({"step": last, "episodes": last // 500})
    return path


def copy_run(path: Path, copy: Path, seed: int) -> None:
    """Write the same run once more under another seed."""
    shutil.copytree(path, copy)
    config = copy / records.CONFIG
    config.write_text(re.sub(r"(?m)^seed: \d+", f"seed: {seed}", config.read_text()))
