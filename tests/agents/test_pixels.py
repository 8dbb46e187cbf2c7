"""Agents on images: augmentation, parity with the published update, and GPL inside it."""

import math

import numpy as np
import pytest
import torch

from pessimism import GPLDrQ
from pessimism.bench.published import PublishedDrQ, grid_shift
from pessimism.config.presets import PIXEL_PRESETS
from pessimism.config.resolve import merge, nested, preset_values, validated
from pessimism.errors import UserError
from pessimism.nn.actor import NoisyActor
from pessimism.nn.compilation import compiler
from pessimism.nn.encoder import Contrast, ConvEncoder, Crop
from pessimism.training.build import build_agent, linear
from pessimism.training.run import assemble, run
from pessimism.types import Batch
from sameness import assert_same_run, final_tensors
from waiting import NoWaiting

ACTION, COUNT = 2, 6


def config(name, **changes):
    values = preset_values(name, "dmc/reacher-easy")
    changes = {"env": "dmc/reacher-easy", "target_entropy": -2.0, "compile": False, "hidden": 32} | changes
    for path, value in {"critic.hidden": 32, **changes}.items():
        values = merge(values, nested(path, value))
    return validated(values)


def batch(size=84, updates=1, seed=0):
    draw = torch.Generator().manual_seed(seed)
    obs, next_obs = (
        torch.randint(0, 256, (updates, COUNT, 3, size, size, 3), dtype=torch.uint8, generator=draw)
        for _ in range(2)
    )
    action, reward = (torch.rand(updates, COUNT, width, generator=draw) for width in (ACTION, 1))
    return Batch(obs, 2 * action - 1, reward, torch.full_like(reward, 0.97), next_obs)


def channels_first(frames):
    return frames.permute(0, 1, 4, 2, 3).flatten(1, 2)


def agent(name, **changes):
    return build_agent(config(name, **changes), (3, 84, 84, 3), ACTION)


def test_shift_on_literals():
    image = torch.arange(1, 10, dtype=torch.uint8).view(1, 1, 3, 3, 1)  # 1 2 3 / 4 5 6 / 7 8 9
    shift = Crop(3, 3, padding=1, places=3)
    places = {(1, 1): [[1, 2, 3], [4, 5, 6], [7, 8, 9]], (0, 2): [[2, 3, 3], [2, 3, 3], [5, 6, 6]]}
    for place, expected in places.items():
        assert shift(image, torch.tensor([place]))[0, 0].tolist() == expected


def test_crop_on_literals():
    image = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4, 1)
    crop = Crop(4, 2, padding=0, places=2)
    assert crop(image, torch.tensor([[1, 0]]))[0, 0].tolist() == [[4, 5], [8, 9]]
    assert crop(image, crop.centre(1))[0, 0].tolist() == [[5, 6], [9, 10]]


def test_frames_become_channels_oldest_first():
    frames = torch.zeros(1, 3, 2, 2, 3, dtype=torch.uint8)
    frames[0, 0, ..., 1], frames[0, 2, ..., 0] = 7, 9
    still = Crop(2, 2, padding=0, places=1)
    assert still(frames, still.centre(1))[0, :, 0, 0].tolist() == [0, 7, 0, 0, 0, 0, 9, 0, 0]


def test_every_place_is_drawn_and_no_other():
    for crop, places in ((Crop(84, 84, 4, 9), 9), (Crop(100, 84, 0, 16), 16)):
        drawn = crop.draw(2000, torch.Generator().manual_seed(0))
        assert sorted(set(drawn.flatten().tolist())) == list(range(places))


def test_shift_is_grid_sampling_at_whole_pixels():
    frames = batch().obs[0]
    shift = Crop(84, 84, padding=4, places=9)
    places = shift.draw(COUNT, torch.Generator().manual_seed(1))
    sampled = grid_shift(channels_first(frames).float(), places)
    assert torch.allclose(shift(frames, places).float(), sampled, atol=2e-2)  # of 255: float32 grid points


def test_encoder_sizes():
    assert ConvEncoder(9, 84).features == 39200
    images = torch.zeros(2, 9, 64, 64, dtype=torch.uint8)
    encoder = ConvEncoder(9, 64)
    assert encoder(images).shape == (2, encoder.features)


