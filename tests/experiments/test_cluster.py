"""A real Ray cluster of two nodes on this machine. One is lost in the middle, and its run ends on the other."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pessimism.cli import main
from sweeps import SMALL, TASK, checkpointed, descendants, finish, start, train_alone, trainer_below, wait_until

pytest.importorskip("ray", reason="Ray is not installed (extra: cluster)")
pytestmark = pytest.mark.timeout(600)
ATTEMPTS = 3  # Ray gives a node's agents 15 seconds to start, too few where others use the machine
STEPS = 400
RUNS = [Path(f"runs/sweep/gpl-sac/InvertedPendulum-v4/seed_{seed}") for seed in (0, 1)]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def cluster(monkeypatch):
    """Yield the address, and what starts a node and returns its process. A node has one core."""
    place = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # Ray's sockets need short paths
    (place / "token").write_text(os.urandom(24).hex())
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(place / "token"))
    address = f"127.0.0.1:{free_port()}"
    nodes = []

    def node(*words):
        command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-cpus=1", *words]
        command += ["--disable-usage-stats", f"--object-store-memory={80 * 2**20}"]
        for _ in range(ATTEMPTS):
            output = place / f"node{len(nodes)}.log"
            with output.open("w") as log:
                nodes.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
            wait_until(lambda where=output: nodes[-1].poll() is not None or "runtime started" in where.read_text())
            if nodes[-1].poll() is None:
                return nodes[-1]
        raise AssertionError(output.read_text())

    try:
        port = address.rpartition(":")[2]
        node("--head", f"--port={port}", f"--temp-dir={place}/ray", "--include-dashboard=false")
        yield address, node
    finally:
        for process in nodes:
            process.terminate()
            process.wait(timeout=60)
        shutil.rmtree(place)


def kill_node(process):
    """As if somebody had pulled the plug: everything that runs on the node is gone at once."""
    for pid in [process.pid, *descendants(process.pid)]:
        os.kill(pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_a_node_is_lost_and_its_run_ends_on_the_other(cluster):
    address, node = cluster
    second = node(f"--address={address}")
    sweep = start("sweep", "gpl-sac", *TASK, "--seeds", 2, "--steps", STEPS, *SMALL, "--ray", address)
    wait_until(lambda: trainer_below(second.pid) or sweep.poll() is not None)
    words = Path(f"/proc/{trainer_below(second.pid)}/cmdline").read_text().split("\0")
    lost = int(words[words.index("--seed") + 1])
    wait_until(lambda: checkpointed(RUNS[lost]))
    kill_node(second)
    assert not (RUNS[lost] / "DONE").exists()
    code, printed = finish(sweep)
    assert code == 0, printed
    assert "2 runs: 2 done" in printed
    assert "resuming from the checkpoint" in (RUNS[lost] / "output.log").read_text()
    metrics = (RUNS[lost] / "metrics.jsonl").read_bytes()
    assert metrics == train_alone("alone", "--seed", lost, "--steps", STEPS)


@pytest.mark.slow
def test_a_sweep_on_a_cluster_stops_with_checkpoints(cluster):
    address, _ = cluster
    sweep = start("sweep", "gpl-sac", *TASK, "--seeds", 2, "--steps", 10_000, *SMALL, "--ray", address)
    wait_until(lambda: checkpointed(RUNS[0]) or sweep.poll() is not None)
    sweep.send_signal(signal.SIGINT)
    code, printed = finish(sweep)
    assert (code, "the same command resumes" in printed) == (130, True), printed
    assert "stopped at step" in (RUNS[0] / "output.log").read_text()
    assert not RUNS[1].exists()


def test_an_address_without_a_cluster_is_refused_in_one_line(capsys):
    address = f"127.0.0.1:{free_port()}"
    assert main(["sweep", "gpl-sac", *TASK, "--ray", address]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert f"no Ray cluster at {address}" in lines[-1]
