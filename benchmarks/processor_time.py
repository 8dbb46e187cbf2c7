"""The contestants of `pessimism bench` on one core each, in turns, in processor time: for a machine that is busy.

python benchmarks/processor_time.py PEERS [ROUNDS] [CORE]

PEERS is the peers' environment, which `pessimism bench` makes (.venv-peers). Prints the median processor time of a
step, its quartiles, and ratios to SBX and SB3 within the same rounds.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from pessimism.bench import worker

# The worker measures with `perf_counter`: here that is the processor time of all of its threads.
SCRIPT = (
    "import runpy, sys, time; sys.argv = sys.argv[1:]; time.perf_counter = time.process_time; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
CONTESTANTS = {
    "limit-batched (plain)": {"contestant": "limit-batched"},
    "C++ (plain)": {"contestant": "pessimism-compiled"},
    "C++ (residual)": {"contestant": "pessimism-compiled", "critic": "residual"},
    "sbx (plain)": {"contestant": "sbx"},
    "sb3 (plain)": {"contestant": "sb3"},
}


def start(setting: dict[str, object], python: Path, core: int) -> subprocess.Popen[str]:
    """Start a worker whose clock is the processor's."""
    argument = json.dumps({**setting, "cores": [core]})
    command = [str(python), "-P", "-c", SCRIPT, worker.__file__, argument]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def block(process: subprocess.Popen[str], steps: int) -> float:
    """Return milliseconds of processor time per step."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps({"steps": steps}), file=process.stdin, flush=True)
    return 1000 * json.loads(process.stdout.readline())["seconds"] / steps


def main(peers: Path, rounds: int = 7, core: int = 0) -> None:
    """Warm all contestants up one after the other, then let them run in turns."""
    processes = {}
    for name, setting in CONTESTANTS.items():
        is_peer = setting["contestant"] in ("sbx", "sb3")
        process = start(dict(setting), peers / "bin" / "python" if is_peer else Path(sys.executable), core)
        assert process.stdout is not None
        if process.stdout.readline():
            processes[name] = process
    times: dict[str, list[float]] = {name: [] for name in processes}
    for _ in range(rounds):
        for name, process in processes.items():
            times[name].append(block(process, 2))
    for name, own in times.items():
        low, middle, high = statistics.quantiles(own, n=4)
        ratios = [
            f"{statistics.median(a / b for a, b in zip(own, times[peer], strict=True)):.2f} of {peer}"
            for peer in ("limit-batched (plain)", "sbx (plain)", "sb3 (plain)")
            if peer in times and peer != name
        ]
        print(f"{name:22} {middle:7.1f} ms ({low:.1f} to {high:.1f}); {', '.join(ratios)}", flush=True)
    for process in processes.values():
        process.communicate()


main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
