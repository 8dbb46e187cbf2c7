"""The ring: order, wrap-around, termination, sampling."""

import numpy as np
import pytest
import torch

from pessimism.errors import UserError
from pessimism.replay.transitions import TransitionReplay
from pessimism.types import Transition


def filled(count, capacity=5, discount=0.9):
    replay = TransitionReplay(capacity, 2, 1, discount, torch.Generator().manual_seed(0))
    for index in range(count):
        obs, following = np.full(2, index, np.float32), np.full(2, index + 1, np.float32)
        replay.add(Transition(obs, np.array([index / 10], np.float32), float(index), index % 3 == 2, following))
    return replay


def test_rows_hold_what_was_stored():
    row = filled(3).newest(1)[0]
    # obs, action, reward, discount (terminated: 0), next_obs
    assert row.tolist() == pytest.approx([2, 2, 0.2, 2, 0, 3, 3])


def test_termination_stops_the_bootstrap_and_nothing_else_does():
    assert filled(5).newest(5)[:, 4].tolist() == pytest.approx([0.9, 0.9, 0, 0.9, 0.9])


def test_the_oldest_make_room():
    replay = filled(8)
    assert len(replay) == 5
    assert replay.newest(5)[:, 3].tolist() == [3, 4, 5, 6, 7]


def test_sampled_batches_are_whole_transitions():
    batch = filled(8).sample(updates=4, batch_size=6)
    assert batch.obs.shape == (4, 6, 2)
    assert batch.reward.shape == (4, 6, 1)
    torch.testing.assert_close(batch.next_obs, batch.obs + 1)
    torch.testing.assert_close(batch.reward[..., 0], batch.obs[..., 0])
    torch.testing.assert_close(batch.action[..., 0], batch.obs[..., 0] / 10)
    assert set(batch.reward.flatten().tolist()) == {3, 4, 5, 6, 7}


def test_a_replay_that_is_not_full_gives_only_what_it_has():
    assert set(filled(2).sample(10, 10).reward.flatten().tolist()) == {0, 1}


@pytest.mark.parametrize("cut", [0, 1, 3, 5])
def test_rows_given_out_and_taken_back_make_the_same_replay(cut):
    source, copy = filled(9), TransitionReplay(5, 2, 1, 0.9, torch.Generator())
    rows = source.newest(5)
    copy.added = 4  # the rows 4 to 8 are still in the ring
    copy.append_rows(rows[:cut])
    copy.append_rows(rows[cut:])
    assert torch.equal(copy.rows, source.rows)


def test_rows_of_another_width_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        filled(1).append_rows(torch.zeros(1, 3))


def test_a_million_humanoid_transitions_fit_in_four_gigabytes():
    replay = TransitionReplay(1_000_000, 376, 17, 0.99, torch.Generator())  # memory is taken as it fills
    assert replay.nbytes < 4e9


def test_a_ring_that_no_machine_can_hold_is_one_line():
    replay = TransitionReplay(10**13, 376, 17, 0.99, torch.Generator())
    with pytest.raises(UserError, match="hands out no .* GB for 10000000000000 transitions: give a smaller"):
        replay.newest(0)
