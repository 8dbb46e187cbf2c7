"""REDQ against a reference written out with one plain network per critic, and the draw of its subset."""

import copy
import itertools
import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from pessimism.agents.critic_learner import td_target
from pessimism.config.resolve import merge, parse_options, preset_values, validated
from pessimism.errors import UserError
from pessimism.strategies import ClippedMinimum, SubsetMinimum
from pessimism.training.build import build_agent
from pessimism.types import Batch

OBS, ACTION, BATCH = 4, 2, 8


def redq_agent(**changes):
    small = {"env": "any", "target_entropy": -1.0, "hidden": 16, "critic": {"hidden": 16}, "compile": False}
    return build_agent(validated(merge(merge(preset_values("redq"), small), changes)), (OBS,), ACTION)


def random_batch(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    discount = 0.99 * (torch.rand(BATCH, 1, generator=generator) < 0.8)
    return Batch(normal(BATCH, OBS), normal(BATCH, ACTION).tanh(), normal(BATCH, 1), discount, normal(BATCH, OBS))


def plain_networks(critic):
    """Return each member as the plain network that REDQ's own code would hold."""
    members = []
    for index in range(len(critic.head.weight)):
        layers = []
        for layer in (critic.body[0], critic.body[2], critic.head):
            inputs, outputs = layer.weight.shape[1:]
            linear = nn.Linear(inputs, outputs)
            with torch.no_grad():
                linear.weight.copy_(layer.weight[index].mT)
                linear.bias.copy_(layer.bias[index, 0])
            layers += [linear, nn.ReLU()]
        members.append(nn.Sequential(*layers[:-1]))
    return members


def policy_by_hand(actor, obs, noise):
    """Return action and log-probability in the textbook form, in double precision."""
    net = copy.deepcopy(actor.net).double()
    mean, log_std = net(obs.double()).chunk(2, dim=-1)
    log_std = log_std.clamp(-20, 2)
    raw = mean + log_std.exp() * noise
    action = raw.tanh()
    log_prob = torch.distributions.Normal(mean, log_std.exp()).log_prob(raw) - (1 - action.square()).log()
    return action, log_prob.sum(-1, keepdim=True)


def test_the_documented_command_for_maxmin_takes_the_minimum_in_the_target_and_the_mean_for_the_policy():
    page = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text()
    words = re.search(r"MaxMin.*?`redq --env Ant-v4 ([^`]*)`", page)[1].split()
    asked, _ = parse_options(["--env", "Ant-v4", *words])
    rule = redq_agent(pessimism=asked["pessimism"]).pessimism
    values = torch.randn(10, 5, 1, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        rule.redraw()
        torch.testing.assert_close(rule.target_value(values), values.amin(0))
        torch.testing.assert_close(rule.actor_value(values), values.mean(0))


def test_target_loss_and_gradients_equal_the_reference():
    agent = redq_agent()
    generator = torch.Generator().manual_seed(0)
    batch = random_batch(generator)
    noise = torch.randn(BATCH, ACTION, generator=generator)
    agent.pessimism.redraw()
    subset = (~agent.pessimism.left_out).flatten().nonzero().flatten().tolist()
    assert len(subset) == 2

    with torch.no_grad():
        next_action, log_prob = policy_by_hand(agent.actor, batch.next_obs, noise)
        targets = plain_networks(agent.target_critic)
        pair = torch.cat((batch.next_obs, next_action.float()), dim=-1)
        smallest = torch.minimum(*(targets[index](pair) for index in subset))
        expected_target = batch.reward + batch.discount * (smallest - 1.0 * log_prob.float())  # alpha = 1
    critics = plain_networks(agent.critic)
    inputs = torch.cat((batch.obs, batch.action), dim=-1)
    predictions = torch.cat([critic(inputs) for critic in critics], dim=1)  # [B, N]
    expected_loss = nn.functional.mse_loss(predictions, expected_target.expand(-1, 10)) * 10
    expected_loss.backward()

    action, our_log_prob = agent.actor.sample(batch.next_obs, noise)
    with torch.no_grad():
        next_values = agent.target_critic(batch.next_obs, action)
        target = td_target(agent.pessimism, batch, next_values, -agent.alpha * our_log_prob)
    loss = agent.learner.td_loss(agent.critic(batch.obs, batch.action), target)
    gradients = torch.autograd.grad(loss, list(agent.critic.parameters()))
    torch.testing.assert_close(target, expected_target, atol=1e-5, rtol=1e-5)
    # REDQ's loss has no factor 1/2 and this library's has one, which Adam does not see.
    torch.testing.assert_close(2 * loss, expected_loss, atol=1e-5, rtol=1e-5)
    places = itertools.product((0, 2, 4), ("weight", "bias"))
    for gradient, (layer, name) in zip(gradients, places, strict=True):
        expected = torch.stack([getattr(critic[layer], name).grad for critic in critics])
        expected = expected.mT if name == "weight" else expected.unsqueeze(1)
        torch.testing.assert_close(2 * gradient, expected, atol=1e-5, rtol=1e-5)


def test_policy_loss_climbs_the_mean_of_all_critics():
    agent = redq_agent()
    generator = torch.Generator().manual_seed(1)
    obs = torch.randn(BATCH, OBS, generator=generator)
    noise = torch.randn(BATCH, ACTION, generator=generator)
    action, log_prob = policy_by_hand(agent.actor, obs, noise)
    pair = torch.cat((obs, action.float()), dim=-1)
    values = torch.stack([critic(pair) for critic in plain_networks(agent.critic)])
    expected = (log_prob.float() - values.mean(0)).mean()
    metrics = agent._update_actor(obs, noise)
    torch.testing.assert_close(metrics["train/actor_loss"], expected, atol=1e-5, rtol=1e-5)


def test_weights_are_xavier_uniform_and_biases_zero():
    agent = redq_agent(hidden=256, critic={"hidden": 256})
    weight = agent.critic.body[2].weight
    bound = math.sqrt(6 / 512)
    assert weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.01)
    last = agent.actor.net[4].weight  # two heads of 2 actions each: bounds from 258, not 260
    assert math.sqrt(6 / 260) < last.abs().max() <= math.sqrt(6 / 258)
    assert not any(p.any() for name, p in agent.critic.named_parameters() if name.endswith("bias"))


def test_subset_is_redrawn_uniformly_without_replacement():
    rule = SubsetMinimum(5, 2, generator=torch.Generator().manual_seed(0))
    counts = torch.zeros(5)
    for _ in range(2000):
        rule.redraw()
        assert (~rule.left_out).sum() == 2
        counts += (~rule.left_out).flatten()
    assert (counts / 2000 - 0.4).abs().max() < 0.04


def test_fractional_subset_draws_one_more_that_often():
    rule = SubsetMinimum(5, 1.25, generator=torch.Generator().manual_seed(0))
    sizes = []
    for _ in range(2000):
        rule.redraw()
        sizes.append(int((~rule.left_out).sum()))
    assert set(sizes) == {1, 2}
    assert sizes.count(2) / 2000 == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("atoms", [1, 3])
def test_whole_ensemble_as_subset_is_the_clipped_minimum(atoms):
    values = torch.randn(4, 6, atoms, generator=torch.Generator().manual_seed(0))
    rule = SubsetMinimum(4, 4)
    assert torch.equal(rule.target_value(values), ClippedMinimum().target_value(values))


def test_minimum_of_the_chosen_on_literals():
    rule = SubsetMinimum(3, 2)
    rule.left_out.copy_(torch.tensor([True, False, False]).view(3, 1, 1))
    values = torch.tensor([[[1.0], [9.0]], [[5.0], [2.0]], [[4.0], [3.0]]])
    assert rule.target_value(values).tolist() == [[4.0], [2.0]]
    torch.testing.assert_close(rule.actor_value(values), torch.tensor([[10 / 3], [14 / 3]]))


def six_batches(generator):
    six = [random_batch(generator) for _ in range(6)]
    return Batch(*(torch.stack(fields) for fields in zip(*six, strict=True)))


def test_the_subset_changes_within_a_step():
    agent = redq_agent()
    generator = torch.Generator().manual_seed(0)
    batches = six_batches(generator)
    seen = []
    redraw = agent.pessimism.redraw

    def watched():
        redraw()
        seen.append(tuple(agent.pessimism.left_out.flatten().tolist()))

    agent.pessimism.redraw = watched
    agent.update(batches, 0)
    assert len(seen) == 6
    assert len(set(seen)) > 1


@pytest.mark.slow
def test_compiled_update_sees_each_new_subset():
    eager, compiled = redq_agent(), redq_agent(compile=True)
    generator = torch.Generator().manual_seed(0)
    batches = six_batches(generator)
    for step in range(2):
        eager.update(batches, step)
        compiled.update(batches, step)
    for name, tensor in eager.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[name], tensor, atol=1e-5, rtol=1e-4, msg=name)


def test_subset_larger_than_the_ensemble_is_refused():
    with pytest.raises(UserError, match=r"^pessimism.subset = 3 cannot be drawn from 2 critics$"):
        redq_agent(pessimism={"subset": 3}, critic={"members": 2, "hidden": 8})
    with pytest.raises(UserError, match=r"pessimism.subset.*greater than or equal to 1"):
        redq_agent(pessimism={"subset": 0})
