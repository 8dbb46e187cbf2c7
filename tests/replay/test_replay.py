"""The ring: order, wrap-around, termination, sampling."""

import numpy as np
import pytest
import torch

from pessimism.errors import UserError
from pessimism.replay.transitions import TransitionReplay, draw, draw_held_out
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


def test_new_transitions_replace_the_oldest():
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
def test_saved_and_restored_rows_make_the_same_replay(cut):
    source, copy = filled(9), TransitionReplay(5, 2, 1, 0.9, torch.Generator())
    rows = source.newest(5)
    copy.restart(4)  # the rows 4 to 8 are still in the ring
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
    with pytest.raises(UserError, match="has no .* GB of memory for 10000000000000 transitions: give a smaller"):
        replay.newest(0)


# --- held out ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("valid", [range(17), range(1, 17), range(5, 23), range(7, 30), range(8, 12)])
@pytest.mark.parametrize("every", [2, 4, 7])
def test_held_out_and_sampled_transitions_together_are_all(valid, every):
    generator = torch.Generator().manual_seed(0)
    given = set(draw(valid, 2000, generator, every).tolist())
    assert given == {number for number in valid if number % every}
    held = draw_held_out(valid, 2000, generator, every)
    assert (set() if held is None else set(held.tolist())) == {number for number in valid if number % every == 0}


def test_without_a_held_out_share_all_transitions_are_sampled():
    assert set(draw(range(3, 9), 500, torch.Generator().manual_seed(0), 0).tolist()) == set(range(3, 9))
    assert filled(8).held_out(4) is None


def test_a_full_ring_keeps_held_out_and_sampled_transitions_apart():
    replay = filled(12, capacity=8)
    replay.held_out_every = 3
    assert set(replay.sample(50, 10).reward.flatten().tolist()) == {4.0, 5.0, 7.0, 8.0, 10.0, 11.0}
    held = replay.held_out(100)
    assert held.obs.shape == (100, 2)
    assert set(held.reward.flatten().tolist()) == {6.0, 9.0}


# --- windows of several steps ---


def stored(rewards, end, n_step=3):
    """A replay with discount 1/2 after an episode with these rewards and the first step of the next.

    Observations are the number of the step, and 100 in the next episode.
    """
    replay = TransitionReplay(10, 1, 1, 0.5, torch.Generator(), n_step=n_step)
    for index, reward in enumerate(rewards):
        last = index == len(rewards) - 1
        ended = {"terminated": last and end == "terminated", "truncated": last and end == "truncated"}
        replay.add(transition(index, reward, **ended))
    replay.add(transition(100, 1000.0))
    return replay


def transition(index, reward, terminated=False, truncated=False):
    obs, action = np.array([index], np.float32), np.array([index / 10], np.float32)
    return Transition(obs, action, reward, terminated, obs + 1, truncated)


@pytest.mark.parametrize(
    ("end", "discounts"),
    [("terminated", [0.125, 0.0, 0.0, 0.0]), ("truncated", [0.125, 0.125, 0.25, 0.5])],
)
def test_windows_of_three_steps_on_literals(end, discounts):
    replay = stored([1.0, 2.0, 4.0, 8.0], end)
    obs, action, reward, discount, next_obs = replay.newest(replay.added).unbind(1)
    assert obs.tolist() == [0, 1, 2, 3]
    assert action.tolist() == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert reward.tolist() == [1 + 2 / 2 + 4 / 4, 2 + 4 / 2 + 8 / 4, 4 + 8 / 2, 8]
    assert discount.tolist() == discounts
    assert next_obs.tolist() == [3, 4, 4, 4]


def test_an_episode_shorter_than_the_window_is_stored_whole():
    replay = stored([1.0, 2.0], "terminated")
    assert replay.newest(replay.added)[:, 2:].tolist() == [[2, 0, 2], [2, 0, 2]]


def test_one_step_is_stored_at_once():
    assert stored([1.0, 2.0], "truncated", n_step=1).newest(3)[:, 2:].tolist() == [
        [1, 0.5, 1],
        [2, 0.5, 2],
        [1000, 0.5, 101],
    ]


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_a_window_cut_by_a_checkpoint_resumes_exactly(cut):
    steps = [transition(index, 0.1 * index, truncated=index == 3) for index in range(7)]
    whole, cut_one, resumed = (TransitionReplay(10, 1, 1, 0.9, torch.Generator(), n_step=3) for _ in range(3))
    for step in steps:
        whole.add(step)
    for step in steps[:cut]:
        cut_one.add(step)
    resumed.append_rows(cut_one.newest(cut_one.added))
    resumed.load_state_dict(cut_one.state_dict())
    assert [step.reward for step in resumed.window] == [step.reward for step in cut_one.window]
    for step in steps[cut:]:
        resumed.add(step)
    assert torch.equal(resumed.rows, whole.rows)
    assert torch.equal(resumed.state_dict()["window"], whole.state_dict()["window"])


def test_learning_before_a_window_is_full_is_one_line():
    replay = TransitionReplay(10, 1, 1, 0.9, torch.Generator(), n_step=3)
    replay.add(transition(0, 1.0))
    with pytest.raises(UserError, match="^no transition of 3 steps is complete after 1 environment steps: .* 4 or"):
        replay.sample(1, 1)


def test_rows_can_be_in_a_file(tmp_path):
    file = tmp_path / "rows"
    replay = TransitionReplay(10, 1, 1, 0.9, torch.Generator(), file=file)
    replay.add(transition(3, 1.0))
    assert replay.newest(1)[0].tolist() == pytest.approx([3, 0.3, 1, 0.9, 4])
    assert not file.exists()  # it has no name any more
    file.touch()
    with pytest.raises(UserError, match="rows exists: the replay's file must be a new one"):
        TransitionReplay(10, 1, 1, 0.9, torch.Generator(), file=file).newest(0)
