"""Time compiled updates: python docs/update_time.py [CRITICS] [BATCH] [SECONDS]. OpenMP's variables count."""

import statistics
import sys
import time

from pessimism.bench.contestants import own_step
from pessimism.bench.worker import Setting

members, batch, seconds = [*map(int, sys.argv[1:]), *(5, 128, 8)[len(sys.argv) - 1 :]]
step = own_step(Setting(contestant="pessimism-compiled", critic="residual", members=members, batch=batch))
for _ in range(3):  # the first compiles
    step()
times = []
while sum(times) < seconds:
    started = time.perf_counter()
    step()
    times.append(time.perf_counter() - started)
print(f"median {1000 * statistics.median(times):.1f} ms of {len(times)} steps")
