"""What was measured, as numbers, as tables on the screen and as JSON."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from pessimism.errors import UserError
from pessimism.terminal import new_table

LIMITS = ("limit-batched", "limit-single")
PUBLISHED = "published-style"
PIXEL_NOTES = {
    PUBLISHED: "two heads, grid sampling, channels first, not compiled",
    "gpl-drq": "this library's update, compiled",
    "drqv2": "the same without learned pessimism",
    "gpl-drq-eager": "this library's update, not compiled",
    "sampling": "a batch from the frame replay, which is not part of the updates above",
}


@dataclass(frozen=True)
class Measurement:
    """One contestant's blocks. What it did before the first of them is kept apart."""

    name: str
    critic: str
    samples: Sequence[float]  # seconds per environment step, one per round
    setup_seconds: float = 0.0
    warmup_seconds: float = 0.0
    peak_mb: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def milliseconds(self) -> float:
        """Median over the rounds. It is also seconds per 1000 environment steps."""
        return 1000 * statistics.median(self.samples)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Milliseconds that a quarter of the rounds stayed below, and that a quarter exceeded."""
        if len(self.samples) == 1:
            return self.milliseconds, self.milliseconds
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return 1000 * low, 1000 * high

    def record(self) -> dict[str, Any]:
        """Return the fields of the JSON file."""
        return {
            "name": self.name,
            "critic": self.critic,
            "ms_per_env_step": self.milliseconds,
            "quartiles_ms": self.quartiles,
            "samples_ms": [1000 * sample for sample in self.samples],
            "setup_seconds": self.setup_seconds,
            "warmup_seconds": self.warmup_seconds,
            "peak_mb": self.peak_mb,
            "versions": dict(self.versions),
            "note": self.note,
        }


@dataclass(frozen=True)
class SpeedReport:
    """Contestants against each other and against the limit of their critic."""

    setting: Mapping[str, object]
    measurements: Sequence[Measurement]  # limits among them
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def limits(self) -> list[Measurement]:
        """The matrix products alone."""
        return [line for line in self.measurements if line.name in LIMITS]

    @property
    def contestants(self) -> list[Measurement]:
        """All others."""
        return [line for line in self.measurements if line.name not in LIMITS]

    def fraction(self, line: Measurement, limit: str = "limit-batched") -> float | None:
        """Return which fraction of the limit's speed a contestant has reached (1: nothing left to gain)."""
        times = {(other.name, other.critic): other.milliseconds for other in self.limits}
        time = times.get((limit, line.critic))
        return None if time is None else time / line.milliseconds

    def ratio(self, line: Measurement) -> float:
        """Return how many times longer a contestant takes than the fastest with the same critic."""
        same = [other.milliseconds for other in self.contestants if other.critic == line.critic]
        return line.milliseconds / min(same)

    def record(self) -> dict[str, Any]:
        """Return the content of the JSON file."""
        return {
            "setting": dict(self.setting),
            "contestants": [
                line.record()
                | {
                    "fraction_of_limit": self.fraction(line),
                    "fraction_of_single_product": self.fraction(line, "limit-single"),
                    "ratio_to_fastest": self.ratio(line),
                }
                for line in self.contestants
            ],
            "limits": [line.record() for line in self.limits],
            "left_out": dict(self.left_out),
        }

    def show(self, console: Console) -> None:
        """Print the tables."""
        names = ("ms", "quartiles", "ratio", "of limit", "of one\nproduct")
        table = new_table("Time to learn from one environment step", ("contestant", "critic"), names)
        for line in self.limits:
            table.add_row(line.name, line.critic, *spread(line))
        for line in self.contestants:
            fractions = [percent(self.fraction(line, limit)) for limit in LIMITS]
            table.add_row(line.name, line.critic, *spread(line), f"{self.ratio(line):.2f}", *fractions)
        notes = {f"{line.name}: {line.note}" for line in self.measurements if line.note}
        table.caption = "\n".join([describe(self.setting), *sorted(notes)])
        console.print(table)
        show_apart(self.measurements, console)
        for reason in self.left_out.values():
            console.print(f"left out: {reason}", highlight=False, markup=False)


FROM_PIXELS = "from pixels: ratios to GPL-DrQ, an update every two steps"


@dataclass(frozen=True)
class PaperRow:
    """A line of the paper's table of training times, and ours, or why there is none."""

    name: str
    paper_seconds: float
    measurement: Measurement | None
    missing: str = ""
    reference: str = "GPL-SAC"  # row that ratios are to
    updates_every: int = 1  # environment steps between the steps that were measured

    @property
    def seconds(self) -> float | None:
        """Our seconds per 1000 environment steps."""
        return None if self.measurement is None else self.measurement.milliseconds / self.updates_every


