"""Prior data in the replay: windows as a run stores them, and what batches consist of."""

import numpy as np
import pytest
import torch

from pessimism.replay.prior import PriorReplay, Recorded
from pessimism.replay.transitions import TransitionReplay
from pessimism.types import Transition

ENDS = {2: "terminated", 3: "truncated", 8: "truncated", 11: "terminated"}


def steps(count=12):
    """Return steps of episodes with 3, 1, 5 and 3 steps, and as online transitions."""
    random = np.random.default_rng(0)
    obs, next_obs = random.normal(size=(2, count, 2)).astype(np.float32)
    action, reward = random.uniform(-1, 1, (count, 1)).astype(np.float32), random.normal(size=count)
    terminated = np.array([ENDS.get(index) == "terminated" for index in range(count)])
    ended = np.array([index in ENDS for index in range(count)])
    online = [
        Transition(obs[i], action[i], float(reward[i]), bool(terminated[i]), next_obs[i], bool(ended[i]))
        for i in range(count)
    ]
    return Recorded(obs, action, reward, terminated, ended, next_obs), online


@pytest.mark.parametrize("n_step", [1, 2, 3, 7])
def test_windows_are_those_that_a_run_stores(n_step):
    recorded, online = steps()
    replay = TransitionReplay(20, 2, 1, 0.9, torch.Generator(), n_step=n_step)
    for transition in online:
        replay.add(transition)
    assert torch.equal(recorded.rows(0.9, n_step), replay.newest(replay.added))


def test_windows_on_literals():
    obs, column = np.arange(3, dtype=np.float32)[:, None], np.zeros((3, 1), np.float32)
    flags = (np.array([False, False, True]), np.array([False, False, True]))
    rows = Recorded(obs, column, np.array([1.0, 2.0, 4.0]), *flags, obs + 1).rows(0.5, 2)
    assert rows[:, 2:].tolist() == [[2, 0.25, 2], [4, 0, 3], [4, 0, 3]]  # reward, discount, next observation


def mixed(own, share=0.5, held_out_every=0):
    """Return a replay with prior rewards of 1 and so many transitions of its own with rewards of 2, 3, ..."""
    prior = torch.ones(4, 5)
    options = {"prior": prior, "share": share, "held_out_every": held_out_every}
    replay = PriorReplay(100, 1, 1, 0.9, torch.Generator().manual_seed(0), **options)
    zero = np.zeros(1, np.float32)
    for index in range(own):
        replay.add(Transition(zero, zero, 2.0 + index, False, zero))
    return replay


@pytest.mark.parametrize(("share", "count"), [(0.5, 8), (0.25, 4), (1.0, 16), (0.1, 2)])
def test_each_batch_has_its_share_of_prior_data(share, count):
    batch = mixed(50, share).sample(5, 16)
    assert batch.obs.shape == (5, 16, 1)
    assert (batch.reward == 1).sum(dim=1).flatten().tolist() == [count] * 5


def test_prior_data_are_drawn_evenly():
    replay = mixed(50)
    replay.prior = torch.arange(4.0)[:, None].expand(4, 5)
    drawn = replay.sample(200, 16).obs[:, :8].flatten().long().bincount()
    assert drawn.tolist() == pytest.approx([400] * 4, rel=0.15)


@pytest.mark.parametrize(("own", "count"), [(0, 16), (1, 15), (5, 11), (8, 8), (9, 8)])
def test_prior_data_fill_the_place_of_transitions_that_are_not_there_yet(own, count):
    batch = mixed(own).sample(3, 16)
    assert (batch.reward == 1).sum(dim=1).flatten().tolist() == [count] * 3


def test_transitions_held_out_are_not_drawn():
    assert (mixed(1, held_out_every=4).sample(2, 8).reward == 1).all()  # the only one is held out
    replay = mixed(9, held_out_every=4)
    assert set(replay.sample(50, 8).reward.flatten().tolist()) == {1, 3, 4, 5, 7, 8, 9}  # not 2, 6, 10
    assert (replay.held_out(20).reward > 1).all()


def test_a_checksum_is_of_every_number():
    recorded, _ = steps()
    assert recorded.checksum == steps()[0].checksum
    for field in range(6):
        changed = [array.copy() for array in recorded]
        changed[field].flat[3] = not changed[field].flat[3] if field in (3, 4) else changed[field].flat[3] + 1
        assert Recorded(*changed).checksum != recorded.checksum, field
