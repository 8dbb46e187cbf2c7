"""What a run needs is estimated, and refused in one line, before anything is written."""

import shutil
from pathlib import Path

import pytest
import torch

from pessimism.config.schema import Config
from pessimism.errors import UserError
from pessimism.replay.frames import FrameReplay
from pessimism.replay.transitions import TransitionReplay
from pessimism.training import resources as module
from pessimism.training.resources import LOGS_BYTES, Needs, check_disk, estimate_needs


def config(steps):
    return Config(env="Hopper-v4", steps=steps, checkpoint={"every": 1000, "keep": 2})


def test_states_in_memory_with_the_files_of_the_kept_checkpoints():
    replay = TransitionReplay(10_000, 11, 3, 0.99, torch.Generator())  # rows of 27 floats
    assert estimate_needs(config(4_000), replay) == Needs(4_000, 432_000, 0, 432_000 + LOGS_BYTES, None)
    assert estimate_needs(config(50_000), replay) == Needs(10_000, 1_080_000, 0, 12_000 * 108 + LOGS_BYTES, None)


def test_frames_in_a_file(tmp_path):
    shape = {"stack": 3, "action_size": 6, "discount": 0.99, "n_step": 3, "generator": torch.Generator()}
    replay = FrameReplay(100_000, (84, 84, 3), **shape, file=Path("ring"))
    needs = estimate_needs(config(1_000_000), replay)
    # frame, ten floats, two numbers of eight bytes
    assert needs.ring == 100_000 * (84 * 84 * 3 + 40 + 16) == 2_122_400_000
    assert str(needs) == "replay of up to 100000 transitions: 2122.4 MB in ring"
    run = tmp_path / "run"
    (run / "replay").mkdir(parents=True)
    (run / "replay" / "rows").write_bytes(bytes(1000))  # which is there already
    assert needs.places(run) == [(run, 102_000 * 21_224 + LOGS_BYTES - 1000), (Path("ring"), 2_122_400_000)]


def test_memory_counts_what_is_not_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "free_memory", lambda: 2_000)
    Needs(1, 2_000, 0, 0, None).check(tmp_path)
    Needs(1, 9_000, 2_000, 0, tmp_path / "ring").check(tmp_path)
    with pytest.raises(UserError, match=r"needs up to 3\.0 GB of memory and 0\.0 GB are free: give a smaller"):
        Needs(1, 2_000, 3_000_000_000 - 2_000, 0, None).check(tmp_path)


def test_free_memory_is_what_the_system_says_within_the_containers_limit(tmp_path, monkeypatch):
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    monkeypatch.setattr(module, "MEMINFO", meminfo)
    monkeypatch.setattr(module, "GROUP_LIMIT", limit)
    assert module.free_memory() > 0
    meminfo.write_text("MemTotal:  900 kB\nMemAvailable:     300 kB\nHugePages_Total:       0\n")
    assert module.free_memory() == 300 * 1024
    limit.write_text("max\n")
    assert module.free_memory() == 300 * 1024
    limit.write_text("1000\n")
    assert module.free_memory() == 1000


def test_a_place_that_cannot_be_used_is_left_to_who_takes_it(tmp_path):
    Needs(1, 2_000, 0, 0, None).check(tmp_path / ("long" * 100))


def test_needs_on_one_disk_add_up(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    check_disk([(tmp_path / "new" / "run", free // 3), (tmp_path / "ring", free // 3)])
    with pytest.raises(UserError, match="of disk and .* free: give another --out or a smaller --replay-capacity"):
        check_disk([(tmp_path / "new" / "run", 2 * (free // 3)), (tmp_path / "ring", 2 * (free // 3))])
