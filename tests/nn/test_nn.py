"""Ensemble layers against N separate networks; the actor against torch's own distributions."""

import pytest
import torch
from torch import distributions, nn

from pessimism.nn.actor import NoisyActor, SquashedGaussianActor
from pessimism.nn.critic import plain_critic, residual_critic
from pessimism.nn.ensemble import EnsembleLayerNorm, EnsembleLinear, SpectralLinear


def test_an_ensemble_layer_is_n_separate_layers():
    layer = EnsembleLinear(3, 5, 4)
    nn.init.normal_(layer.bias)
    shared, separate = torch.randn(7, 5), torch.randn(3, 7, 5)
    for member in range(3):
        weight, bias = layer.weight[member], layer.bias[member]
        torch.testing.assert_close(layer(shared)[member], shared @ weight + bias)
        torch.testing.assert_close(layer(separate)[member], separate[member] @ weight + bias)


def test_a_layer_of_width_one_is_the_same_product():
    layer, inputs = EnsembleLinear(3, 5, 1), torch.randn(3, 7, 5)
    torch.testing.assert_close(layer(inputs), torch.bmm(inputs, layer.weight) + layer.bias)


def test_each_member_starts_orthogonal_and_different():
    weight = EnsembleLinear(3, 8, 8, gain=2.0).weight
    for member in weight:
        torch.testing.assert_close(member @ member.T, 4 * torch.eye(8), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(weight[0], weight[1])


def gains(weight):
    """Return the singular values of each matrix of a layer, which are all its gain."""
    return torch.linalg.svdvals(weight.detach()).flatten().tolist()


@pytest.mark.parametrize("build", [plain_critic, residual_critic])
def test_critics_start_with_gain_sqrt_2_and_a_last_layer_near_zero(build):
    critic = build(5, members=2, hidden=8, atoms=3)
    assert gains(critic.body[0].weight) == pytest.approx([2**0.5] * 10, rel=1e-5)
    assert gains(critic.head.weight) == pytest.approx([0.01 * 2**0.5] * 6, rel=1e-5)
    if build is plain_critic:
        assert gains(critic.body[2].weight) == pytest.approx([2**0.5] * 16, rel=1e-5)
    assert not any(weight.any() for name, weight in critic.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize(
    "actor",
    [SquashedGaussianActor(5, 2, hidden=8), NoisyActor(5, 4, 8, noise=lambda step: 1.0)],
    ids=["gaussian", "noisy"],
)
def test_policies_start_with_gain_sqrt_2_and_a_last_layer_near_zero(actor):
    first, second, last = (layer for layer in actor.net if isinstance(layer, nn.Linear))
    assert gains(first.weight) == pytest.approx([2**0.5] * 5, rel=1e-5)
    assert gains(second.weight) == pytest.approx([2**0.5] * 8, rel=1e-5)
    assert gains(last.weight) == pytest.approx([0.01 * 2**0.5] * 4, rel=1e-5)
    assert not any(layer.bias.any() for layer in (first, second, last))


def test_layer_norm_has_gain_and_bias_per_member():
    norm = EnsembleLayerNorm(2, 6)
    nn.init.normal_(norm.gain)
    nn.init.normal_(norm.bias)
    inputs = torch.randn(2, 4, 6)
    for member in range(2):
        expected = nn.functional.layer_norm(
            inputs[member], (6,), norm.gain[member, 0], norm.bias[member, 0], eps=1e-3
        )
        torch.testing.assert_close(norm(inputs)[member], expected)


@pytest.mark.parametrize("form", ["projection", "reparameterised"])
def test_spectral_layers_have_largest_singular_value_one(form):
    layer = SpectralLinear(3, 16, form)
    with torch.no_grad():
        layer.weight.mul_(7).add_(torch.randn_like(layer.weight))
    for _ in range(300):  # one power iteration converges slowly where singular values are close
        layer.normalise_()
    largest = torch.linalg.matrix_norm(layer.kernel(), ord=2)
    torch.testing.assert_close(largest, torch.ones(3), atol=1e-3, rtol=0)


def test_reparameterised_gradient_is_orthogonal_to_growing_the_weights():
    layer = SpectralLinear(2, 8, "reparameterised")
    loss = layer(torch.randn(2, 5, 8)).square().sum()
    (gradient,) = torch.autograd.grad(loss, [layer.weight])
    # kernel(c W) = kernel(W): the derivative along W itself is zero
    along = (gradient * layer.weight).sum((1, 2))
    assert along.abs().max() < 1e-4 * gradient.abs().sum()


@pytest.mark.parametrize("build", [plain_critic, residual_critic])
def test_members_of_a_critic_are_independent(build):
    critic = build(6, members=4, hidden=8, atoms=3)
    obs, action = torch.randn(5, 4), torch.randn(5, 2)
    values = critic(obs, action)
    assert values.shape == (4, 5, 3)
    gradients = torch.autograd.grad(values[1].sum(), list(critic.parameters()))
    for gradient in gradients:
        assert gradient[[0, 2, 3]].abs().max() == 0
    assert any(gradient[1].abs().max() > 0 for gradient in gradients)


@pytest.mark.parametrize("spectral", ["projection", "reparameterised", "none"])
@pytest.mark.parametrize("atoms", [1, 3])
def test_a_residual_critic_is_its_head_on_its_body(spectral, atoms):
    """Values and gradients do not depend on the order in which the last two layers are multiplied."""
    critic = residual_critic(6, members=4, hidden=8, atoms=atoms, spectral=spectral).double()
    parameters = list(critic.parameters())
    for parameter in parameters:
        nn.init.normal_(parameter)
    obs, action = torch.randn(5, 4).double(), torch.randn(5, 2).double()
    fast, written = critic(obs, action), critic.head(critic.body(torch.cat([obs, action], dim=-1)))
    torch.testing.assert_close(fast, written)
    one, two = (torch.autograd.grad(values.sin().sum(), parameters) for values in (fast, written))
    torch.testing.assert_close(one, two)


def test_actor_log_probability_is_that_of_the_squashed_gaussian():
    actor = SquashedGaussianActor(4, 3, hidden=16)
    for parameter in actor.parameters():
        nn.init.normal_(parameter, std=0.3)
    obs, noise = torch.randn(50, 4), torch.randn(50, 3)
    action, log_prob = actor.sample(obs, noise)
    mean, log_std = actor(obs)
    base = distributions.Normal(mean, log_std.exp())
    squashed = distributions.TransformedDistribution(base, distributions.TanhTransform(cache_size=1))
    raw = mean + log_std.exp() * noise
    expected = squashed.log_prob(squashed.transforms[0](raw)).sum(-1, keepdim=True)
    torch.testing.assert_close(log_prob, expected, atol=1e-4, rtol=1e-4)
    assert action.abs().max() <= 1


def test_log_probability_stays_exact_far_in_the_tails():
    actor = SquashedGaussianActor(1, 1, hidden=4)
    with torch.no_grad():
        actor.net[-1].weight.zero_()
        actor.net[-1].bias.copy_(torch.tensor([20.0, 0.0]))  # mean 20, log std -4
    _, log_prob = actor.sample(torch.zeros(1, 1), torch.zeros(1, 1))
    # log N(20; 20, e^-4) - log(1 - tanh(20)^2), with 1 - tanh(x)^2 = 4 e^(-2x) to all digits here
    expected = 4 - 0.5 * torch.log(torch.tensor(2 * torch.pi)) - (torch.log(torch.tensor(4.0)) - 40)
    assert log_prob.item() == pytest.approx(expected.item(), rel=1e-6)
