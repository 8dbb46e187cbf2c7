"""The Python side: construct, learn, predict, save, load, callbacks."""

import pickle
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import pessimism
from pessimism import GPLSAC, REDQ, SAC, Algorithm, Callback, UserError
from pessimism.config.presets import PRESETS
from pessimism.tools import stub

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
}


def test_learn_predict_save_load(tmp_path):
    model = GPLSAC("InvertedPendulum-v4", seed=3, **FAST).learn(40)
    obs = np.array([0.1, 0.0, -0.1, 0.2], np.float32)
    action, state = model.predict(obs, deterministic=True)
    assert (action.shape, state) == ((1,), None)
    assert -3 <= action[0] <= 3  # the environment's own units
    again = GPLSAC.load(model.save(tmp_path / "agent.safetensors"))
    assert again.config == model.config
    assert again.predict(obs, deterministic=True)[0] == pytest.approx(action, abs=0)
    many, _ = again.predict(np.stack([obs, obs]), deterministic=True)
    assert many.shape == (2, 1)
    assert len(again.evaluate(2).returns) == 2
    assert again.measure_bias(2).states > 0


def test_learning_goes_on_where_it_stopped():
    once, twice = (
        SAC("InvertedPendulum-v4", **FAST).learn(60),
        SAC("InvertedPendulum-v4", **FAST).learn(35).learn(60),
    )
    obs = np.zeros(4, np.float32)
    assert once.predict(obs, deterministic=True)[0] == pytest.approx(
        twice.predict(obs, deterministic=True)[0], abs=0
    )


def test_learning_in_a_directory_goes_on_from_it(tmp_path):
    SAC("InvertedPendulum-v4", **FAST).learn(30, out=tmp_path / "run")
    resumed = SAC("InvertedPendulum-v4", **FAST).learn(50, out=tmp_path / "run")
    once = SAC("InvertedPendulum-v4", **FAST).learn(50)
    obs = np.zeros(4, np.float32)
    assert resumed.predict(obs, deterministic=True)[0] == pytest.approx(
        once.predict(obs, deterministic=True)[0], abs=0
    )


def test_environments_may_be_made_by_a_function_or_given_with_their_spec():
    for env in (lambda: gymnasium.make("Pendulum-v1"), gymnasium.make("Pendulum-v1")):
        model = SAC(env, **FAST).learn(25)
        assert model.predict(np.zeros(3), deterministic=True)[0].shape == (1,)


def test_callbacks_are_called_after_every_step_and_may_stop():
    class Count(Callback):
        steps, ended = 0, False

        def on_step(self, progress):
            self.steps += 1

        def on_end(self, progress):
            self.ended = True

    count = Count()
    SAC("InvertedPendulum-v4", **FAST).learn(50, callback=[count, lambda progress: progress.step < 30])
    assert (count.steps, count.ended) == (30, True)


def test_foreign_files_are_refused(tmp_path):
    file = tmp_path / "agent.zip"
    file.write_bytes(pickle.dumps({"a": 1}))
    for path in (file, tmp_path / "absent.safetensors", Path(__file__)):
        with pytest.raises(UserError, match="cannot be read"):
            Algorithm.load(path)


def test_settings_are_checked_as_on_the_command_line():
    with pytest.raises(UserError, match="unknown setting batchsize; did you mean batch_size"):
        SAC("InvertedPendulum-v4", batchsize=8)


def test_the_package_names_what_it_offers():
    assert all(getattr(pessimism, name) for name in pessimism.__all__)
    with pytest.raises(AttributeError):
        _ = pessimism.nothing


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_class(name):
    cls = getattr(pessimism, PRESETS[name].python)
    assert issubclass(cls, Algorithm)
    assert (cls.preset, cls.__name__) == (name, PRESETS[name].python)
    assert PRESETS[name].source in cls.__doc__
    assert cls.__name__ in dir(pessimism)
    assert f"class {cls.__name__}(Algorithm)" in stub.PATH.read_text()


def test_the_stub_is_that_of_the_presets():
    assert stub.PATH.read_text() == stub.stub(), "write it anew: python -m pessimism.tools.stub"


def test_a_class_is_one_algorithm():
    with pytest.raises(UserError, match="^algorithm = redq does not go with gpl-sac"):
        GPLSAC("InvertedPendulum-v4", algorithm="redq", **FAST)
    assert GPLSAC("InvertedPendulum-v4", algorithm="gpl-sac", **FAST).config.algorithm == "gpl-sac"
    assert Algorithm("InvertedPendulum-v4", algorithm="redq", **FAST).config.algorithm == "redq"


def test_a_file_is_loaded_by_its_own_class_or_by_the_base(tmp_path):
    path = REDQ("InvertedPendulum-v4", **FAST).save(tmp_path / "agent.safetensors")
    with pytest.raises(UserError, match="holds an agent of redq, not of sac: Algorithm.load reads both$"):
        SAC.load(path)
    assert Algorithm.load(path).config.algorithm == "redq"
