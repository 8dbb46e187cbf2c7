"""`pessimism bench`: how fast an environment step is learned from, against peers and against the limit."""

import dataclasses
from pathlib import Path

from rich.console import Console

from pessimism.bench.backbones import BackbonesReport, backbone_entries
from pessimism.bench.paper import GPL_SAC, PIXEL_REPLAY, VARIANTS
from pessimism.bench.peers import peers_python
from pessimism.bench.report import (
    PIXEL_NOTES,
    PaperReport,
    PaperRow,
    PixelReport,
    SpeedReport,
    check_writable,
    write_json,
)
from pessimism.bench.turns import Entry, load, measure
from pessimism.bench.worker import Setting
from pessimism.errors import UserError
from pessimism.processes import choose_cores

PEERS = Path(".venv-peers")
OF_PRESETS = ("members", "updates", "hidden")  # each preset has its own


def run_speed(
    *,
    members: int = 10,
    updates: int = 20,
    batch: int = 256,
    rounds: int = 10,
    seconds: float = 210.0,
    threads: int | None = None,
    peers: Path | None = PEERS,
    json_path: Path | None = None,
    console: Console | None = None,
) -> SpeedReport:
    """Measure this library and its peers at one setting, in turns, and print the table.

    `seconds` is the time of all blocks together, set-up and warm-up apart. Without a directory for the
    `peers`, or where their environment cannot be made, they are left out.
    """
    console = console or Console()
    check(members, updates, batch, rounds, json_path)
    setting = Setting(members=members, updates=updates, batch=batch, cores=choose_cores(threads))
    shared = common(setting, rounds)
    entries, left_out = own_entries(setting), {}
    if peers is not None:
        try:
            entries += peer_entries(setting, peers_python(peers, console))
        except UserError as error:
            left_out["peers"] = str(error)
            console.print(f"continuing without the peers: {error}", highlight=False, markup=False)
    measured, stopped = measure(entries, rounds=rounds, seconds=seconds, console=console)
    report = SpeedReport(shared, list(measured.values()), left_out | stopped)
    publish(report, console, json_path)
    return report


def run_paper(
    *,
    batch: int = 256,
    rounds: int = 7,
    seconds: float = 240.0,
    threads: int | None = None,
    json_path: Path | None = None,
    console: Console | None = None,
) -> PaperReport:
    """Measure the rows of the paper's table of training times, in turns, and print both beside each other."""
    from pessimism.nn.compilation import compiler

    console = console or Console()
    check(GPL_SAC.members, GPL_SAC.updates, batch, rounds, json_path)
    contestant = "pessimism-eager" if compiler() is None else "pessimism-compiled"
    base = dataclasses.replace(GPL_SAC, contestant=contestant, batch=batch, cores=choose_cores(threads))
    shared = {"contestant": contestant, **common(base, rounds)}
    measured, stopped = measure(paper_entries(base), rounds=rounds, seconds=seconds, console=console)
    rows = [
        PaperRow(
            row.name,
            row.paper_seconds,
            measured.get(row.name),
            stopped.get(row.name, ""),
            row.reference,
            row.updates_every,
        )
        for row in VARIANTS
    ]
    report = PaperReport(shared, rows)
    publish(report, console, json_path)
    return report


def run_pixels(
    *,
    batch: int = 256,
    rounds: int = 7,
    seconds: float = 120.0,
    threads: int | None = None,
    json_path: Path | None = None,
    console: Console | None = None,
) -> PixelReport:
    """Measure one update of the agents on pixels against the published style, in turns, and print the table."""
    console = console or Console()
    check(2, 1, batch, rounds, json_path)
    base = Setting(members=2, updates=1, batch=batch, hidden=1024, replay=PIXEL_REPLAY, cores=choose_cores(threads))
    entries = [
        Entry(name, dataclasses.replace(base, contestant=f"pixels-{name}"), note=note, cached=True)
        for name, note in PIXEL_NOTES.items()
    ]
    measured, stopped = measure(entries, rounds=rounds, seconds=seconds, console=console)
    shared = common(base, rounds)
    del shared["obs_size"]
    report = PixelReport(shared, list(measured.values()), stopped)
    publish(report, console, json_path)
    return report


