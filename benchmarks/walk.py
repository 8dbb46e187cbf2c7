"""Count what a reader passes between `pessimism train gpl-sac` and the first changed weight.

Runs the command with small sizes and counts, from `cli.main` until the critics' optimizer has taken its first step:
modules of this package that are entered, functions that are called, and calls that lead from one module to another.
What happens while modules are imported is not counted.
"""

import importlib
import itertools
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType

import yaml

import pessimism
from pessimism.tools.script import Parser, start

ROOT = f"{Path(pessimism.__file__).parent}/"
SETTINGS = {
    "env": "InvertedPendulum-v4",
    "steps": 10,
    "random_steps": 1,
    "updates_per_step": 1,
    "batch_size": 2,
    "hidden": 32,
    "critic": {"hidden": 32, "members": 3},
    "compile": False,
}


class WeightsChanged(BaseException):
    """Ends the run; not an Exception, which the run would report as its own."""


class Walk:
    """The calls of this package's functions, in order."""

    def __init__(self) -> None:
        self.calls: list[CodeType] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Called by the interpreter at each call and return."""
        code = frame.f_code
        if not code.co_filename.startswith(ROOT) or code.co_name.startswith("<"):
            return
        if event == "call":
            self.calls.append(code)
        elif event == "return" and code.co_qualname == "Adam.step":
            raise WeightsChanged

    def modules(self) -> list[str]:
        """Return the module of each call."""
        return [code.co_filename.removeprefix(ROOT).removesuffix(".py").replace("/", ".") for code in self.calls]

    def until(self, name: str) -> "Walk":
        """Return the part before the first call of a function."""
        part = Walk()
        part.calls = list(itertools.takewhile(lambda code: code.co_qualname != name, self.calls))
        return part

    def summary(self) -> str:
        """Return the counts as a line of text."""
        modules = self.modules()
        changes = [pair for pair in itertools.pairwise(modules) if pair[0] != pair[1]]
        return (
            f"{len(set(modules))} modules, {len(set(self.calls))} functions, {len(changes)} changes of module, "
            f"{len(set(changes))} of them different"
        )


@contextmanager
def followed() -> Iterator[Walk]:
    """Record the calls inside; the first change of a weight ends them."""
    walk = Walk()
    sys.setprofile(walk)
    try:
        yield walk
    except WeightsChanged:
        pass
    finally:
        sys.setprofile(None)


def walk_once(directory: Path) -> Walk:
    """Start the command and follow it."""
    settings = directory / "settings.yaml"
    settings.write_text(yaml.safe_dump(SETTINGS))
    arguments = ["train", "gpl-sac", "--config", str(settings), "--out", str(directory / "run")]
    main = importlib.import_module("pessimism.cli").main
    for path in sorted(Path(ROOT).rglob("*.py")):  # loaded before, as imports are not counted
        name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        if name.partition(".")[0] not in ("__main__", "analysis", "bench", "experiments", "tools"):
            try_import(f"pessimism.{name.removesuffix('.__init__')}")
    with followed() as walk:
        main(arguments)
    return walk


def try_import(name: str) -> None:
    """Import a module; what needs a package that is missing is not part of the walk."""
    with suppress(ImportError):
        importlib.import_module(name)


def main() -> None:
    """Print the counts."""
    parser = Parser(__doc__)
    parser.add_argument("--list", action="store_true", help="also print the modules in the order of the walk")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        walk = walk_once(Path(directory))
    if parsed.list:
        for module, calls in itertools.groupby(zip(walk.modules(), walk.calls, strict=True), lambda pair: pair[0]):
            print(f"{module}: {' '.join(code.co_name for _, code in calls)}")
    print(f"from the command to the first changed weight: {walk.summary()}")
    print(f"of these before the trainer exists: {walk.until('Trainer.__init__').summary()}")


if __name__ == "__main__":
    start(main)