@dataclass(frozen=True)
class PaperReport:
    """The paper's table of training times beside ours. Ratios are to GPL-SAC, from pixels to GPL-DrQ."""

    setting: Mapping[str, object]
    rows: Sequence[PaperRow]

    def ratio(self, row: PaperRow) -> float | None:
        """Return our time over our reference row's."""
        reference = self._reference(row).seconds
        if row.seconds is None or reference is None:
            return None
        return row.seconds / reference

    def paper_ratio(self, row: PaperRow) -> float:
        """Return the paper's time over the paper's reference row's."""
        return row.paper_seconds / self._reference(row).paper_seconds

    def _reference(self, row: PaperRow) -> PaperRow:
        return next(other for other in self.rows if other.name == row.reference)

    def record(self) -> dict[str, Any]:
        """Return the content of the JSON file."""
        return {
            "setting": dict(self.setting),
            "rows": [
                {
                    "name": row.name,
                    "seconds_per_1000_steps": row.seconds,
                    "ratio": self.ratio(row),
                    "paper_seconds_per_1000_steps": row.paper_seconds,
                    "paper_ratio": self.paper_ratio(row),
                    "reference": row.reference,
                    "measurement": row.measurement and row.measurement.record(),
                    "missing": row.missing,
                }
                for row in self.rows
            ],
        }

    def show(self, console: Console) -> None:
        """Print the table."""
        names = ("seconds", "quartiles", "ratio", "paper\nratio", "paper\nseconds", "warm-up\nseconds")
        table = new_table("Training time, seconds per 1000 environment steps", ("algorithm",), names)
        for row in self.rows:
            line, ratio = row.measurement, self.ratio(row)
            table.add_row(
                row.name,
                *(spread(line, row.updates_every) if line else ("", row.missing)),
                f"{ratio:.2f}" if ratio else "",
                f"{self.paper_ratio(row):.2f}",
                f"{row.paper_seconds:.1f}",
                f"{line.setup_seconds + line.warmup_seconds:.1f}" if line else "",
            )
        ours = "ours: sampling and updates on this processor; warm-up (compilation, or its cache) not counted"
        table.caption = "\n".join(
            [
                describe(self.setting),
                ours,
                "the paper's: whole runs on an RTX 3090, REDQ in its original code",
                FROM_PIXELS,
            ]
        )
        console.print(table)
        show_versions([row.measurement for row in self.rows if row.measurement], console)


@dataclass(frozen=True)
class PixelReport:
    """Updates from pixels against the published style."""

    setting: Mapping[str, object]
    measurements: Sequence[Measurement]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def ratio(self, line: Measurement) -> float | None:
        """Return a contestant's time over the published style's."""
        times = [other.milliseconds for other in self.measurements if other.name == f"pixels-{PUBLISHED}"]
        return line.milliseconds / times[0] if times else None

    def record(self) -> dict[str, Any]:
        """Return the content of the JSON file."""
        return {
            "setting": dict(self.setting),
            "contestants": [line.record() | {"ratio_to_published": self.ratio(line)} for line in self.measurements],
            "left_out": dict(self.left_out),
        }

    def show(self, console: Console) -> None:
        """Print the tables."""
        table = new_table("Time of one update from pixels", ("contestant",), ("ms", "quartiles", "ratio"))
        for line in self.measurements:
            ratio = self.ratio(line)
            name = line.name.removeprefix("pixels-")
            table.add_row(name, *spread(line), "" if ratio is None else f"{ratio:.3f}")
        notes = [f"{name}: {note}" for name, note in PIXEL_NOTES.items()]
        table.caption = "\n".join([describe(self.setting), *notes])
        console.print(table)
        show_apart(self.measurements, console)
        for reason in self.left_out.values():
            console.print(f"left out: {reason}", highlight=False, markup=False)


def show_apart(lines: Sequence[Measurement], console: Console) -> None:
    """Print what is not part of the times."""
    title = "Not part of the times: set-up, warm-up and compilation"
    table = new_table(title, ("contestant", "critic"), ("set-up s", "warm-up s", "peak MB"))
    for line in lines:
        seconds = (f"{line.setup_seconds:.1f}", f"{line.warmup_seconds:.1f}")
        table.add_row(line.name, line.critic, *seconds, f"{line.peak_mb:.0f}")
    console.print(table)
    show_versions(lines, console)


def show_versions(lines: Iterable[Measurement], console: Console) -> None:
    """Print the versions of everything that was measured."""
    versions = {f"{name} {version}" for line in lines for name, version in line.versions.items()}
    console.print(f"versions: {', '.join(sorted(versions))}", highlight=False)


def spread(line: Measurement, every: int = 1) -> tuple[str, str]:
    """Return the median and the quartiles as a table shows them, where a step is taken every so often."""
    low, high = line.quartiles
    return f"{line.milliseconds / every:.1f}", f"{low / every:.1f}-{high / every:.1f}"


def percent(fraction: float | None) -> str:
    """Return a fraction as a table shows it."""
    return "" if fraction is None else f"{100 * fraction:.0f} %"


def describe(setting: Mapping[str, object]) -> str:
    """Return what was common to all lines."""
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written, before minutes are spent on its content."""
    if not path.parent.is_dir():
        raise UserError(f"cannot write {path}: there is no directory {path.parent}")


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a report."""
    path.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n")
