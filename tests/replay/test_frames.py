"""Frames kept once: stacks and windows at episode ends, wrap-around, what may be sampled, and exact return."""

from itertools import pairwise

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import UniformAgent
from pessimism.envs.control import ControlEnv
from pessimism.envs.frames import viewed
from pessimism.errors import UserError
from pessimism.replay.frames import FrameReplay
from pessimism.training.bias import BiasMeter
from pessimism.training.checkpoint import Checkpoint, CheckpointStore
from pessimism.training.evaluate import Evaluator
from pessimism.training.loop import Budget, Every, Trainer
from pessimism.types import Transition

GAMMA = 0.5
RUNNING, TERMINATED, TRUNCATED = "running", "terminated", "truncated"


def make(capacity=100, n_step=3, stack=3, file=None):
    generator = torch.Generator().manual_seed(0)
    shape = {"stack": stack, "action_size": 1, "discount": GAMMA, "n_step": n_step}
    return FrameReplay(capacity, (2, 2, 1), **shape, generator=generator, file=file)


def frame(number):
    return np.full((2, 2, 1), number, np.uint8)


def stacked(episode, index, stack):
    """The last frames up to `index`, the episode's first repeated before its beginning."""
    return [episode[max(index - back, 0)] for back in range(stack - 1, -1, -1)]


def steps(frames, end, stack=3):
    """The transitions of an episode of these frames; the action is a tenth and the reward ten times the frame."""
    for index, (now, _) in enumerate(pairwise(frames)):
        obs, following = (np.stack([frame(f) for f in stacked(frames, i, stack)]) for i in (index, index + 1))
        over = index == len(frames) - 2
        action = np.array([now / 10], np.float32)
        ends = over and end == TERMINATED, over and end == TRUNCATED
        yield Transition(obs, action, 10.0 * now, ends[0], following, ends[1])


def store(replay, *episodes):
    for frames, end in episodes:
        for transition in steps(frames, end, replay.stack):
            replay.add(transition)
    return replay


def everything(replay):
    """What sampling gives out, over so many draws that nothing possible is left out."""
    batch = replay.sample(1, 60 * max(1, len(replay)))
    assert all((side == side[..., :1, :1, :1]).all() for side in (batch.obs, batch.next_obs))  # frames stay whole
    fields = zip(*(field[0].tolist() for field in (batch.action, batch.reward, batch.discount)), strict=True)
    obs, next_obs = (side[0, :, :, 0, 0, 0].tolist() for side in (batch.obs, batch.next_obs))
    return {
        (tuple(before), round(10 * action), reward, discount, tuple(after))
        for before, ([action], [reward], [discount]), after in zip(obs, fields, next_obs, strict=True)
    }


def test_a_terminated_a_truncated_and_a_running_episode():
    replay = store(make(), ([1, 2, 3, 4, 5], TERMINATED), ([6, 7, 8], TRUNCATED), ([9, 10, 11, 12, 13], RUNNING))
    # stack, first action, sum of 0.5**j r, 0.5**k or 0, stack after the window
    assert everything(replay) == {
        ((1, 1, 1), 1, 10 + 10 + 7.5, 0.125, (2, 3, 4)),
        ((1, 1, 2), 2, 20 + 15 + 10, 0, (3, 4, 5)),
        ((1, 2, 3), 3, 30 + 20, 0, (3, 4, 5)),
        ((2, 3, 4), 4, 40, 0, (3, 4, 5)),
        ((6, 6, 6), 6, 60 + 35, 0.25, (6, 7, 8)),
        ((6, 6, 7), 7, 70, 0.5, (6, 7, 8)),
        ((9, 9, 9), 9, 90 + 50 + 27.5, 0.125, (10, 11, 12)),  # 10 waits for the frame of 13
    }


def test_windows_of_one_step():
    replay = store(make(n_step=1), ([1, 2, 3], TERMINATED), ([4, 5], TRUNCATED), ([6, 7, 8], RUNNING))
    assert everything(replay) == {
        ((1, 1, 1), 1, 10, 0.5, (1, 1, 2)),
        ((1, 1, 2), 2, 20, 0, (1, 2, 3)),
        ((4, 4, 4), 4, 40, 0.5, (4, 4, 5)),
        ((6, 6, 6), 6, 60, 0.5, (6, 6, 7)),
    }


def test_what_has_lost_a_frame_to_the_wrap_is_not_sampled():
    # thirteen slots in a ring of eight: 1 to 5 are overwritten, 8 is the oldest stack of a whole history
    replay = store(make(capacity=8), ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], TRUNCATED), ([11, 12, 13], TERMINATED))
    assert replay.added == 13
    assert everything(replay) == {
        ((6, 7, 8), 8, 80 + 45, 0.25, (8, 9, 10)),
        ((7, 8, 9), 9, 90, 0.5, (8, 9, 10)),
        ((11, 11, 11), 11, 110 + 60, 0, (11, 12, 13)),
        ((11, 11, 12), 12, 120, 0, (11, 12, 13)),
    }


