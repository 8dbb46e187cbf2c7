"""`pessimism bench --backbones`: what an environment step costs with each preset on states, and SBX's relatives."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from pessimism.bench.report import Measurement, describe, show_apart, spread
from pessimism.bench.turns import Entry
from pessimism.bench.worker import Setting
from pessimism.config.presets import STATE_PRESETS
from pessimism.terminal import new_table

BASE = "gpl-sac"
PRESETS = [*(name for name in STATE_PRESETS if name != "mbpo"), "gpl-xqc@256"]  # a model's cost is that of its fits
PEERS = {
    "sbx-crossq": "CrossQ: 2 critics of 1024, 1 update per step",
    "sbx-droq": "DroQ: 2 critics of 256, 20 updates, policy_delay 20",
    "sbx-simba": "SAC with SimBa's networks at SBX's sizes, 2 critics, 1 update per step",
}


def backbone_entries(setting: Setting, python: Path | None) -> list[Entry]:
    """Return each preset with its products, and the peers where there is an interpreter for them."""
    names = [f"{kind}-{name}" for name in PRESETS for kind in ("preset", "products")]
    own = [Entry(name, dataclasses.replace(setting, contestant=name), cached=True) for name in names]
    if python is None:
        return own
    peers = [
        Entry(name, dataclasses.replace(setting, contestant=name), python, note) for name, note in PEERS.items()
    ]
    return own + peers


@dataclass(frozen=True)
class BackbonesReport:
    """Presets against each other."""

    setting: Mapping[str, object]
    measurements: Sequence[Measurement]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def contestants(self) -> list[Measurement]:
        """All but the products."""
        return [line for line in self.measurements if not line.name.startswith("products-")]

    def ratio(self, line: Measurement) -> float | None:
        """Return a contestant's time over that of gpl-sac."""
        return self._over(line, f"preset-{BASE}")

    def share(self, line: Measurement) -> float | None:
        """Return the time of the step's matrix products alone, by torch in float32, over that of the step."""
        over = self._over(line, line.name.replace("preset-", "products-"))
        return None if over is None or line.name in PEERS else 1 / over

    def _over(self, line: Measurement, name: str) -> float | None:
        times = [other.milliseconds for other in self.measurements if other.name == name]
        return line.milliseconds / times[0] if times else None

    def record(self) -> dict[str, Any]:
        """Return the content of the JSON file."""
        lines = [
            line.record() | {"ratio_to_gpl_sac": self.ratio(line), "share_of_products": self.share(line)}
            for line in self.contestants
        ]
        return {"setting": dict(self.setting), "contestants": lines, "left_out": dict(self.left_out)}

    def show(self, console: Console) -> None:
        """Print the tables."""
        heads = ("ms", "quartiles", "of gpl-sac", "products")
        table = new_table("Time of one environment step by preset", ("contestant",), heads)
        for line in self.contestants:
            ratio, share = self.ratio(line), self.share(line)
            cells = ("" if ratio is None else f"{ratio:.2f}", "" if share is None else f"{100 * share:.0f} %")
            table.add_row(line.name.removeprefix("preset-"), *spread(line), *cells)
        products = "products: the step's matrix products alone, by torch in float32; C++ and AMX may take less"
        notes = [f"{name}: {note}" for name, note in PEERS.items()]
        table.caption = "\n".join([describe(self.setting), products, *notes])
        console.print(table)
        show_apart(self.contestants, console)
        for reason in self.left_out.values():
            console.print(f"left out: {reason}", highlight=False, markup=False)
