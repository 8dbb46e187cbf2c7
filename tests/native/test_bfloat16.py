"""The update in C++ with products of bfloat16, against torch with rounded operands in double precision."""

from functools import partial

import pytest
import torch

from learners import ACT, SIZES, Learner, draw, rounded_products
from pessimism.nn.backbones import DroQCritic
from pessimism.nn.critic import plain_critic, residual_critic
from pessimism.values import quantile_huber_loss, squared_td_loss
from rounded import with_rounded_products

FORMS = [plain_critic, residual_critic, partial(residual_critic, spectral="none"), partial(DroQCritic, dropout=0)]
# Activations are sums in float32, in another order: now and then one is rounded to the other number beside it.
VALUES_OFF, SLOPES_OFF = 5e-5, 3e-4


def off(found, wanted):
    """Return the distance relative to the size of what is wanted."""
    return (found.double() - wanted).norm() / wanted.norm()


def drawn_learner(build, sizes, atoms, way):
    members, _, inputs, hidden = sizes
    td_loss = squared_td_loss if atoms == 1 else partial(quantile_huber_loss, kappa=0.7)
    form = partial(build, atoms=atoms)
    return Learner(form, members, inputs, hidden, way, td_loss=td_loss, precision="bfloat16")


@rounded_products
@pytest.mark.parametrize("atoms", [1, 4])
@pytest.mark.parametrize("build", FORMS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_updates_agree_with_torch_on_rounded_operands(build, sizes, atoms, way):
    fast = drawn_learner(build, sizes, atoms, way)
    exact = with_rounded_products(fast)
    given = draw(0, sizes[1], sizes[2], atoms)
    wanted = exact.torch_step(*(x.double() for x in given))
    for one, two in zip(fast.native_step(*given), wanted, strict=True):
        assert off(one, two) < VALUES_OFF
    state = exact.state()
    for name, value in fast.state().items():
        if "mean" in name:  # Adam's: a tenth of the gradient
            assert off(value, state[name].double()) < SLOPES_OFF, name
        torch.testing.assert_close(value.double(), state[name].double(), atol=1e-4, rtol=1e-4, msg=name)


@rounded_products
@pytest.mark.parametrize("atoms", [1, 4])
@pytest.mark.parametrize("build", FORMS)
@pytest.mark.parametrize("sizes", [(2, 40, 9, 32), (3, 31, 50, 20), (3, 33, 7, 33)], ids=str)
def test_values_have_a_gradient_to_their_inputs(build, sizes, atoms, way):
    fast = drawn_learner(build, sizes, atoms, way)
    exact, slopes = with_rounded_products(fast), torch.randn(sizes[0], sizes[1], atoms)
    given = torch.cat(draw(0, sizes[1], sizes[2])[:2], dim=-1).requires_grad_()
    wanted = given.detach().double().requires_grad_()
    values, exact_values = fast.native.values(given), exact.critic(wanted[:, :-ACT], wanted[:, -ACT:])
    assert off(values, exact_values) < VALUES_OFF
    (ours,) = torch.autograd.grad((values * slopes).sum(), given)
    if atoms == 1:  # each critic's gradient is computed first, and takes its slope in then
        each = (torch.autograd.grad(value.sum(), wanted, retain_graph=True)[0] for value in exact_values)
        theirs = sum(slope * gradient for slope, gradient in zip(slopes, each, strict=True))
    else:
        (theirs,) = torch.autograd.grad((exact_values * slopes).sum(), wanted)
    assert off(ours, theirs) < SLOPES_OFF


@rounded_products
@pytest.mark.parametrize("build", FORMS[:3])  # whose slopes are small at first
def test_operands_have_the_digits_of_bfloat16_and_weights_keep_theirs(build, way):
    learner = Learner(build, 4, 23, 64, way, precision="bfloat16")
    exact, given = learner.copied(torch.float64), draw(0, 64, 23)
    wanted = exact.torch_step(*(x.double() for x in given))
    for one, two in zip(learner.native_step(*given), wanted, strict=True):
        assert 1e-5 < off(one, two) < 2**-6  # 8 digits, and not the 24 of float32
    for name, value in learner.state().items():
        torch.testing.assert_close(value.double(), exact.state()[name].double(), atol=2e-3, rtol=2e-2, msg=name)
