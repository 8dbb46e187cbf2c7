"""XQC's and DroQ's layers and networks, against torch's own, separate networks and their definitions."""

import pytest
import torch
from torch import nn

from pessimism.nn.backbones import DroQCritic, XQCActor, XQCCritic
from pessimism.nn.critic import Pairs
from pessimism.nn.ensemble import EnsembleBatchNorm, EnsembleDropout, UnitHead, UnitLinear
from pessimism.values import Atoms, expectation


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def pairs(batch=16):
    return Pairs(draw(batch, 3), draw(batch, 2, seed=1), draw(batch, 3, seed=2) + 1, draw(batch, 2, seed=3))


def buffers(module):
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


def changed(module, before):
    return {name for name, buffer in module.named_buffers() if not torch.equal(buffer, before[name])}


def test_batch_norm_is_torchs_member_by_member():
    layer, inputs = EnsembleBatchNorm(2, 5), 3 * draw(2, 16, 5) + 1
    nn.init.normal_(layer.gain)
    nn.init.normal_(layer.bias)
    outputs = layer(inputs, by_batch=True)
    for member in range(2):
        gain, bias = layer.gain[member, 0], layer.bias[member, 0]
        expected = nn.functional.batch_norm(
            inputs[member], None, None, weight=gain, bias=bias, training=True, eps=1e-3
        )
        torch.testing.assert_close(outputs[member], expected)


def test_running_statistics_follow_the_batches_with_the_variance_of_the_batch_itself():
    layer, inputs = EnsembleBatchNorm(1, 1, momentum=0.9), torch.tensor([[[1.0], [3.0]]])
    layer(inputs, by_batch=True)  # mean 2, variance 1 (not 2, the unbiased one)
    assert layer.running_mean.item() == pytest.approx(0.2)
    assert layer.running_var.item() == pytest.approx(1.0)
    layer(inputs + 5, by_batch=True)
    assert layer.running_mean.item() == pytest.approx(0.9 * 0.2 + 0.1 * 7)


def test_running_statistics_normalise_one_observation_and_stay():
    layer = EnsembleBatchNorm(1, 1)
    layer.running_mean.fill_(2.0)
    layer.running_var.fill_(4.0 - 1e-3)
    before = buffers(layer)
    assert layer(torch.tensor([[[5.0]]]), by_batch=False).item() == pytest.approx(1.5)
    assert not changed(layer, before)


@pytest.mark.parametrize("form", [UnitLinear, UnitHead])
def test_units_have_length_one_from_the_start_and_after_each_projection(form):
    layer = form(2, 6, 4)
    torch.testing.assert_close(layer.weight.norm(dim=1), torch.ones(2, 4))
    direction = layer.weight.detach().clone()
    with torch.no_grad():
        layer.weight.mul_(torch.tensor([0.5, 1.0, 2.0, 3.0]))
    layer.normalise_()
    torch.testing.assert_close(layer.weight, direction)


def test_dropout_drops_at_its_rate_and_keeps_the_mean():
    layer = EnsembleDropout(0.1)
    outputs = torch.stack([layer(torch.ones(2, 50, 40)) for _ in range(50)])
    assert outputs.unique().tolist() == [0.0, pytest.approx(1 / 0.9)]
    dropped = (outputs == 0).float()
    assert dropped.mean().item() == pytest.approx(0.1, abs=4 * (0.09 / 200_000) ** 0.5)
    together = (dropped[1:] * dropped[:-1]).mean().item()  # successive masks are independent
    assert together == pytest.approx(0.01, abs=4 * (0.01 / 200_000) ** 0.5)
    by_place = dropped.mean(dim=0)  # and no place is special
    assert by_place.max().item() < 0.1 + 6 * (0.09 / 50) ** 0.5


def test_dropout_masks_are_part_of_the_state():
    one, two, inputs = EnsembleDropout(0.5), EnsembleDropout(0.5), torch.ones(1, 8, 8)
    one(inputs)
    assert not torch.equal(one(inputs), one(inputs))
    two.load_state_dict(one.state_dict())
    assert torch.equal(one(inputs), two(inputs))


