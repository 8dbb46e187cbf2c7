"""The tutorial's blocks and the notebook, run in order and in miniature, in a directory far from the sources."""

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```(\w+)(?: title="(.+?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
MINIATURE = {
    "random_steps: 500": "random_steps: 60",
    "batch_size: 128": "batch_size: 16",
    "hidden: 64": "hidden: 16",
    "every: 500": "every: 50",
    "--steps 2000": "--steps 80",
    "--steps 3000": "--steps 100",
    "--steps 4000": "--steps 120",
    "--episodes 20": "--episodes 2",
    "--trials 6": "--trials 2",
    "--watch runs": "--watch runs --port 0",
    "episodes=10": "episodes=2",
}
NOTEBOOK = ROOT / "examples/quickstart.ipynb"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def in_miniature(text):
    for large, small in MINIATURE.items():
        text = text.replace(large, small)
    return text


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty directory beside the checkout."""
    (tmp_path / "pessimism").symlink_to(ROOT)
    (tmp_path / "my-task").mkdir()
    monkeypatch.chdir(tmp_path / "my-task")
    monkeypatch.delenv(
        "MPLBACKEND", raising=False
    )  # scripts that other tests load set it; figures are shown inline here
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "my-task"


def run(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def served(command):
    """Start a server in a second terminal, read its page and stop it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        address = re.search(r"http://\S+", process.stdout.readline())[0]
        with urllib.request.urlopen(address) as answer:
            page = answer.read().decode()
        process.terminate()  # Ctrl-C may be ignored where the tests run in the background
    return page


def test_every_block_works_after_the_one_before(place):
    tutorial = (ROOT / "docs/tutorial.md").read_text()
    assert not [large for large in MINIATURE if large not in tutorial]
    printed = []
    for language, title, text in BLOCK.findall(tutorial):
        small = in_miniature(text)
        if title.startswith("in a second terminal"):
            assert "reach:Reach-v0" in served(small.split())
        elif title:
            (place / title).write_text(small)
        else:
            printed.append(run(["bash", "-ec", small] if language == "sh" else [sys.executable, "-c", small]))
    whole = "\n".join(printed)
    assert [line.split()[0] for line in printed[2].splitlines()] == ["50", "100"]  # the metrics that were read
    assert "done: 120 steps, in runs/learned" in printed[3]
    for words in ("bias ", "best return ", "eval/mean_reward", "return -"):
        assert words in whole
    for file in ("runs/report/report.html", "runs/members/report/report.html", "policy.onnx", "reach.safetensors"):
        assert (place / file).exists(), file
    assert not (place / "../pessimism/runs/learned").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::ResourceWarning")
def test_the_notebook_runs(place):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    first = notebook.cells[1]
    assert "STEPS = 3000" in first.source
    first.source = first.source.replace("STEPS = 3000", "STEPS = 300")
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(place))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = "\n".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
    assert "300" in shown
    assert "eval/mean_reward" in shown
    assert re.search(r"predicted -?[\d.]+, observed -?[\d.]+, bias [+-][\d.]+", shown)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert (place / "pendulum.safetensors").exists()


def test_the_notebook_is_stored_without_outputs():
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert not cell.get("outputs")
        assert not cell.get("execution_count")
