"""What is too large, closed, unwritable or missing ends in one line, without a traceback and without lost steps."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from pessimism.cli import main
from pessimism.config.presets import PRESETS
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.envs import rendering
from pessimism.errors import UserError
from pessimism.nn.compilation import cache_problem, compiler
from pessimism.training import resources
from pessimism.training.build import build_agent
from pessimism.training.run import load_run

LINE = "pessimism.envs.toys:pessimism-toys/Line-v0"
TINY = f"""
--env {LINE} --random-steps 30 --batch-size 8 --hidden 8 --critic.hidden 8 --compile false --threads 1
--evaluation.every 10 --evaluation.episodes 1 --bias.every 0 --log.tensorboard false --out run
""".split()


@pytest.mark.parametrize("name", PRESETS)
def test_the_memory_of_an_agent_is_estimated_to_a_factor_of_two(name):
    config = validated(merge(preset_values(name), {"env": "Hopper-v4", "compile": False, "target_entropy": -1.0}))
    shape = (3, 84, 84, 3) if config.pixels else (11,)
    agent = build_agent(config, shape, 3)
    gradients = sum(parameter.nbytes for parameter in agent.parameters())
    built = sum(tensor.nbytes for tensor in agent.state_dict().values()) + gradients
    assert 0.5 < resources.agent_bytes(config, shape, 3) / built < 2


def test_networks_that_no_memory_holds_are_refused_before_they_are_made(capsys, monkeypatch):
    made = []
    monkeypatch.setattr(torch.nn.init, "orthogonal_", lambda tensor, gain=1: made.append(tensor))
    assert main(["train", "sac", *TINY, "--hidden", "65536", "--critic.hidden", "65536"]) == 2
    assert "networks and batches need about" in capsys.readouterr().err
    assert not made
    assert not Path("run").exists()


def test_a_batch_counts(monkeypatch):
    monkeypatch.setattr(resources, "free_memory", lambda: 10**9)
    config = validated(merge(preset_values("sac"), {"env": "Hopper-v4", "batch_size": 1_000_000}))
    with pytest.raises(UserError, match="need about .* smaller --hidden, .* or --batch-size"):
        resources.check_networks(config, (11,), 3)


def test_a_run_whose_output_is_closed_stops_with_a_checkpoint():
    words = [sys.executable, "-m", "pessimism", "train", "sac", *TINY, "--steps", "100000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, "")
    assert load_run(Path("run"))[1] >= 1


def test_a_list_whose_output_is_closed_ends_as_a_shell_expects():
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, "-m", "pessimism", "list"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (141, "")


def test_an_interruption_before_training_is_one_line(capsys, monkeypatch):
    def interrupted(*arguments, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr("pessimism.training.run.assemble", interrupted)
    assert main(["train", "sac", *TINY]) == 130
    assert capsys.readouterr().err == "pessimism: interrupted\n"


def test_a_compiler_that_does_not_exist_is_none(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compiler() is None
    monkeypatch.setenv("CXX", sys.executable)
    assert compiler() == sys.executable


def test_a_cache_that_cannot_be_written_is_one_line(capsys, monkeypatch):
    Path("file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "file/cache")
    assert "file/cache cannot be written (Not a directory)" in cache_problem()
    monkeypatch.setattr("pessimism.training.run.compiler", lambda: "g++")
    assert main(["train", "sac", *TINY, "--compile", "true"]) == 2
    assert "file/cache cannot be written (Not a directory); set TORCHINDUCTOR_CACHE_DIR" in capsys.readouterr().err


def test_plot_and_video_that_cannot_write_are_one_line(capsys, monkeypatch):
    assert main(["train", "sac", *TINY, "--steps", "20"]) == 0
    capsys.readouterr()
    Path("run/curve.png").mkdir()  # stands in for a run that may only be read
    assert main(["plot", "run"]) == 2
    assert "cannot write run/curve.png: Is a directory" in capsys.readouterr().err


def test_a_broken_encoder_is_one_line(capsys, monkeypatch):
    pytest.importorskip("imageio_ffmpeg")
    import numpy as np

    from pessimism.envs.control import ControlEnv

    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/no/such/ffmpeg")
    monkeypatch.setattr(ControlEnv, "render", lambda self: np.zeros((24, 32, 3), np.uint8))
    monkeypatch.setattr("pessimism.envs.make.gymnasium.make", _without_drawing(monkeypatch))
    assert main(["train", "sac", *TINY, "--steps", "20"]) == 0
    capsys.readouterr()
    assert main(["video", "run"]) == 2
    err = capsys.readouterr().err
    assert "cannot write run/agent.mp4" in err
    assert len(err.splitlines()) == 1


def _without_drawing(monkeypatch):
    import gymnasium

    make = gymnasium.make

    def made(name, **kwargs):
        kwargs.pop("render_mode", None)
        return make(name, **kwargs)

    return made


def test_a_hint_to_unset_a_variable_appears_only_if_the_user_set_it(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(rendering, "choose", lambda: rendering.Choice("egl", "the first that loads"))
    monkeypatch.setattr(rendering, "_loads", lambda library: True)
    monkeypatch.setattr(rendering, "_chosen_here", set())
    rendering.prepare_rendering()
    said = str(rendering.rendering_error(ValueError("camera_id 99 does not exist")))
    assert "camera_id 99 does not exist" in said
    assert str(rendering.rendering_error(UserError(said))) == said  # of a wrapper around what was drawn
    assert "unset" not in said
    monkeypatch.setattr(rendering, "_chosen_here", set())  # as if the user had set it
    assert "unset MUJOCO_GL, which is egl" in str(rendering.rendering_error(ValueError("x")))


def test_no_thread_is_left_of_a_stopped_run():
    before = set(threading.enumerate())  # other tests of this process may have pools that are still idle
    assert main(["train", "sac", *TINY, "--steps", "20"]) == 0
    assert [one for one in threading.enumerate() if one not in before and not one.daemon] == []