def copied_into_published(ours):
    """Return the published style with the weights of our agent."""
    published = PublishedDrQ(84, ACTION, hidden=32)
    for layer, convolution in zip(ours.encoder.layers, published.encoder[::2], strict=True):
        convolution.load_state_dict(layer.state_dict())
    for trunk, other in ((ours.actor.trunk, published.actor[0]), (ours.critic.trunk, published.critic.trunk)):
        weight = trunk.linear.weight.detach().view(50, 35, 35, 32).permute(0, 3, 1, 2).flatten(1)
        other[0].load_state_dict({"weight": weight, "bias": trunk.linear.bias})
        other[1].load_state_dict(trunk.norm.state_dict())
    published.actor[1].load_state_dict(ours.actor.policy.net.state_dict())
    for index, head in enumerate((published.critic.first, published.critic.second)):
        layers = (ours.critic.heads.body[0], ours.critic.heads.body[2], ours.critic.heads.head)
        for layer, linear_layer in zip(layers, head[::2], strict=True):
            state = {"weight": layer.weight[index].detach().mT, "bias": layer.bias[index, 0].detach()}
            linear_layer.load_state_dict(state)
    published.target.load_state_dict(published.critic.state_dict())
    return published


def draws(ours):
    """Return the windows and the noise that the agent's next update will draw."""
    state = ours.generator.get_state()
    views, noise = ours._views(COUNT), ours._noise((COUNT,), ours.generator)
    ours.generator.set_state(state)
    return (views.place, views.next_place), (views.noise, noise)


def first_gradients(optimizer):
    """Return what an optimizer's first step was given: Adam's first moment is then 0.1 of it."""
    moments = optimizer.means if hasattr(optimizer, "means") else [s["exp_avg"] for s in optimizer.state.values()]
    return [10 * moment for moment in moments]


@pytest.mark.parametrize("rule", ["minimum", "fixed"])
def test_drqv2_is_the_published_update(rule):
    """Loss, gradients and moved targets of one update; GPL with a fixed beta of 0.5 is DrQ-v2."""
    ours = agent("drqv2", **{"pessimism": {"name": rule}, "noise": (0.5, 0.5, 1)})
    published = copied_into_published(ours)
    data, (places, noises) = batch(), draws(ours)
    metrics = ours.update(data, 1)
    obs, next_obs = (
        ours.crop(frames[0], place).float() for frames, place in zip((data.obs, data.next_obs), places, strict=True)
    )
    loss = published.learn(data.at(0)._replace(obs=obs, next_obs=next_obs), noises, 0.5)
    assert float(metrics["train/critic_loss"]) == pytest.approx(float(loss), rel=1e-5)
    encoder, critic, actor = map(first_gradients, published.optimizers)
    mine = first_gradients(ours.critic_optimizer)
    pairs = [*zip(mine[:8], encoder, strict=True)]  # the convolutions' weights and biases
    pairs += [(mine[9], critic[1]), *zip(mine[10:12], critic[2:4], strict=True)]  # the trunk's bias and norm
    pairs += [(mine[9 + 3 + 4][1].mT, critic[4 + 6 + 4]), (mine[9 + 3][0].mT, critic[4])]  # two of the heads'
    pairs += [*zip(first_gradients(ours.actor_optimizer)[4:], actor[4:], strict=True)]  # all of the policy's layers
    for gradient, expected in pairs:
        assert gradient.shape == expected.shape
        assert torch.allclose(gradient, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    for index, head in enumerate((published.target.first, published.target.second)):
        assert torch.allclose(ours.target_critic.heads.body[2].weight[index].mT, head[2].weight, atol=1e-6)


@torch.no_grad()
def test_noisy_policy_clips_noise_in_updates_only():
    actor = NoisyActor(3, 1, 8, noise=linear(2.0, 1.0, 10), clip=0.3)
    obs, noise = torch.zeros(1, 3), torch.tensor([[0.4]])
    assert float(actor.mode(obs)) == 0.0
    assert float(actor.sample(obs, noise)[0]) == pytest.approx(0.8)
    assert float(actor.sample_for_update(obs, noise)[0]) == pytest.approx(0.3)
    assert float(actor.sample(obs, -10 * noise)[0]) == pytest.approx(-1 + 1e-6, abs=1e-7)
    actor.advance(5)
    assert float(actor.std) == pytest.approx(1.5)


def test_gradients_pass_the_bounds_straight():
    actor = NoisyActor(2, 1, 8, noise=linear(1.0, 1.0, 1))
    for layer in actor.net[::2]:
        torch.nn.init.constant_(layer.weight, 0.5)
    action, _ = actor.sample(torch.ones(1, 2), torch.tensor([[5.0]]))
    (gradient,) = torch.autograd.grad(action.sum(), [actor.net[4].bias])
    assert float(gradient) == pytest.approx(1 - float(actor.mode(torch.ones(1, 2)).detach()) ** 2)


@torch.no_grad()
def test_contrast_on_literals():
    contrast = Contrast(2)
    torch.nn.init.eye_(contrast.weight)
    anchor = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    expected = (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(-4))) / 2
    assert float(contrast(anchor, torch.tensor([[1.0, 0.0], [0.0, 2.0]]))) == pytest.approx(expected)


