"""Checkpoints are whole or not there; nothing in them is executed; the replay is written once."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from pessimism.errors import UserError
from pessimism.replay.transitions import TransitionReplay
from pessimism.training import checkpoint as module
from pessimism.training.agentfile import load_tensors
from pessimism.training.checkpoint import Checkpoint, CheckpointStore
from pessimism.training.directory import fingerprint, sealed, unsealed
from pessimism.types import Transition


class Payload:
    """Touches a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def replay(capacity=6):
    return TransitionReplay(capacity, 2, 1, 0.9, torch.Generator())


def fill(ring, count):
    for _ in range(count):
        number = float(ring.added)
        obs = np.full(2, number, np.float32)
        ring.add(Transition(obs, np.zeros(1, np.float32), number, False, obs + 1))


def save(store, ring, step):
    store.save(Checkpoint(step, {"agent.weight": torch.full((2,), float(step))}, {"episode": step}), ring)


def test_a_checkpoint_comes_back_with_its_replay(tmp_path):
    store, ring = CheckpointStore(tmp_path, keep=2), replay()
    for step in (1, 2, 3, 4):
        fill(ring, 3)
        save(store, ring, step)
        copy = replay()
        loaded, torn = CheckpointStore(tmp_path, keep=2).load(copy)
        assert (loaded.step, loaded.state["episode"], torn) == (step, step, [])
        assert loaded.part("agent")["weight"].tolist() == [step, step]
        assert copy.added == ring.added
        assert torch.equal(copy.rows, ring.rows)


def test_each_transition_is_written_once_and_removed_when_no_kept_checkpoint_needs_it(tmp_path):
    store, ring = CheckpointStore(tmp_path, keep=1), replay(capacity=6)
    written = []
    for step in range(1, 6):
        fill(ring, 3)
        save(store, ring, step)
        written.append(sorted(path.name for path in (tmp_path / "replay").iterdir()))
    assert [name.split(".")[0] for name in written[1]] == [
        "rows_000000000000_000000000003",
        "rows_000000000003_000000000006",
    ]
    # the ring holds six transitions: two files, and the older ones are gone
    assert [name.split(".")[0] for name in written[-1]] == [
        "rows_000000000009_000000000012",
        "rows_000000000012_000000000015",
    ]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000000005"]


def damage_tensors(path):
    content = (path / "tensors.safetensors").read_bytes()
    (path / "tensors.safetensors").write_bytes(content[:-3])


def flip_one_bit(path):
    """Change the last weight; the file stays a valid one of the same length."""
    content = bytearray((path / "tensors.safetensors").read_bytes())
    content[-4] ^= 1
    (path / "tensors.safetensors").write_bytes(content)


def flip_one_bit_of_the_replay(path):
    newest = sorted((path.parent.parent / "replay").iterdir())[-1]
    content = bytearray(newest.read_bytes())
    content[-4] ^= 1
    newest.write_bytes(content)


def damage_state(path):
    (path / "state.json").write_text('{"format": 1, "segm')


def remove_rows(path):
    newest = sorted((path.parent.parent / "replay").iterdir())[-1]
    newest.unlink()


def other_format(path):
    (path / "state.json").write_bytes(sealed(unsealed(path / "state.json") | {"format": 99}))


DAMAGES = [damage_tensors, flip_one_bit, flip_one_bit_of_the_replay, damage_state, remove_rows, other_format]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_torn_checkpoint_is_reported_and_the_one_before_is_used(tmp_path, damage):
    store, ring = CheckpointStore(tmp_path, keep=3), replay()
    for step in (1, 2):
        fill(ring, 2)
        save(store, ring, step)
    damage(tmp_path / "checkpoints" / "step_000000002")
    copy = replay()
    loaded, torn = CheckpointStore(tmp_path, keep=3).load(copy)
    assert loaded.step == 1
    assert copy.added == 2
    assert len(torn) == 1
    assert "step_000000002 is skipped" in torn[0]


def test_a_run_of_which_no_checkpoint_is_whole_is_refused_and_left_alone(tmp_path):
    ring = replay()
    fill(ring, 2)
    save(CheckpointStore(tmp_path, keep=2), ring, 1)
    damage_tensors(tmp_path / "checkpoints" / "step_000000001")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="no checkpoint in .* can be read"):
        CheckpointStore(tmp_path, keep=2).load(replay())
    assert sorted(tmp_path.rglob("*")) == before


def test_a_pickled_payload_is_refused_and_not_executed(tmp_path):
    ring, touched = replay(), tmp_path / "executed"
    fill(ring, 2)
    save(CheckpointStore(tmp_path, keep=2), ring, 1)
    path = tmp_path / "checkpoints" / "step_000000001"
    (path / "tensors.safetensors").write_bytes(pickle.dumps(Payload(touched)))
    state = unsealed(path / "state.json")
    state["tensors"] = fingerprint(path / "tensors.safetensors")  # a checksum proves no good will
    (path / "state.json").write_bytes(sealed(state))
    with pytest.raises(UserError, match="no checkpoint in .* can be read"):
        CheckpointStore(tmp_path, keep=2).load(replay())
    (tmp_path / "agent.safetensors").write_bytes(pickle.dumps(Payload(touched)))
    with pytest.raises(UserError, match="not a safetensors file"):
        load_tensors(tmp_path / "agent.safetensors")
    assert not touched.exists()


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    store, ring = CheckpointStore(tmp_path, keep=2), replay()
    fill(ring, 2)
    save(store, ring, 1)

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_file", full)
    fill(ring, 2)
    with pytest.raises(UserError, match="step 2 .*No space left on device; the one before is kept"):
        save(store, ring, 2)
    copy = replay()
    loaded, torn = CheckpointStore(tmp_path, keep=2).load(copy)
    assert (loaded.step, copy.added, torn) == (1, 2, [])
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000000001"]
