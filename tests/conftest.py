"""Shared by all tests: one thread, so that tests beside each other do not fight, and a place of their own."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread_in_a_temporary_place(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small():
    """Settings under which a run takes about a second."""
    return {
        "env": "Hopper-v4",
        "steps": 120,
        "random_steps": 40,
        "updates_per_step": 2,
        "batch_size": 16,
        "hidden": 16,
        "critic": {"hidden": 16, "members": 3},
        "compile": False,
        "threads": 1,
        "evaluation": {"every": 50, "episodes": 2},
        "bias": {"every": 60, "episodes": 2},
        "checkpoint": {"every": 25},
        "log": {"every": 10, "tensorboard": False},
    }