@pytest.mark.parametrize("name", PIXEL_PRESETS)
def test_every_agent_learns_something(name):
    settings = config(name)
    ours = build_agent(settings, (3, settings.pixels.size, settings.pixels.size, 3), ACTION)
    before = {key: value.clone() for key, value in ours.state_dict().items()}
    data = batch(settings.pixels.size, settings.updates_per_step)
    with NoWaiting(ours):
        metrics = ours.update(data, 1)
    assert all(torch.isfinite(value).all() for value in metrics.values())
    after = ours.state_dict()
    moved = ("encoder.layers.0.weight", "actor.trunk.linear.weight", "critic.heads.head.weight")
    assert all(not torch.equal(before[key], after[key]) for key in moved)
    assert ("train/contrast_loss" in metrics) == (name == "curl")
    action = ours.mode(data.obs[0])
    assert action.shape == (COUNT, ACTION)
    assert ours.value(data.obs[0], action).shape == (COUNT, 1)


def test_target_critics_move_once_per_policy_update_in_pixel_sac():
    ours = agent("sac-pixels")
    bias = ours.target_critic.heads.head.bias.clone()
    ours.update(batch(updates=2), 1)
    expected = bias + 0.01 * (ours.critic.heads.head.bias - bias)
    assert torch.allclose(ours.target_critic.heads.head.bias, expected)
    trunk = 0.05 * ours.critic.trunk.linear.bias  # both began at zero
    assert torch.allclose(ours.target_critic.trunk.linear.bias, trunk)


def test_learned_beta_follows_the_td_errors():
    ours = agent("gpl-drq", **{"pessimism.lr": 0.1})
    data = batch()
    high = data._replace(reward=data.reward + 100)
    for step in range(3):
        ours.update(high, step + 1)
    assert float(ours.pessimism.beta.detach()) > 0.6  # targets above predictions: more pessimism


def test_annealing_is_tied_to_the_noise():
    for env, decay in (("dmc/cheetah-run", 500_000), ("walker_walk", 100_000), ("dmc/humanoid-run", 2_000_000)):
        values = preset_values("gpl-drq-anneal", env)
        assert values["noise"][2] == values["pessimism"]["optimism_steps"] == decay


def test_overrides_by_task():
    walker, quadruped = (preset_values("gpl-drq", f"dmc/{task}") for task in ("walker-run", "quadruped-run"))
    assert (walker["n_step"], walker["batch_size"]) == (1, 512)
    assert (quadruped["replay_capacity"], quadruped["n_step"], quadruped["batch_size"]) == (100_000, 3, 256)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("drqv2", {"alpha": 1.0}, "alpha = 0 is for the noisy policy"),
        ("drqv2", {"observation": "truncated"}, "need a task's states"),
        ("drqv2", {"pixels.contrastive": True}, "set pixels.encoder_tau"),
    ],
)
def test_what_does_not_fit_is_refused(name, changes, words):
    with pytest.raises(UserError, match=words):
        config(name, **changes)


