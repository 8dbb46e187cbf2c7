"""Exported policies give the actions of torch, in the environment's own units, without torch."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import onnxruntime
import pytest

from pessimism import GPLSAC, Algorithm, UserError, extras
from pessimism.cli import main
from pessimism.training import export

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "run_onnx.py"
WITHOUT_TORCH = "import runpy, sys; sys.modules['torch'] = sys.modules['pessimism'] = None; sys.argv.pop(0); "
DRAWN = "pessimism.envs.toys:pessimism-toys/DrawnLine-v0"
FAST = {
    "random_steps": 20,
    "updates_per_step": 2,
    "batch_size": 8,
    "hidden": 16,
    "critic": {"hidden": 16, "members": 2},
    "compile": False,
    "threads": 1,
    "evaluation": {"every": 0},
    "bias": {"every": 0},
    "log": {"tensorboard": False},
}


class Lopsided(gymnasium.Env):
    """Has bounds that differ in size and centre between the actions, which are a matrix."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2, 3), np.float64)
    action_space = gymnasium.spaces.Box(np.float32([[-1, 0], [2, -30]]), np.float32([[1, 10], [3, -10]]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=(2, 3)), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.np_random.normal(size=(2, 3)), 0.0, False, self.np_random.random() < 0.2, {}


def actions(path, observations):
    session = onnxruntime.InferenceSession(path)
    return np.stack([session.run(None, {"observation": obs})[0] for obs in observations])


def test_a_file_replaces_no_link_and_no_device(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_graph", lambda policy, example: b"graph")
    monkeypatch.setattr(export, "_difference", lambda *arguments: 0.0)
    monkeypatch.setattr(export, "_latency", lambda *arguments: 0.0)
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *arguments, **keywords: None)
    model = GPLSAC(Lopsided, **FAST)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    (tmp_path / "link").symlink_to("policy.onnx")
    for name in ("pipe", "to-pipe", "."):
        with pytest.raises(UserError, match="not a regular file: give another name"):
            model.export(tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()
    model.export(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "policy.onnx").read_bytes() == b"graph"


@pytest.mark.slow
def test_a_policy_on_states_with_its_action_bounds(tmp_path):
    model = GPLSAC(Lopsided, seed=1, **FAST).learn(40)
    exported = model.export(tmp_path / "new" / "policy.onnx")
    observations = 3 * np.random.default_rng(1).standard_normal((50, 2, 3), dtype=np.float32)
    expected, _ = model.predict(observations, deterministic=True)
    found = actions(exported.path, observations)
    assert found.shape == (50, 2, 2)
    assert found == pytest.approx(expected, rel=0, abs=1e-5)
    assert np.ptp(found, axis=0).min() > 1e-3  # the policy depends on what it sees
    assert exported.difference <= 1e-5
    assert 0 < exported.seconds < 1


@pytest.mark.slow
@pytest.mark.parametrize("augmentation", ["shift", "crop"])
def test_a_policy_on_images_with_their_conversion(augmentation, tmp_path):
    pixels = {"stack": 2, "filters": 4, "features": 8, "augmentation": augmentation}
    env_kwargs = {"size": 30}
    model = Algorithm(DRAWN, algorithm="gpl-drq", pixels=pixels, env_kwargs=env_kwargs, **FAST).learn(40)
    exported = model.export(tmp_path / "policy.onnx")
    images = np.random.default_rng(1).integers(0, 256, (20, 2, 30, 30, 3), dtype=np.uint8)
    expected, _ = model.predict(images, deterministic=True)
    assert actions(exported.path, images) == pytest.approx(expected, rel=0, abs=1e-5)
    assert expected.std() > 1e-4


@pytest.mark.slow
def test_the_command_and_the_example_without_torch(capsys):
    GPLSAC("InvertedPendulum-v4", seed=2, **FAST).learn(60, out="run")
    assert main(["export", "run", "policy.onnx"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "policy.onnx: observation [4] float32 -> action [1] float32"
    assert "largest difference from torch " in second
    assert "ms per call" in second
    words = [sys.executable, "-c", WITHOUT_TORCH + "runpy.run_path(sys.argv[0])", EXAMPLE]
    result = subprocess.run(
        [*words, "policy.onnx", "InvertedPendulum-v4"], check=False, capture_output=True, text=True
    )
    assert result.stdout == f"return {played('run'):.2f}\n", result.stderr


def played(run):
    """Return the score of the episode that the example plays."""
    model, env = Algorithm.load(run), gymnasium.make("InvertedPendulum-v4")
    obs, _ = env.reset(seed=0)
    score, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(model.predict(obs, deterministic=True)[0])
        score, over = score + reward, terminated or truncated
    return score


def test_a_missing_extra_is_one_line_and_nothing_is_written(monkeypatch):
    model = GPLSAC("InvertedPendulum-v4", **FAST)
    monkeypatch.setattr(extras.metadata, "requires", lambda name: ["onnxscript>=0.7; extra == 'onnx'"])
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match="^the ONNX export is not installed: pip install 'onnxscript>=0.7'$"):
        model.export("policy.onnx")
    assert not Path("policy.onnx").exists()


@pytest.mark.slow
def test_a_file_that_differs_from_torch_is_not_written(monkeypatch):
    model = GPLSAC("InvertedPendulum-v4", **FAST)
    monkeypatch.setattr(export, "_difference", lambda *parts: 1e-3)
    with pytest.raises(UserError, match="differs from torch by 1.0e-03"):
        model.export("policy.onnx")
    assert not Path("policy.onnx").exists()
