"""Time compiled updates: python docs/update_time.py [CRITICS] [BATCH] [SECONDS] [plain]. OMP_* variables count."""

import statistics
import sys
import time

from pessimism.bench.contestants import own_step
from pessimism.bench.worker import Setting

numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
members, batch, seconds = [*numbers, *(5, 128, 8)[len(numbers) :]]
critic = "plain" if "plain" in sys.argv else "residual"
step = own_step(Setting(contestant="pessimism-compiled", critic=critic, members=members, batch=batch))
for _ in range(3):  # the first compiles
    step()
times = []
while sum(times) < seconds:
    started = time.perf_counter()
    step()
    times.append(time.perf_counter() - started)
print(f"median {1000 * statistics.median(times):.1f} ms of {len(times)} steps")
