"""Agents on images against the update written out by hand (tests/by_hand_pixels.py), from a replay of episodes."""

import numpy as np
import pytest
import torch

from by_hand_pixels import PixelAlgorithm1
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.nn.compilation import compiler
from pessimism.training.build import build_agent, build_replay
from pessimism.types import Batch, Transition

ACT, BATCH, UPDATES, STACK = 2, 5, 2, 2
STEPS = (0, 1000, 4000)  # of the environment; noise and optimism decay until 2000
SMALL = {
    "env": "any",
    "target_entropy": -1.5,
    "lr": 1e-3,
    "tau": 0.1,
    "discount": 0.9,
    "hidden": 12,
    "critic": {"hidden": 12},
    "pixels": {"filters": 3, "features": 6},
    "batch_size": BATCH,
    "replay_capacity": 200,
    "compile": False,
}
SCHEDULES = {"noise": (0.6, 0.1, 2000)}
LEARNED = {"pessimism": {"lr": 0.05, "optimism": 0.4, "optimism_steps": 2000}}
PRESETS = {
    "gpl-drq": ("learned", SCHEDULES | LEARNED | {"critic": {"members": 3}}),
    "gpl-drq-anneal": ("learned", SCHEDULES | LEARNED),
    "drqv2": ("minimum", SCHEDULES),
    "sac-pixels": ("minimum", {"alpha_lr": 1e-2}),
    "curl": ("minimum", {"alpha_lr": 1e-2}),
}


def settings(preset):
    return validated(merge(merge(preset_values(preset), SMALL), PRESETS[preset][1]))


def image_size(config):
    return 25 if config.pixels.augmentation == "crop" else 21


def episodes(size, seed=0):
    """Return four short episodes; two terminate, two are cut. All actions differ."""
    draw = np.random.default_rng(seed)
    for length, terminated in ((9, True), (7, False), (2, True), (8, False)):
        frames = draw.integers(0, 256, (length + 1, size, size, 3), dtype=np.uint8)
        actions = draw.uniform(-1, 1, (length, ACT)).astype(np.float32)
        yield frames, actions, draw.normal(size=length), terminated


def stack(frames, index):
    """Return the newest frames, the first one repeated where the episode has not had enough."""
    return np.stack([frames[max(0, index - back)] for back in range(STACK - 1, -1, -1)])


def fill(replay, size):
    """Store the episodes; return what a batch must say of each action that was stored."""
    expected = {}
    for frames, actions, rewards, terminated in episodes(size):
        length = len(actions)
        for t in range(length):
            last = t == length - 1
            over, cut = last and terminated, last and not terminated
            obs, next_obs = stack(frames, t), stack(frames, t + 1)
            replay.add(Transition(obs, actions[t], float(rewards[t]), over, next_obs, cut))
            ahead = range(t, min(t + replay.n_step, length))
            total = sum(0.9 ** (k - t) * rewards[k] for k in ahead)
            end = ahead[-1] + 1
            discount = 0.0 if terminated and end == length else 0.9 ** len(ahead)
            expected[actions[t].tobytes()] = (obs, actions[t], [total], [discount], stack(frames, end))
    return expected


def looked_up(batch, expected):
    """Return the batch as the stored episodes say it must be."""
    rows = [[expected[action.numpy().tobytes()] for action in update] for update in batch.action]
    fields = (
        [torch.stack([torch.from_numpy(np.array(row[k])) for row in update]) for update in rows] for k in range(5)
    )
    return Batch(*(torch.stack(field) for field in fields))


def draws(agent):
    """Return the windows and the noise that the agent's next update will draw."""
    generator = torch.Generator()
    generator.set_state(agent.generator.get_state())

    def place():
        return torch.randint(agent.crop.places, (BATCH, 2), generator=generator)

    def noise():
        return torch.randn(BATCH, ACT, generator=generator)

    views = [(place(), place(), noise(), place() if agent.contrast else None) for _ in range(UPDATES)]
    return views, noise()


def assert_close(ours, by_hand, name):
    torch.testing.assert_close(
        ours.detach().double(), by_hand.detach(), atol=1e-5, rtol=1e-5, msg=lambda text: f"{name}: {text}"
    )


def assert_same_state(agent, reference):
    critics = (
        ("critic", reference.critics, reference.trunk),
        ("target", reference.targets, reference.target_trunk),
    )
    for (part, members, trunk), ours in zip(critics, (agent.critic, agent.target_critic), strict=True):
        for name, weight in ours.heads.named_parameters(prefix="heads"):
            assert_close(weight, torch.stack([member[name] for member in members]), f"{part}.{name}")
        for name, weight in ours.trunk.named_parameters():
            assert_close(weight, trunk[name], f"{part}.trunk.{name}")
    encoders = [(agent.encoder, reference.encoder), (agent.target_encoder, reference.target_encoder)]
    for ours, weights in encoders if agent.target_encoder else encoders[:1]:
        for name, weight in ours.named_parameters():
            assert_close(weight, weights[name], f"encoder.{name}")
    for name, weight in agent.actor.trunk.named_parameters():
        assert_close(weight, reference.policy_trunk[name], f"policy.trunk.{name}")
    for weight, expected in zip(agent.actor.policy.parameters(), reference.policy.weights, strict=True):
        assert_close(weight, expected, "policy")
    assert_close(agent.alpha, reference.log_alpha.exp(), "alpha")
    if reference.rule == "learned":
        assert_close(agent.pessimism.beta, reference.beta, "beta")
    if agent.contrast:
        assert_close(agent.contrast.weight, reference.similarity, "similarity")


def build(config):
    """Build as a run does; target weights are not the others."""
    size = image_size(config)
    agent = build_agent(config, (STACK, size, size, 3), ACT)
    generator = torch.Generator().manual_seed(3)
    targets = (agent.target_critic, *([agent.target_encoder] if agent.target_encoder else []))
    with torch.no_grad():
        for weight in (w for part in (*targets, agent.critic, agent.actor) for w in part.parameters()):
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator))
    return agent, build_replay(config, (STACK, size, size, 3), ACT)


@pytest.mark.parametrize("preset", PRESETS)
def test_update_from_images_is_the_one_by_hand(preset):
    """Both windows, n-step returns, noise schedule, encoder, trunks, target averages, policy, alpha and beta."""
    config = settings(preset)
    agent, replay = build(config)
    expected = fill(replay, image_size(config))
    reference = PixelAlgorithm1(agent, PRESETS[preset][0], config)
    for step in STEPS:
        batch, (views, noise) = replay.sample(UPDATES, BATCH), draws(agent)
        by_hand = looked_up(batch, expected)
        metrics = agent.update(batch, step)
        found = reference.environment_step(by_hand, views, noise, step)
        assert_same_state(agent, reference)
        for name in metrics.keys() & found.keys():
            assert_close(metrics[name], found[name], name)
    assert {"train/critic_loss", "train/td_error"} <= metrics.keys()
    obs, action = batch.obs[0], batch.action[0]
    features = reference.features(reference.encoder, obs, agent.crop.centre(BATCH))
    values = reference.values(reference.critics, reference.trunk, features, action.double())
    assert_close(agent.value(obs, action), sum(values) / len(values), "value()")


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("preset", ["gpl-drq-anneal", "curl"])
def test_compiled_update_from_images_is_the_one_by_hand(preset, monkeypatch):
    monkeypatch.setitem(SMALL, "compile", True)
    test_update_from_images_is_the_one_by_hand(preset)
