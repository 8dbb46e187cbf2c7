"""Time what learning beta, and annealing it, add to a step.

The three agents take steps in turns in one process; what is compared are steps that followed each other.
"""

import statistics
import time

from pessimism.bench.contestants import own_step
from pessimism.bench.worker import Setting
from pessimism.tools.script import Parser, start


def main() -> None:
    """Time the three agents and print medians of the differences."""
    parser = Parser(__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=180, help="time of all steps together (180)")
    parser.add_argument("critics", nargs="?", type=int, default=10, help="number of critics (10)")
    parser.add_argument("batch", nargs="?", type=int, default=256, help="transitions in a batch (256)")
    parser.add_argument("--eager", action="store_true", help="do not compile the update")
    asked = parser.parse_args()
    sizes = {"critic": "residual", "members": asked.critics, "batch": asked.batch}
    own = "pessimism-eager" if asked.eager else "pessimism-compiled"
    names = ("fixed", "learned", "annealed")
    steps = {name: own_step(Setting(contestant=own, strategy=name, **sizes)) for name in names}
    for step in steps.values():  # the first compiles
        for _ in range(3):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    while len(times["fixed"]) < 2 or sum(map(sum, times.values())) < 1000 * asked.seconds:
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            times[name].append(1000 * (time.perf_counter() - started))
    report(times)


def report(times: dict[str, list[float]]) -> None:
    """Print each agent's median, and what it takes more than a fixed beta."""
    fixed = statistics.median(times["fixed"])
    for name, own in times.items():
        more = [mine - other for mine, other in zip(own, times["fixed"], strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        error, share = (high - low) / len(more) ** 0.5, 100 * middle / fixed
        print(f"{name:9} {statistics.median(own):6.1f} ms, median of {len(own)} steps")
        print(f"          {middle:+.2f} ms ({share:+.2f} %) beside a fixed beta, give or take {error:.2f} ms")


if __name__ == "__main__":
    start(main)
