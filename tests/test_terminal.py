"""What is shown while something takes long."""

import io
import time

import pytest
from rich.console import Console

from pessimism import terminal
from pessimism.config.resolve import resolved
from pessimism.training.display import Display
from pessimism.training.run import run
from pessimism.training.state import Progress


@pytest.fixture
def pipe(monkeypatch):
    monkeypatch.setattr(terminal, "SECONDS", 0.02)
    return Console(file=io.StringIO(), force_terminal=False)


def test_a_pipe_gets_a_line_every_few_seconds_until_the_end(pipe):
    with terminal.announced(pipe, "building"):
        time.sleep(0.2)
    lines = pipe.file.getvalue().splitlines()
    assert len(lines) >= 2
    assert set(lines) == {"building (0 s)"}
    time.sleep(0.1)
    assert pipe.file.getvalue().splitlines() == lines


def test_what_is_quick_is_not_announced(pipe, monkeypatch):
    monkeypatch.setattr(terminal, "SECONDS", 5.0)
    with terminal.announced(pipe, "building"):
        pass
    assert pipe.file.getvalue() == ""


def test_a_terminal_shows_a_spinner():
    console = Console(file=io.StringIO(), force_terminal=True)
    with terminal.announced(console, "building"):
        time.sleep(0.2)
    assert "building" in console.file.getvalue()


def test_the_update_that_is_compiled_is_announced_until_it_is_done(pipe):
    display = Display(pipe, steps=10, step=0, first_update=3)
    display.on_step(Progress(step=1))
    time.sleep(0.1)
    assert pipe.file.getvalue() == ""
    display.on_step(Progress(step=2))
    time.sleep(0.1)
    told = pipe.file.getvalue()
    assert "torch compiles the first update" in told
    display.on_step(Progress(step=3))
    told = pipe.file.getvalue()
    time.sleep(0.1)
    display.close()
    assert pipe.file.getvalue() == told


def test_a_run_says_why_torch_compiles(pipe, small, monkeypatch):
    monkeypatch.setattr("pessimism.native.graphs.torch.compile", lambda function, **options: function)
    critic = small["critic"] | {"spectral": "reparameterised"}
    config = resolved("gpl-sac", small | {"compile": True, "critic": critic})
    run(config, console=pipe)
    text = pipe.file.getvalue()
    assert "torch compiles the first update" in text
    assert "the update in C++ would be faster, but it knows" in text