def test_an_episode_longer_than_the_ring():
    replay = store(make(capacity=6), (list(range(1, 12)), RUNNING))  # the slots of 5 to 10 are there
    assert everything(replay) == {((5, 6, 7), 7, 70 + 40 + 22.5, 0.125, (8, 9, 10))}


def test_each_valid_transition_is_as_likely_as_the_others():
    replay = store(make(capacity=8), ([1, 2, 3, 4, 5, 6], TERMINATED), ([7, 8, 9], TRUNCATED))
    actions = (10 * replay.sample(10, 4000).action).round().flatten().long()
    counts = torch.bincount(actions, minlength=10)
    assert counts.nonzero().flatten().tolist() == [4, 5, 7, 8]
    # four standard deviations of a binomial of 40,000 draws at 1/4: 4 * sqrt(40000 * 3 / 16) = 346
    assert (counts[[4, 5, 7, 8]] - 10_000).abs().max() < 346


def test_a_batch_has_one_axis_for_the_updates():
    batch = store(make(), ([1, 2, 3, 4], TRUNCATED)).sample(4, 5)
    assert batch.obs.shape == batch.next_obs.shape == (4, 5, 3, 2, 2, 1)
    assert batch.obs.dtype == batch.next_obs.dtype == torch.uint8
    assert batch.action.shape == batch.reward.shape == batch.discount.shape == (4, 5, 1)
    assert batch.action.dtype == batch.reward.dtype == batch.discount.dtype == torch.float32


def test_pixels_and_channels_keep_their_places():
    replay = FrameReplay(
        9, (2, 3, 3), stack=2, action_size=2, discount=GAMMA, n_step=1, generator=torch.Generator()
    )
    obs = np.arange(36, dtype=np.uint8).reshape(2, 2, 3, 3)
    obs[0] = obs[1]
    following = np.stack([obs[1], 100 + obs[1]])
    replay.add(Transition(obs, np.array([0.5, -0.5], np.float32), 1.0, False, following, True))
    batch = replay.sample(1, 1)
    assert np.array_equal(batch.obs[0, 0].numpy(), obs)
    assert np.array_equal(batch.next_obs[0, 0].numpy(), following)
    assert batch.action.flatten().tolist() == [0.5, -0.5]


def test_learning_before_a_window_is_complete_is_refused_in_one_line():
    with pytest.raises(UserError, match="no transition of 3 steps is complete after 2 environment steps"):
        store(make(), ([1, 2, 3], RUNNING)).sample(1, 1)


def test_a_ring_that_can_never_hold_a_transition_is_refused():
    with pytest.raises(ValueError, match="hold no transition"):
        make(capacity=5)


class Naive:
    """All episodes as lists of (slot, frame, transition), and the rules of the ring in plain words."""

    def __init__(self, capacity, n_step, stack):
        self.capacity, self.n_step, self.stack = capacity, n_step, stack
        self.episodes, self.slots = [], 0

    def add(self, frames, end):
        stored = len(frames) - (end == RUNNING)  # the last frame of a running episode waits for its action
        self.episodes.append((frames, end, self.slots, stored))
        self.slots += stored

    def everything(self):
        return {
            self.transition(frames, end, index)
            for frames, end, first, stored in self.episodes
            for index in range(len(frames) - 1)
            if first + max(index - self.stack + 1, 0) >= self.slots - self.capacity
            and (end != RUNNING or index + self.n_step < stored)
        }

    def transition(self, frames, end, index):
        last = min(index + self.n_step, len(frames) - 1)
        reward = sum(GAMMA**j * 10 * frames[index + j] for j in range(last - index))
        discount = 0 if end == TERMINATED and last == len(frames) - 1 else GAMMA ** (last - index)
        before, after = (tuple(stacked(frames, i, self.stack)) for i in (index, last))
        return before, frames[index], reward, discount, after


