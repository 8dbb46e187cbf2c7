"""What cannot work is answered with one line and exit code 2: tables of bad environments and bad commands."""

import sys
from pathlib import Path

import gymnasium
import pytest

from bad import BAD_COMMANDS, BAD_ENVIRONMENTS, ENVIRONMENTS, FILES, SMALL
from pessimism.cli import main


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    gymnasium.registry.pop("Bad-v0", None)
    for module in ("bad_envs", "evil"):
        sys.modules.pop(module, None)


def answer(capsys, *arguments):
    """Run a command that must fail; return its only line."""
    code = main([str(argument) for argument in arguments])
    lines = capsys.readouterr().err.strip().splitlines()
    assert (code, len(lines)) == (2, 1), lines
    return lines[0]


@pytest.mark.parametrize("what", BAD_ENVIRONMENTS)
def test_a_bad_environment_is_answered_with_one_line(home, capsys, what):
    Path("bad_envs.py").write_text(ENVIRONMENTS)
    algorithm, message = BAD_ENVIRONMENTS[what]
    arguments = f"{{what: {what.removesuffix(' images')}}}"
    asked = ("--env", "bad_envs:Bad-v0", "--env-kwargs", arguments, *SMALL, "--out", "run")
    assert message in answer(capsys, "train", algorithm, *asked)


def test_actions_without_axes_are_trained(home, capsys):
    Path("bad_envs.py").write_text(ENVIRONMENTS)
    asked = ("--env", "bad_envs:Bad-v0", "--env-kwargs", "{what: 0-dimensional}", *SMALL, "--out", "run")
    assert main(["train", "sac", *asked]) == 0


@pytest.mark.parametrize("command", BAD_COMMANDS)
def test_a_bad_command_is_answered_with_one_line(home, capsys, command):
    for name, text in FILES.items():
        Path(name).write_text(text)
    assert BAD_COMMANDS[command] in answer(capsys, *command.split())
    assert sorted(path.name for path in home.iterdir()) == sorted(FILES)  # nothing was written, nothing executed


def test_a_run_does_not_choose_what_is_imported(home, capsys):
    Path("bad_envs.py").write_text(ENVIRONMENTS)
    assert main(["train", "sac", "--env", "bad_envs:Bad-v0", *SMALL, "--out", "run"]) == 0
    config = Path("run/config.yaml")
    Path("evil.py").write_text(FILES["evil.py"])
    config.write_text(config.read_text().replace("bad_envs:Bad-v0", "evil:X-v0"))
    for command in ("eval", "bias", "video"):
        assert "evil:X-v0, for which Python would run the module evil" in answer(capsys, command, "run")
    assert not Path("executed").exists()
    config.write_text(config.read_text().replace("evil:X-v0", "bad_envs:Bad-v0"))
    gymnasium.registry.pop("Bad-v0")
    assert "if you trust it give --trust-env" in answer(capsys, "eval", "run")
    sys.modules.pop("bad_envs")
    assert main(["eval", "run", "--episodes", "1", "--trust-env"]) == 0
    assert main(["eval", "run", "--episodes", "1"]) == 0  # registered by now
