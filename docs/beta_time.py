"""What learning beta, and annealing it, add to a step: python docs/beta_time.py [SECONDS] [CRITICS] [BATCH].

The three agents take steps in turns in one process; what is compared are steps that followed each other.
"""

import statistics
import sys
import time

from pessimism.bench.contestants import own_step
from pessimism.bench.worker import Setting

numbers = [int(word) for word in sys.argv[1:]]
seconds, members, batch = [*numbers, *(180, 10, 256)[len(numbers) :]]
steps = {
    name: own_step(
        Setting(contestant="pessimism-compiled", critic="residual", strategy=name, members=members, batch=batch)
    )
    for name in ("fixed", "learned", "annealed")
}
for step in steps.values():  # the first compiles
    for _ in range(3):
        step()
times: dict[str, list[float]] = {name: [] for name in steps}
while sum(map(sum, times.values())) < 1000 * seconds:
    for name, step in steps.items():
        started = time.perf_counter()
        step()
        times[name].append(1000 * (time.perf_counter() - started))
fixed = statistics.median(times["fixed"])
for name, own in times.items():
    more = [mine - other for mine, other in zip(own, times["fixed"], strict=True)]
    low, middle, high = statistics.quantiles(more, n=4)
    error, share = (high - low) / len(more) ** 0.5, 100 * middle / fixed
    print(f"{name:9} {statistics.median(own):6.1f} ms, median of {len(own)} steps")
    print(f"          {middle:+.2f} ms ({share:+.2f} %) beside a fixed beta, give or take {error:.2f} ms")
