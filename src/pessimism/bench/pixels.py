"""`pessimism bench --pixels`: one update of GPL-DrQ against the published style of DrQ-v2, and sampling."""

import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pessimism.bench.published import PublishedDrQ
from pessimism.bench.report import PUBLISHED
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.replay.frames import FrameReplay
from pessimism.training.build import build_agent
from pessimism.types import Batch

if TYPE_CHECKING:
    from pessimism.bench.worker import Setting, Step


SIZE, STACK, COLOURS, STEPS = 84, 3, 3, 3  # DrQ-v2's images and returns
BATCHES = 3  # sampled before the first update, and used in turn


def pixel_step(setting: "Setting") -> "Step":
    """Return one update of a contestant, or the sampling of its batch."""
    torch.manual_seed(0)
    replay = full_replay(setting)
    name = setting.contestant.removeprefix("pixels-")
    if name == "sampling":
        return lambda: replay.sample(1, setting.batch)
    batches = itertools.cycle([replay.sample(1, setting.batch) for _ in range(BATCHES)])
    if name == PUBLISHED:
        return published_step(setting, batches)
    agent = pixel_agent(name, setting)
    steps = itertools.count(1)
    return lambda: agent.update(next(batches), next(steps))


def full_replay(setting: "Setting") -> FrameReplay:
    """Return a replay full of noise: one endless episode."""
    replay = FrameReplay(
        setting.replay,
        (SIZE, SIZE, COLOURS),
        stack=STACK,
        action_size=setting.action_size,
        discount=0.99,
        n_step=STEPS,
        generator=torch.Generator().manual_seed(0),
    )
    facts = torch.zeros(setting.replay, replay.facts.shape[1])
    facts[:, : setting.action_size] = torch.rand(setting.replay, setting.action_size) * 2 - 1
    facts[:, setting.action_size] = torch.rand(setting.replay)
    facts[:, -1] = torch.arange(setting.replay).clamp(max=STACK - 1)
    frames = torch.randint(0, 256, (setting.replay, SIZE * SIZE * COLOURS), dtype=torch.uint8)
    replay.append_rows(torch.cat([frames, facts.view(torch.uint8)], dim=1))
    return replay


def pixel_agent(name: str, setting: "Setting") -> Any:  # noqa: ANN401
    """Return an agent of a preset, at its published size."""
    preset, eager = name.removesuffix("-eager"), name.endswith("-eager")
    changes = {"env": "any", "target_entropy": 0.0, "compile": not eager}
    config = validated(merge(preset_values(preset), changes))
    return build_agent(config, (STACK, SIZE, SIZE, COLOURS), setting.action_size)


def published_step(setting: "Setting", batches: "itertools.cycle[Batch]") -> "Step":
    """Return one update in the published style, from images as its replay would hold them."""
    agent = PublishedDrQ(SIZE, setting.action_size)
    stacked = itertools.cycle([channels_first(next(batches)) for _ in range(BATCHES)])

    def draw() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        places = (torch.randint(9, (setting.batch, 2)), torch.randint(9, (setting.batch, 2)))
        return places, (
            torch.randn(setting.batch, setting.action_size),
            torch.randn(setting.batch, setting.action_size),
        )

    return lambda: agent.update(next(stacked), *draw(), std=1.0)


def channels_first(batch: Batch) -> Batch:
    """Return the batch of one update with images [B, stack * C, H, W]."""
    batch = batch.at(0)
    obs, next_obs = (
        frames.permute(0, 1, 4, 2, 3).flatten(1, 2).contiguous() for frames in (batch.obs, batch.next_obs)
    )
    return batch._replace(obs=obs, next_obs=next_obs)
