"""A policy's network in C++ against torch's, and who uses it."""

import copy

import pytest
import torch
from torch import nn

from learners import ACT, Learner, draw, needs_library, products
from pessimism.agents.critic_learner import CriticLearner, NativeLearner
from pessimism.agents.sac import SACAgent
from pessimism.native.network import PolicyNetwork, is_plain
from pessimism.nn.actor import NoisyActor, SquashedGaussianActor, two_hidden_layers
from pessimism.nn.backbones import XQCActor
from pessimism.nn.critic import plain_critic, residual_critic
from pessimism.strategies import LearnedPenalty
from pessimism.types import Batch

OBS = 5
SIZES = [  # shape of the batches, inputs, hidden, outputs
    ((20, 256), 17, 256, 12),
    ((3, 33), 11, 40, 6),
    ((1,), 376, 17, 34),
    ((2, 1, 9), 3, 320, 1),
]
POLICIES = {
    "gaussian": lambda: SquashedGaussianActor(OBS, ACT, hidden=40),
    "noisy": lambda: NoisyActor(OBS, ACT, 40, noise=lambda step: 0.4),
}
policies = pytest.mark.parametrize("build", POLICIES.values(), ids=POLICIES)


def drawn(module):
    """Return a module with no parameter at a special value."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return module


def in_cpp(net, way):
    target, tiles = way
    return PolicyNetwork(net, tiles=tiles, target=target)


def assert_same_outputs(net, evaluated, inputs):
    exact = copy.deepcopy(net).double()(inputs.double())
    torch.testing.assert_close(evaluated.double(), exact, atol=1e-5, rtol=1e-5)


@needs_library
@products
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_outputs_are_those_of_torch(sizes, way):
    shape, inputs, hidden, outputs = sizes
    net, given = drawn(two_hidden_layers(inputs, hidden, outputs)), torch.randn(*shape, inputs)
    assert_same_outputs(net, in_cpp(net, way)(given), given)


@needs_library
def test_inputs_may_be_a_view_or_of_double_precision():
    net, given = drawn(two_hidden_layers(7, 32, 4)), torch.randn(7, 18).t()
    network = in_cpp(net, ("native", None))
    assert_same_outputs(net, network(given), given)
    assert_same_outputs(net, network(given.double()), given)
    with pytest.raises(RuntimeError, match="shape"):
        network(torch.randn(7, 14))  # C++ would take it for twice as many rows


@needs_library
@products
def test_the_number_of_threads_does_not_change_a_bit(way):
    net, given = drawn(two_hidden_layers(11, 64, 6)), torch.randn(3, 111, 11)
    network, threads, results = in_cpp(net, way), torch.get_num_threads(), []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        results.append(network(given))
    torch.set_num_threads(threads)
    assert all(torch.equal(result, results[0]) for result in results[1:])


@needs_library
def test_weights_are_those_of_the_moment():
    net, given = drawn(two_hidden_layers(7, 32, 4)), torch.randn(20, 7)
    network = in_cpp(net, ("native", None))
    network(given)
    drawn(net)  # in place, as an optimizer does it
    assert_same_outputs(net, network(given), given)
    for parameter in net.parameters():
        parameter.data = 2 * parameter.data  # elsewhere in memory
    assert_same_outputs(net, network(given), given)


@needs_library
@products
@pytest.mark.parametrize("build", [plain_critic, residual_critic])
def test_critics_are_not_disturbed(build, way):
    one = Learner(build, 3, 9, 64, way)
    two, policy = one.copied(torch.float32), in_cpp(drawn(two_hidden_layers(6, 64, 6)), way)
    for step in range(3):
        policy(torch.randn(4, 70, 6))  # in the same memory
        one.native_step(*draw(step, 70, 9))
    for step in range(3):
        two.native_step(*draw(step, 70, 9))
    assert all(torch.equal(value, two.state()[name]) for name, value in one.state().items())


@pytest.mark.parametrize(
    ("net", "plain"),
    [
        (two_hidden_layers(5, 32, 6), True),
        (two_hidden_layers(5, 33, 1), True),
        (two_hidden_layers(5, 32, 6).double(), False),
        (two_hidden_layers(5, 32, 6).to("meta"), False),
        (two_hidden_layers(5, 32, 6)[:3], False),
        (nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 9), nn.ReLU(), nn.Linear(9, 2)), False),
        (nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), False),
        (nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8, False), nn.ReLU(), nn.Linear(8, 2)), False),
        (XQCActor(5, 3, hidden=32).net, False),
    ],
)
def test_which_networks_are_plain(net, plain):
    assert is_plain(net) is plain


def learner_of(way):
    torch.manual_seed(0)
    return way(plain_critic(OBS + ACT, members=2, hidden=32), LearnedPenalty())


@needs_library
@policies
def test_next_actions_are_those_of_torch(build):
    actor, obs, noise = build(), torch.randn(4, 50, OBS), torch.randn(4, 50, ACT)
    next_actions = learner_of(NativeLearner).next_actions(actor)
    drawn(actor)  # has learned since
    for one, two in zip(next_actions(obs, noise), actor.sample_for_update(obs, noise), strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)


@needs_library
@policies
@pytest.mark.parametrize("way", [CriticLearner, NativeLearner])
def test_agents_with_critics_in_cpp_use_it(build, way):
    actor, seen = build(), []
    agent = SACAgent(actor=actor, learner=learner_of(way), target_entropy=-3.0)
    actor.net.register_forward_hook(lambda net, inputs, outputs: seen.append(tuple(inputs[0].shape)))
    fields = (torch.rand(2, 9, size) for size in (OBS, ACT, 1, 1, OBS))
    agent.update(Batch(*fields), 0)
    by_torch = [(2, 9, OBS)] if way is CriticLearner else []
    assert seen == [*by_torch, (9, OBS)]  # the policy's own update needs a gradient


@needs_library
def test_other_networks_stay_in_torch():
    actor = XQCActor(OBS, ACT, hidden=32)
    assert learner_of(NativeLearner).next_actions(actor) == actor.sample_for_update
