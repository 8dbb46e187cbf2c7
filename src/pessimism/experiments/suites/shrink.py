"""Makes a suite smaller, and lists how it differs from the full one."""

from collections.abc import Sequence
from dataclasses import replace

from pessimism.config.presets import Changes
from pessimism.config.resolve import is_operational, leaves
from pessimism.errors import UserError
from pessimism.experiments.suites.suite import FEWEST_POINTS, Job, Protocol, Suite, fitted, period


def shrunk(
    suite: Suite,
    *,
    seeds: Sequence[int] | None = None,
    steps: int | None = None,
    envs: Sequence[str] | None = None,
    scale: float = 1.0,
    changes: Changes | None = None,
) -> Suite:
    """Return the suite with fewer seeds, other tasks, only its first `steps`, or everything shortened by `scale`.

    `steps` cuts runs off: what is trained is the beginning of the full experiment, which can be resumed later.
    `scale` is the experiment in miniature: phases and periods shrink with it. `changes` are settings of all runs.
    """
    _check(suite, steps, scale, changes or {})
    if not suite.variants:
        if seeds or steps or envs or changes:
            raise UserError(f"{suite.name} measures times and has no runs: of these options it knows --scale only")
        return replace(suite, factor=scale, scale=(f"time of measurement: x {scale:g}",) if scale < 1 else ())
    length = steps or max(1, round(suite.steps * scale))
    smaller = replace(
        suite,
        seeds=tuple(seeds or suite.seeds),
        tasks=tuple(envs or suite.tasks),
        steps=length,
        factor=scale,
        protocol=_protocol(suite.protocol, length, scale),
        changes=changes or {},
    )
    return _explained(suite, smaller)


def _check(suite: Suite, steps: int | None, scale: float, changes: Changes) -> None:
    if not 0 < scale <= 1:
        raise UserError(f"--scale is a share of the whole experiment, above 0 and up to 1; got {scale:g}")
    if steps is not None and not 1 <= steps <= suite.steps:
        raise UserError(f"--steps must be between 1 and the {suite.steps} of {suite.name}; got {steps}")
    if steps is not None and scale != 1:
        raise UserError("--steps cuts runs off and --scale shortens their phases: give one of them")
    own = {"env", "seed", "steps"}.union(*(variant.varied() for variant in suite.variants))
    for name in changes:
        if name in own:
            raise UserError(f"--{name.replace('_', '-')} is what the runs of {suite.name} differ in: leave it out")


def _protocol(full: Protocol, steps: int, scale: float) -> Protocol:
    reached = [round(milestone * scale) for milestone in full.milestones if round(milestone * scale) <= steps]
    every = period(full.every, steps, scale)
    window = max(every, min(round(full.window * scale), max(1, steps // FEWEST_POINTS)))
    return full._replace(milestones=tuple(reached) or (steps,), window=window, every=every)


def _explained(full: Suite, smaller: Suite) -> Suite:
    """Say what differs; a run whose settings had to change gets a directory of its own."""
    lines = []
    if smaller.seeds != full.seeds:
        lines.append(f"seeds: {_listed(full.seeds)} -> {_listed(smaller.seeds)}")
    if smaller.tasks != full.tasks:
        lines.append(f"tasks: {', '.join(full.tasks)} -> {', '.join(smaller.tasks)}")
    if smaller.steps != full.steps:
        lines.append(f"steps: {full.steps} -> {smaller.steps}")
    for name in ("milestones", "window"):
        before, after = getattr(full.protocol, name), getattr(smaller.protocol, name)
        if before != after:
            lines.append(f"{name}: {_listed(before)} -> {_listed(after)}")
    changed = _changed_settings(full, smaller)
    suffix = ""
    if not all(map(is_operational, smaller.changes)):
        suffix = "-changed"
    elif not all(map(is_operational, changed)):
        suffix = f"-scale-{smaller.factor:g}" if smaller.factor != 1 else f"-steps-{smaller.steps}"
    return replace(smaller, scale=(*lines, *changed.values()), suffix=suffix)


def _changed_settings(full: Suite, smaller: Suite) -> dict[str, str]:
    """Return a line for each setting that had to change, by its name."""
    lines: dict[str, str] = {}
    for variant in smaller.variants:
        asked = full.settings(variant, smaller.tasks[0], seed=0) | {"steps": smaller.steps}
        config = Job("", "", variant.preset, asked).config()
        before = dict(leaves(config))
        for name, value in (fitted(config, smaller.factor) | smaller.changes).items():
            lines[name] = f"{name}: {_listed(before.get(name))} -> {_listed(value)}"
    return lines


def _listed(values: object) -> str:
    return ", ".join(map(str, values)) if isinstance(values, tuple) else str(values)