def run_backbones(
    *,
    batch: int = 256,
    rounds: int = 7,
    seconds: float = 210.0,
    threads: int | None = None,
    peers: Path | None = PEERS,
    json_path: Path | None = None,
    console: Console | None = None,
) -> BackbonesReport:
    """Measure an environment step of every preset on states, in turns, and print the table."""
    console = console or Console()
    check(2, 1, batch, rounds, json_path)
    base = Setting(batch=batch, cores=choose_cores(threads))
    python, left_out = None, {}
    if peers is not None:
        try:
            python = peers_python(peers, console)
        except UserError as error:
            left_out["peers"] = str(error)
    entries = backbone_entries(base, python)
    measured, stopped = measure(entries, rounds=rounds, seconds=seconds, console=console)
    shared = {name: value for name, value in common(base, rounds).items() if name not in OF_PRESETS}
    report = BackbonesReport(shared, list(measured.values()), left_out | stopped)
    publish(report, console, json_path)
    return report


def own_entries(setting: Setting) -> list[Entry]:
    """Return this library's contestants and the limits, for both critics."""
    notes = {
        "limit-batched": "the matrix products of the step alone, as batched products",
        "limit-single": "as many operations in one large matrix product",
        "pessimism-compiled": "",
        "pessimism-eager": "",
    }
    return [
        Entry(f"{name} ({critic})", dataclasses.replace(setting, contestant=name, critic=critic), note=note)
        for critic in ("plain", "residual")
        for name, note in notes.items()
    ]


def peer_entries(setting: Setting, python: Path) -> list[Entry]:
    """Return the peers, which have the plain critic only."""
    notes = {
        "sbx": f"policy_delay {setting.updates}; takes the lowest critic, learns no penalty",
        "sb3": f"more work than asked: updates the policy {setting.updates} times instead of once",
    }
    return [
        Entry(f"{name} (plain)", dataclasses.replace(setting, contestant=name), python, note)
        for name, note in notes.items()
    ]


def paper_entries(base: Setting) -> list[Entry]:
    """Return the rows of the paper's table."""
    entries = []
    for row in VARIANTS:
        pixels = row.setting.contestant.startswith("pixels-")
        contestant = row.setting.contestant if pixels else base.contestant
        setting = dataclasses.replace(row.setting, contestant=contestant, batch=base.batch, cores=base.cores)
        entries.append(Entry(row.name, setting, cached=True))
    return entries


def common(setting: Setting, rounds: int) -> dict[str, object]:
    """Return what all lines of a table have in common."""
    fields = ("members", "updates", "batch", "obs_size", "action_size", "hidden")
    sizes = {name: getattr(setting, name) for name in fields}
    return sizes | {
        "threads": len(setting.cores),
        "cores": list(setting.cores),
        "rounds": rounds,
        "load": round(load(), 1),
    }


def publish(
    report: SpeedReport | PaperReport | PixelReport | BackbonesReport, console: Console, json_path: Path | None
) -> None:
    """Print a report, and write it where asked."""
    report.show(console)
    if json_path is not None:
        write_json(json_path, report.record())


def check(members: int, updates: int, batch: int, rounds: int, json_path: Path | None) -> None:
    """Refuse sizes that cannot be measured."""
    least = {"members": (members, 2), "updates": (updates, 1), "batch": (batch, 1), "rounds": (rounds, 1)}
    for name, (value, minimum) in least.items():
        if value < minimum:
            raise UserError(f"{name} must be at least {minimum}; got {value}")
    if json_path is not None:
        check_writable(json_path)
