"""Time compiled updates of one agent. OMP_* variables count."""

import statistics
import time

from pessimism.bench.contestants import own_step
from pessimism.bench.worker import Setting
from pessimism.tools.script import Parser, start


def main() -> None:
    """Time steps and print their median."""
    parser = Parser(__doc__)
    parser.add_argument("critics", nargs="?", type=int, default=5, help="number of critics (5)")
    parser.add_argument("batch", nargs="?", type=int, default=128, help="transitions in a batch (128)")
    parser.add_argument("seconds", nargs="?", type=float, default=8, help="time of all steps together (8)")
    parser.add_argument("critic", nargs="?", choices=("residual", "plain"), default="residual")
    parser.add_argument("--eager", action="store_true", help="do not compile the update")
    asked = parser.parse_args()
    own = "pessimism-eager" if asked.eager else "pessimism-compiled"
    step = own_step(Setting(contestant=own, critic=asked.critic, members=asked.critics, batch=asked.batch))
    for _ in range(3):  # the first compiles
        step()
    times: list[float] = []
    while not times or sum(times) < asked.seconds:
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    print(f"median {1000 * statistics.median(times):.1f} ms of {len(times)} steps")


if __name__ == "__main__":
    start(main)