def test_images_must_be_square():
    with pytest.raises(UserError, match="84 x 96 pixels: the encoder takes square ones"):
        build_agent(config("drqv2"), (3, 84, 96, 3), ACTION)


DRAWN = {
    "env": "pessimism.envs.toys:pessimism-toys/DrawnLine-v0",
    "env_kwargs": {"max_episode_steps": 14},
    "steps": 90,
    "random_steps": 20,
    "batch_size": 8,
    "replay_capacity": 50,  # the ring goes round
    "pixels": {"filters": 4, "features": 8},
    "hidden": 8,
    "critic": {"hidden": 8},
    "compile": False,
    "threads": 1,
    "evaluation": {"every": 30, "episodes": 2},
    "bias": {"every": 45, "episodes": 2},
    "log": {"every": 10, "tensorboard": False},
    "checkpoint": {"every": 25},
}


def drawn(name, **changes):
    return validated(merge(merge(preset_values(name), DRAWN), changes))


@pytest.mark.parametrize("name", PIXEL_PRESETS)
def test_a_run_on_images_cut_into_pieces_is_the_same_run(name, tmp_path):
    for steps in (15, 21, 52, 90):  # before learning starts, at its start, within an episode, the end
        assert run(drawn(name, steps=steps), tmp_path / "pieces").finished
    assert run(drawn(name), tmp_path / "whole").finished
    assert_same_run(tmp_path / "whole", tmp_path / "pieces")


def test_frames_in_a_file_give_the_same_run(tmp_path):
    run(drawn("gpl-drq"), tmp_path / "memory")
    run(drawn("gpl-drq", replay_file=str(tmp_path / "frames")), tmp_path / "file")
    first, second = (final_tensors(tmp_path / out) for out in ("memory", "file"))
    assert all(first[name].equal(second[name]) for name in first)


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_compiled_and_plain_updates_agree():
    data, agents = batch(), [agent("gpl-drq", compile=compile) for compile in (False, True)]
    for step in range(1, 3):
        plain, compiled = (one.update(data, step) for one in agents)
        for name, value in plain.items():
            assert torch.allclose(value, compiled[name], rtol=1e-3, atol=1e-5), name


@pytest.mark.slow
def test_a_real_task_is_learned_from():
    """A task of the paper from its images: stepped, stored, stacked, learned from, evaluated, measured."""
    small = DRAWN | {"env": "dmc/reacher-easy", "env_kwargs": {}, "steps": 28, "pixels": {"size": 48}}
    small |= {"evaluation": {"every": 0}, "bias": {"every": 0}, "replay_capacity": 1000}
    assembly = assemble(validated(merge(preset_values("gpl-drq", "dmc/reacher-easy"), small)))
    before = {key: tensor.clone() for key, tensor in assembly.agent.state_dict().items()}
    assembly.trainer.run()
    after = assembly.agent.state_dict()
    assert all(tensor.isfinite().all() for key, tensor in after.items() if key != "log_alpha")
    for part in ("encoder.layers.0.weight", "actor.trunk.linear.weight", "pessimism.beta"):
        assert not torch.equal(before[part], after[part]), part
    stored = assembly.trainer.replay.sample(1, 4)
    assert stored.obs.shape == (1, 4, 3, 48, 48, 3)
    assert stored.obs.float().std() > 10  # something is drawn


def test_agents_on_images_from_python(tmp_path):
    model = GPLDrQ(
        "pessimism.envs.toys:pessimism-toys/DrawnLine-v0",
        **{k: v for k, v in DRAWN.items() if k not in ("env", "steps")},
    )
    model.learn(30)
    obs = model.assembly.trainer.env.reset(0)
    action, _ = model.predict(obs, deterministic=True)
    again = GPLDrQ.load(model.save(tmp_path / "agent.safetensors"))
    assert again.predict(obs, deterministic=True)[0] == pytest.approx(action)
    assert model.predict(np.stack([obs, obs]))[0].shape == (2, 1)