@given(
    lengths=st.lists(st.integers(1, 7), max_size=6),
    ends=st.lists(st.sampled_from([TERMINATED, TRUNCATED]), min_size=6, max_size=6),
    running=st.integers(0, 9),
    capacity=st.integers(6, 20),
    n_step=st.integers(1, 3),
    stack=st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_any_history_gives_what_plain_lists_give(*, lengths, ends, running, capacity, n_step, stack):
    replay, naive = make(capacity, n_step, stack), Naive(capacity, n_step, stack)
    plan = [*zip(lengths, ends[: len(lengths)], strict=True), *([(running, RUNNING)] if running else [])]
    first = 1
    for length, end in plan:
        frames = list(range(first, first + length + 1))
        first += length + 1
        store(replay, (frames, end))
        naive.add(frames, end)
    expected = naive.everything()
    assert len(replay) == len(expected)
    if expected:
        assert everything(replay) == expected


def play(replay, first, last):
    """Steps `first` to `last` of an endless history of episodes of seven steps, every other of them terminated."""
    for step in range(first, last):
        number, index = divmod(step, 7)
        frames = [8 * (number % 20) + i for i in range(8)]
        replay.add(list(steps(frames, TRUNCATED if number % 2 else TERMINATED))[index])


@pytest.mark.parametrize("cuts", [(3, 4, 6), (5, 12, 19, 26), (7, 14, 21), (40, 45), (33,)])
def test_a_run_cut_anywhere_samples_the_same_batches_also_from_a_file(tmp_path, cuts):
    """In mid-episode, between episodes, before and after the ring of twenty slots has wrapped around."""
    source, done = make(capacity=20), 0
    store, resumed = CheckpointStore(tmp_path, keep=2), make(capacity=20, file=tmp_path / "ring")
    for cut in cuts:
        play(source, done, cut)
        play(resumed, done, cut)
        done = cut
        store.save(Checkpoint(cut, {}, {}), resumed)
        store, resumed = CheckpointStore(tmp_path, keep=2), make(capacity=20, file=tmp_path / "ring")
        store.load(resumed)
    play(source, done, done + 6)
    play(resumed, done, done + 6)
    assert resumed.added == source.added
    for before, after in zip(source.sample(2, 50), resumed.sample(2, 50), strict=True):
        assert torch.equal(before, after)


def test_a_checkpoint_writes_only_the_new_slots(tmp_path):
    store, replay = CheckpointStore(tmp_path, keep=1), make(capacity=20)
    for first, cut in ((0, 7), (7, 11), (11, 14)):
        play(replay, first, cut)
        store.save(Checkpoint(cut, {}, {}), replay)
    # seven steps and a final frame, four steps, three steps and a final frame
    spans = [path.stem.split("_")[1:] for path in sorted((tmp_path / "replay").iterdir())]
    assert [[int(n) for n in span] for span in spans] == [[0, 8], [8, 12], [12, 16]]


def test_rows_of_another_width_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        make().append_rows(torch.zeros(1, 3, dtype=torch.uint8))


def test_the_file_is_made_for_the_first_frame_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "ring"
    replay = make(file=path)
    path.write_text("of another program")
    with pytest.raises(UserError, match="ring exists: the replay's file must be a new one"):
        play(replay, 0, 1)
    assert path.read_text() == "of another program"
    path.unlink()
    play(replay, 0, 5)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="cannot make the replay's file .*: No such file or directory"):
        play(make(file=tmp_path / "missing" / "ring"), 0, 1)


def test_a_million_frames_fit_in_22_gigabytes_and_a_tenth_in_a_tenth():
    shape = {"stack": 3, "action_size": 21, "discount": 0.99, "n_step": 3}  # the humanoid's
    for capacity, most in ((1_000_000, 22e9), (100_000, 2.2e9)):
        replay = FrameReplay(capacity, (84, 84, 3), **shape, generator=torch.Generator())
        assert capacity * 84 * 84 * 3 < replay.nbytes <= most


class Images(gymnasium.Env):
    """Grey 2 x 2 images, each of a random shade; cut after seven steps, and every third episode terminates."""

    observation_space = spaces.Box(0, 255, (2, 2, 1), np.uint8)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.falls = 0, seed % 3 == 0
        return self._image(), {}

    def step(self, action):
        self.time += 1
        over = self.time == 7
        return self._image(), float(action[0]), over and self.falls, over and not self.falls, {}

    def _image(self):
        return frame(self.np_random.integers(256))


class Listener(UniformAgent):
    """Remembers its batches."""

    def __init__(self):
        super().__init__(lambda obs: obs.flatten(1).mean(1, keepdim=True))
        self.batches = []

    def update(self, batch, step, *, policy=True):
        self.batches.append((step, batch))
        return {}


def images():
    return ControlEnv(viewed(Images(), 3, "images"), "images", images=True)


def loop(steps):
    budget = Budget(steps, 5, 2, 4, *[Every(0)] * 4, update_every=2)
    parts = {"agent": Listener(), "replay": make(capacity=20), "env": images(), "budget": budget}
    return Trainer(**parts, seed=0, generators={})


def test_the_loop_on_images_resumes_exactly_from_mid_episode(tmp_path):
    whole, cut, resumed = loop(60), loop(31), loop(60)
    whole.run()
    store = CheckpointStore(tmp_path, keep=1)
    cut.hooks.save = lambda checkpoint: store.save(checkpoint, cut.replay)
    cut.run()
    assert cut.progress.actions, "the cut is to be in mid-episode"
    checkpoint, _ = CheckpointStore(tmp_path, keep=1).load(resumed.replay)
    resumed.restore(checkpoint)
    resumed.run()
    batches = cut.agent.batches + resumed.agent.batches
    assert [step for step, _ in batches] == [step for step, _ in whole.agent.batches] == list(range(6, 61, 2))
    for (_, before), (_, after) in zip(whole.agent.batches, batches, strict=True):
        assert all(torch.equal(*fields) for fields in zip(before, after, strict=True))


def test_evaluation_and_bias_meter_see_stacks():
    agent = Listener()
    evaluation = Evaluator(images, 2, seed=0)(agent, 1)
    assert (evaluation.returns, evaluation.lengths) == ([0.0, 0.0], [7, 7])
    assert BiasMeter(images, 2, 0, tail=0.1, discount=GAMMA)(agent, 1).states > 0