def test_compiled_dropout_has_the_same_masks():
    eager, graph, inputs = EnsembleDropout(0.3), EnsembleDropout(0.3), torch.ones(2, 16, 16)
    graph.load_state_dict(eager.state_dict())
    call = torch.compile(graph, fullgraph=True, dynamic=False)
    for _ in range(3):
        assert torch.equal(eager(inputs), call(inputs))


def reference_xqc(critic, member, inputs):
    """One member as ordinary layers, normalised by the rows that it is given."""
    for layer in critic.body:
        if isinstance(layer, EnsembleBatchNorm):
            gain, bias = layer.gain[member, 0], layer.bias[member, 0]
            inputs = (inputs - inputs.mean(0)) / (inputs.var(0, correction=0) + 1e-3).sqrt() * gain + bias
        else:
            inputs = inputs.relu() if isinstance(layer, nn.ReLU) else inputs @ layer.weight[member]
    return inputs @ critic.head.weight[member] + critic.head.bias[member]


def test_xqc_normalises_current_and_next_pairs_as_one_batch():
    critic, both = XQCCritic(5, hidden=8, atoms=4), pairs()
    for parameter in critic.parameters():
        nn.init.normal_(parameter)
    rows = torch.cat([torch.cat([both.obs, both.action], 1), torch.cat([both.next_obs, both.next_action], 1)])
    current, following = critic.current(both), critic.following(both)
    for member in range(2):
        log_probs = reference_xqc(critic, member, rows).log_softmax(-1)
        torch.testing.assert_close(current.log_weight[member], log_probs[:16], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(following.log_weight[member], log_probs[16:], atol=1e-4, rtol=1e-4)
    assert current.location[0, 0].tolist() == pytest.approx([-5, -5 / 3, 5 / 3, 5])


def test_xqc_has_the_published_layers():
    shapes = [tuple(parameter.shape[1:]) for parameter in XQCCritic(5).body.parameters()]
    norm = [(1, 512), (1, 512)]
    assert shapes == [(1, 5), (1, 5), (5, 512), *norm, *3 * [(512, 512), *norm]]
    assert XQCCritic(5).head.weight.shape == (2, 512, 101)


def test_evaluation_changes_no_statistics_and_updates_do():
    critic, both = XQCCritic(5, hidden=8, atoms=4), pairs()
    before = buffers(critic)
    critic(both.obs, both.action)
    critic.judged(both.obs, both.action)
    assert not changed(critic, before)
    critic.current(both)
    assert changed(critic, before) == set(before) - {"read.support"}


def test_evaluation_of_one_pair_is_that_of_the_pair_in_a_batch():
    critic, both = XQCCritic(5, hidden=8, atoms=4), pairs()
    critic.current(both)
    whole, single = critic(both.obs, both.action), critic(both.obs[:1], both.action[:1])
    torch.testing.assert_close(single.log_weight, whole.log_weight[:, :1])


def test_target_critics_have_the_statistics_and_keep_their_own():
    critic, both = XQCCritic(5, hidden=8, atoms=4), pairs()
    critic.current(both)
    target = critic.averaged()
    assert not changed(target, buffers(critic))
    before = buffers(critic)
    target.following(both)
    assert not changed(critic, before)
    assert not any(parameter.requires_grad for parameter in target.parameters())


def test_xqc_projects_all_layers():
    critic = XQCCritic(5, hidden=8, atoms=4)
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter.mul_(3)
    critic.normalise_()
    for layer in (*critic.body, critic.head):
        if hasattr(layer, "weight"):
            assert layer.weight.norm(dim=1).mean().item() == pytest.approx(1.0)


def test_droq_is_linear_dropout_layer_norm_relu():
    critic = DroQCritic(5, hidden=16, dropout=0.5)
    for parameter in critic.parameters():
        nn.init.normal_(parameter)
    both = pairs()
    first, second = critic.body[1], critic.body[5]
    masks = [EnsembleDropout(0.5), EnsembleDropout(0.5)]
    for mask, layer in zip(masks, (first, second), strict=True):
        mask.load_state_dict(layer.state_dict())
    values = critic.current(both)
    inputs = torch.cat([both.obs, both.action], -1)
    dropped = [mask(torch.ones(2, 16, 16)) for mask in masks]
    for member in range(2):
        hidden = inputs
        for index, mask in enumerate(dropped):
            linear, norm = critic.body[4 * index], critic.body[4 * index + 2]
            hidden = (hidden @ linear.weight[member] + linear.bias[member]) * mask[member]
            gain, bias = norm.gain[member, 0], norm.bias[member, 0]
            hidden = nn.functional.layer_norm(hidden, (16,), gain, bias, 1e-5).relu()
        expected = hidden @ critic.head.weight[member] + critic.head.bias[member]
        torch.testing.assert_close(values[member], expected, atol=1e-4, rtol=1e-4)


def test_droq_evaluates_without_dropout_and_learns_with_it():
    critic, both = DroQCritic(5, hidden=16, dropout=0.5), pairs()
    before = buffers(critic)
    assert torch.equal(critic(both.obs, both.action), critic(both.obs, both.action))
    assert not changed(critic, before)
    for read in (critic.current, critic.following, lambda both: critic.judged(both.obs, both.action)):
        assert not torch.equal(read(both), read(both))


def test_target_critics_have_masks_of_their_own():
    critic, both = DroQCritic(5, hidden=16, dropout=0.5), pairs()
    target = critic.averaged()
    assert not torch.equal(critic.following(both), target.following(both))


def test_samples_are_further_estimates():
    critic, both = DroQCritic(5, members=2, hidden=16, dropout=0.5, samples=3), pairs()
    nn.init.normal_(critic.head.bias[0], 100.0)  # tells the members apart
    values = critic.following(both)
    assert values.shape == (6, 16, 1)
    assert (values[:3].mean() > 50) and (values[3:].abs().max() < 50)
    assert not torch.equal(values[0], values[1]) and not torch.equal(values[1], values[2])
    assert critic.judged(both.obs, both.action).shape == (6, 16, 1)
    assert critic.current(both).shape == critic(both.obs, both.action).shape == (2, 16, 1)


def test_one_sample_under_no_dropout_is_the_evaluation():
    critic, both = DroQCritic(5, hidden=16, dropout=0.0, samples=2), pairs()
    values = critic(both.next_obs, both.next_action)
    torch.testing.assert_close(critic.following(both), values.repeat_interleave(2, dim=0))


def test_policy_learns_by_the_batch_and_acts_by_running_statistics():
    actor, obs, noise = XQCActor(3, 2, hidden=8), 2 * draw(16, 3) + 1, torch.zeros(16, 2)
    before = buffers(actor)
    action, log_prob = actor.sample_for_update(obs, noise)
    actor.mode(obs)
    assert not changed(actor, before)
    assert (action.shape, log_prob.shape) == ((16, 2), (16, 1))
    learning, _ = actor.learning(obs, noise)
    assert changed(actor, before) == set(before)
    assert not torch.allclose(learning, action)
    for _ in range(2000):
        actor.learning(obs, noise)
    torch.testing.assert_close(actor.mode(obs), learning, atol=1e-3, rtol=1e-3)


def test_policy_takes_updates_and_batches_as_one_batch():
    actor, obs = XQCActor(3, 2, hidden=8), draw(4, 5, 3)
    noise = draw(4, 5, 2)
    action, log_prob = actor.sample_for_update(obs, noise)
    flat, _ = actor.sample_for_update(obs.view(20, 3), noise.view(20, 2))
    assert (action.shape, log_prob.shape) == ((4, 5, 2), (4, 5, 1))
    torch.testing.assert_close(action.view(20, 2), flat)


def test_policy_clamps_its_log_standard_deviation():
    actor = XQCActor(3, 2, hidden=8)
    nn.init.constant_(actor.net.head.bias, -50.0)
    assert actor(draw(4, 3))[1].unique().tolist() == [-10.0]


def test_any_form_may_have_a_categorical_head():
    critic = DroQCritic(5, hidden=16, atoms=7, support=(-2.0, 1.0))
    values = critic(draw(4, 3), draw(4, 2))
    assert isinstance(values, Atoms)
    assert ((expectation(values) > -2) & (expectation(values) < 1)).all()
