"""The C++ update against torch's, step by step; the reference is the same update in double precision."""

from functools import partial

import pytest
import torch

from learners import (
    ACT,
    SIZES,
    Learner,
    assert_same_updates,
    draw,
    in_each_precision,
    needs_library,
    needs_tiles,
    products,
)
from pessimism.agents.critic_learner import CriticLearner, NativeLearner
from pessimism.agents.sac import SACAgent
from pessimism.config.resolve import resolved
from pessimism.native.critic import CriticUpdate, covered, refusal
from pessimism.nn.actor import SquashedGaussianActor
from pessimism.nn.backbones import DroQCritic, XQCCritic
from pessimism.nn.critic import Pairs, plain_critic, residual_critic
from pessimism.nn.ensemble import EnsembleDropout, hashed
from pessimism.strategies import ClippedMinimum, FixedPenalty, LearnedPenalty, SubsetMinimum
from pessimism.training.build import build_agent
from pessimism.types import Batch
from pessimism.values import cross_entropy_loss, quantile_huber_loss, squared_td_loss

FORMS = [
    pytest.param(plain_critic, id="plain"),
    pytest.param(residual_critic, id="residual"),
    pytest.param(partial(residual_critic, spectral="none"), id="residual-free"),
    pytest.param(partial(DroQCritic, dropout=0.0), id="normalised"),
    pytest.param(partial(DroQCritic, dropout=0.3), id="dropout"),
]
DROPPING = partial(DroQCritic, dropout=0.3)


@needs_library
@products
@pytest.mark.parametrize("build", FORMS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_updates_agree_with_torch(build, sizes, way):
    members, batch, inputs, hidden = sizes
    fast = Learner(build, members, inputs, hidden, way)
    assert_same_updates(fast, fast.copied(torch.float64), [draw(step, batch, inputs) for step in range(4)])


@needs_library
@products
@pytest.mark.parametrize("build", FORMS)
@pytest.mark.parametrize("sizes", [(2, 40, 9, 32, 10), (3, 33, 7, 40, 3), (2, 256, 23, 256, 25)], ids=str)
def test_updates_of_quantiles_agree_with_torch(build, sizes, way):
    members, batch, inputs, hidden, atoms = sizes
    loss = partial(quantile_huber_loss, kappa=0.7)
    fast = Learner(partial(build, atoms=atoms), members, inputs, hidden, way, td_loss=loss)
    assert_same_updates(fast, fast.copied(torch.float64), [draw(step, batch, inputs, atoms) for step in range(4)])


@needs_library
@products
@pytest.mark.parametrize("atoms", [1, 4])
@pytest.mark.parametrize("build", FORMS)
@pytest.mark.parametrize("sizes", [(2, 40, 9, 32), (3, 31, 50, 20)], ids=str)
def test_values_have_a_gradient_to_their_inputs(build, atoms, sizes, way):
    members, batch, inputs, hidden = sizes
    learner = Learner(partial(build, atoms=atoms), members, inputs, hidden, way, td_loss=quantile_huber_loss)
    exact, slopes = learner.copied(torch.float64), torch.randn(members, batch, atoms)
    obs, action, _ = draw(0, batch, inputs)
    given = torch.cat([obs, action], dim=-1).requires_grad_()
    wanted = given.detach().double().requires_grad_()
    values, exact_values = learner.native.values(given), exact.critic.judged(wanted[:, :-ACT], wanted[:, -ACT:])
    torch.testing.assert_close(values.double(), exact_values, atol=1e-5, rtol=1e-5)
    ours, theirs = (
        torch.autograd.grad((x * slopes).sum(), y)[0] for x, y in ((values, given), (exact_values, wanted))
    )
    torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=1e-5)


@needs_library
@products
def test_quantiles_may_be_fitted_to_another_number_of_atoms(way):
    fast = Learner(partial(plain_critic, atoms=4), 2, 7, 32, way, td_loss=quantile_huber_loss)
    assert_same_updates(fast, fast.copied(torch.float64), [draw(step, 9, 7, 6) for step in range(3)])


@needs_library
@products
def test_another_share_of_the_squared_error(way):
    fast = Learner(plain_critic, 2, 7, 32, way, td_loss=partial(squared_td_loss, scale=1.5))
    assert_same_updates(fast, fast.copied(torch.float64), [draw(step, 20, 7) for step in range(3)])


@needs_tiles
def test_products_in_parts_are_no_less_exact_than_float32():
    learner = Learner(plain_critic, 10, 23, 256)
    obs, action, _ = draw(0, 256, 23)
    exact = learner.copied(torch.float64).averaged(obs.double(), action.double())
    ours, theirs = (
        (values.double() - exact).square().mean().sqrt()
        for values in (learner.native.target_values(torch.cat([obs, action], -1)), learner.averaged(obs, action))
    )
    assert ours <= theirs


@needs_library
@in_each_precision
@pytest.mark.parametrize(("build", "atoms"), [(plain_critic, 1), (plain_critic, 5), (DROPPING, 1)])
def test_what_is_not_finite_is_not_hidden(way, precision, build, atoms):
    td_loss = squared_td_loss if atoms == 1 else quantile_huber_loss
    learner = Learner(partial(build, atoms=atoms), 2, 7, 32, way, td_loss=td_loss, precision=precision)
    obs, action, target = draw(0, 8, 7, atoms)
    obs[3, 0], obs[4, 0] = float("nan"), float("inf")
    inputs = torch.cat([obs, action], dim=-1)
    finite = learner.native.target_values(inputs).isfinite()
    assert finite[:, [0, 1, 2, 5, 6, 7]].all()
    assert not finite[:, 3:5].any()
    loss, _, _ = learner.native.learn(inputs, target)
    assert not loss.isfinite()


@needs_library
@in_each_precision
@pytest.mark.parametrize("build", [residual_critic, DROPPING], ids=["residual", "dropout"])
@pytest.mark.parametrize(("members", "atoms"), [(5, 1), (2, 1), (1, 4)])
def test_the_number_of_threads_does_not_change_a_bit(way, precision, build, members, atoms):
    td_loss = squared_td_loss if atoms == 1 else quantile_huber_loss
    start = Learner(partial(build, atoms=atoms), members, 11, 64, way, td_loss=td_loss, precision=precision)
    threads, states = torch.get_num_threads(), []
    for count in (1, 2, 5):  # members that are shared evenly, unevenly, and by several threads each
        one = start.copied(torch.float32)  # as drawn once: how a matrix is made orthogonal depends on threads
        torch.set_num_threads(count)
        for step in range(2):
            one.native_step(*draw(step, 150, 11, atoms))
        inputs = torch.randn(70, 11, generator=torch.Generator().manual_seed(0)).requires_grad_()
        states.append(one.state() | {"slope": torch.autograd.grad(one.native.values(inputs).sum(), inputs)[0]})
    torch.set_num_threads(threads)
    for other in states[1:]:
        assert all(torch.equal(value, other[name]) for name, value in states[0].items())


@needs_library
@in_each_precision
@pytest.mark.parametrize("build", [residual_critic, DROPPING, partial(DROPPING, samples=3)])
def test_values_come_with_the_update_before_them(way, precision, build):
    one, two = (Learner(build, 3, 9, 32, way, precision=precision) for _ in range(2))
    for learner in (one, two):  # has read its target values before
        learner.native.target_values(torch.zeros(40, 9))
    (obs, action, target), following = draw(0, 40, 9), torch.randn(40, 9)
    *_, ahead = one.native.learn(torch.cat([obs, action], dim=-1), target, following)
    two.native.learn(torch.cat([obs, action], dim=-1), target)
    assert torch.equal(ahead, two.native.target_values(following))
    assert all(torch.equal(value, two.state()[name]) for name, value in one.state().items())


def native_learner(build, strategy, way):
    """Return a learner of three critics whose targets come from a strategy."""
    torch.manual_seed(0)
    learner = NativeLearner(build(9, members=3, hidden=32), strategy, tau=0.05, lr=1e-3)
    networks = (learner.critic, learner.target_critic, learner.optimizer)
    learner.native = CriticUpdate(*networks, learner.tau, squared_td_loss, target=way[0], tiles=way[1])
    return learner


@needs_library
@in_each_precision
@pytest.mark.parametrize("batch", [5, 40])
@pytest.mark.parametrize("build", [residual_critic, DROPPING, partial(DROPPING, samples=4)])
@pytest.mark.parametrize("strategy", [partial(LearnedPenalty, 0.8), partial(SubsetMinimum, 3, 1.5)])
def test_updates_in_one_call_are_those_one_by_one(way, precision, strategy, build, batch):
    if strategy.func is SubsetMinimum and getattr(build, "keywords", {}).get("samples"):
        strategy = partial(SubsetMinimum, 12, 2.5)
    generator = torch.Generator().manual_seed(0)
    sizes = (9 - ACT, ACT, 1, 1, 9 - ACT, ACT, 1)  # those of a batch, next actions, entropy bonus
    *fields, next_action, bonus = (torch.randn(6, batch, size, generator=generator) for size in sizes)
    learned, states = [], []
    for together in (True, False):
        learner = native_learner(build, strategy(), way)
        learner.native.products = (learner.native.products[0], int(precision == "bfloat16"))
        assert len(learner._orders(2)) == 2
        if not together:
            learner._orders = lambda updates: []
        learner.pessimism.generator.manual_seed(0)
        learned.append(learner.learn(Batch(*fields), next_action, bonus).critic)
        parts = (learner.critic, learner.target_critic, learner.optimizer)
        states.append([value for part in parts for value in part.state_dict().values()])
    tolerance = 1e-5 if precision == "float32" else 2e-2
    for one, two in zip(learned[0], learned[1], strict=True):
        torch.testing.assert_close(one, two, atol=tolerance, rtol=tolerance)
    for one, two in zip(*states, strict=True):
        torch.testing.assert_close(one, two, atol=tolerance, rtol=tolerance)


@needs_library
@products
@pytest.mark.parametrize("strategy", [partial(FixedPenalty, 0.5), ClippedMinimum, partial(SubsetMinimum, 3, 2)])
def test_estimates_that_are_not_numbers_reach_the_targets(way, strategy):
    learner = native_learner(plain_critic, strategy(), way)
    sizes = (9 - ACT, ACT, 1, 1, 9 - ACT)
    batch, next_action = Batch(*(torch.randn(1, 6, size) for size in sizes)), torch.randn(1, 6, ACT)
    next_action[0, 4] = float("nan")
    assert not learner.learn(batch, next_action, torch.zeros(1, 6, 1)).critic.loss.isfinite()


@needs_library
@products
def test_critics_under_several_masks_are_read_as_torch_reads_them(way):
    learner = Learner(partial(DROPPING, samples=3, atoms=2), 2, 9, 40, way, td_loss=quantile_huber_loss)
    exact, slopes = learner.copied(torch.float64), torch.randn(6, 35, 2)
    inputs = torch.randn(35, 9).requires_grad_()
    wanted = inputs.detach().double().requires_grad_()
    pair = wanted[:, :-ACT], wanted[:, -ACT:]
    for _ in range(2):
        ours, theirs = learner.native.target_values(inputs.detach()), exact.averaged.following(Pairs(*pair, *pair))
        torch.testing.assert_close(ours.double(), theirs.detach(), atol=1e-5, rtol=1e-5)
        ours, theirs = learner.native.values(inputs), exact.critic.judged(*pair)
        torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=1e-5)
        (one,), (two,) = (torch.autograd.grad((x * slopes).sum(), y) for x, y in ((ours, inputs), (theirs, wanted)))
        torch.testing.assert_close(one.double(), two, atol=1e-5, rtol=1e-5)


@needs_library
@pytest.mark.parametrize("atoms", [1, 3])
def test_a_gradient_is_that_of_the_masks_its_values_had(atoms):
    td_loss = squared_td_loss if atoms == 1 else quantile_huber_loss
    one, two = (Learner(partial(DROPPING, atoms=atoms), 2, 9, 32, td_loss=td_loss) for _ in range(2))
    inputs = torch.randn(20, 9).requires_grad_()
    values, _ = one.native.values(inputs), one.native.values(inputs)
    (late,), (early,) = (torch.autograd.grad(x.sum(), inputs) for x in (values, two.native.values(inputs)))
    assert torch.equal(late, early)
    (other,) = torch.autograd.grad(two.native.values(inputs).sum(), inputs)
    assert not torch.allclose(other, early)


@needs_library
@products
def test_a_unit_whose_number_is_the_limit_itself_is_kept(way):
    learner = Learner(DROPPING, 2, 9, 32, way)
    first, second = (layer for layer in learner.averaged.body if isinstance(layer, EnsembleDropout))
    numbers = hashed(torch.arange(32, dtype=torch.int32) + hashed(hashed(first.calls + 1) + first.key)) & 0x7FFFFFFF
    limit = next(number for number in numbers.tolist() if 0.2 < number / 2**31 < 0.6)
    for layer in (first, second, *(one for one in learner.critic.body if isinstance(one, EnsembleDropout))):
        layer.rate = limit / 2**31
    native = CriticUpdate(
        *(learner.critic, learner.averaged, learner.optimizer, 0.0, squared_td_loss), target=way[0], tiles=way[1]
    )
    inputs = torch.randn(1, 9)
    pair = inputs[:, :-ACT], inputs[:, -ACT:]
    ours = native.target_values(inputs)
    for layer in (first, second):
        layer.calls.zero_()
    torch.testing.assert_close(ours, learner.averaged.judged(*pair), atol=1e-5, rtol=1e-5)


@needs_library
def test_every_reading_counts_as_one_call_of_its_own_critics_dropout():
    learner = Learner(DROPPING, 2, 9, 32)

    def calls():
        return [
            [layer.calls.item() for layer in critic.body if isinstance(layer, EnsembleDropout)]
            for critic in (learner.critic, learner.averaged)
        ]

    inputs, target = torch.randn(8, 9), torch.randn(8, 1)
    learner.native.target_values(inputs)
    assert calls() == [[0, 0], [1, 1]]
    torch.autograd.grad(learner.native.values(inputs.requires_grad_()).sum(), inputs)
    assert calls() == [[1, 1], [1, 1]]
    learner.native.learn(inputs.detach(), target)
    assert calls() == [[2, 2], [1, 1]]
    learner.native.learn(inputs.detach(), target, inputs.detach())
    assert calls() == [[3, 3], [2, 2]]


@needs_library
def test_memory_that_moved_is_found_again():
    one, two = (Learner(plain_critic, 2, 7, 32) for _ in range(2))
    one.native_step(*draw(0, 8, 7))
    two.native_step(*draw(0, 8, 7))
    for tensor in (*one.critic.parameters(), *one.averaged.parameters()):
        tensor.data = tensor.data.clone()
    one.native_step(*draw(1, 8, 7))
    two.native_step(*draw(1, 8, 7))
    assert all(torch.equal(value, two.state()[name]) for name, value in one.state().items())


@needs_library
def test_learners_of_different_sizes_do_not_disturb_each_other():
    wide, narrow = Learner(residual_critic, 3, 9, 96), Learner(residual_critic, 2, 7, 24)
    alone = narrow.copied(torch.float32)
    for step in range(3):
        wide.native_step(*draw(step, 70, 9))
        narrow.native_step(*draw(step, 20, 7))
    for step in range(3):
        alone.native_step(*draw(step, 20, 7))
    assert all(torch.equal(value, alone.state()[name]) for name, value in narrow.state().items())


@needs_library
@pytest.mark.parametrize(
    ("critic", "loss", "reason"),
    [
        (plain_critic(5, members=2, hidden=32), squared_td_loss, None),
        (plain_critic(5, members=3, hidden=41), partial(squared_td_loss, scale=1.0), None),
        (residual_critic(5, members=2, hidden=32), squared_td_loss, None),
        (residual_critic(5, members=2, hidden=32, spectral="none"), squared_td_loss, None),
        (plain_critic(5, members=2, hidden=32, atoms=3), partial(quantile_huber_loss, kappa=2.0), None),
        (DroQCritic(5, members=2, hidden=32), squared_td_loss, None),
        (DroQCritic(5, members=3, hidden=33, dropout=0.0, atoms=3), quantile_huber_loss, None),
        (DroQCritic(5, members=1, hidden=32, dropout=0.1, samples=5), squared_td_loss, None),
        (DroQCritic(5, members=2, hidden=32, atoms=11, support=(-5.0, 5.0)), cross_entropy_loss, "Huber"),
        (DroQCritic(5, members=2, hidden=32).double(), squared_td_loss, "float32"),
        (XQCCritic(5, members=2, hidden=32, atoms=1, support=None), squared_td_loss, "LayerNorm and dropout"),
        (residual_critic(5, members=2, hidden=32, spectral="reparameterised"), squared_td_loss, "residual block"),
        (plain_critic(5, members=2, hidden=32, atoms=3), squared_td_loss, "one atom"),
        (plain_critic(5, members=2, hidden=32), lambda values, target: values.sum(), "Huber"),
        (plain_critic(5, members=2, hidden=32).double(), squared_td_loss, "float32"),
    ],
)
def test_which_critics_and_losses_are_covered(critic, loss, reason):
    assert covered(critic, loss) is (reason is None)
    assert reason is None or reason in refusal(critic, loss)


@needs_library
@pytest.mark.parametrize("name", ["droq", "gpl-droq", "gpl-dropout", "rlpd", "gpl-rlpd"])
def test_presets_with_layer_norm_compile_no_graph(name):
    agent = build_agent(resolved(name, {"env": "any", "target_entropy": -1.0}), (5,), 3)
    assert isinstance(agent.learner, NativeLearner)
    assert not agent.compiles


@needs_library
@pytest.mark.parametrize("build", [plain_critic, residual_critic, DROPPING, partial(DROPPING, samples=3)])
def test_agents_with_and_without_it_agree(build):
    agents = []
    for way in (CriticLearner, NativeLearner):
        torch.manual_seed(0)
        actor, critic = SquashedGaussianActor(5, ACT, hidden=16), build(5 + ACT, members=4, hidden=32)
        generator = torch.Generator().manual_seed(1)
        learner = way(critic, LearnedPenalty())
        agents.append(SACAgent(actor=actor, learner=learner, target_entropy=-3.0, generator=generator))
    eager, fast = agents
    for step in range(3):
        obs, action, reward, next_obs = (
            torch.randn(2, 9, 5),
            torch.rand(2, 9, ACT),
            torch.randn(2, 9, 1),
            torch.randn(2, 9, 5),
        )
        batch = Batch(obs, action, reward, torch.full((2, 9, 1), 0.99), next_obs)
        one, two = eager.update(batch, step), fast.update(batch, step)
        for name, value in one.items():
            torch.testing.assert_close(two[name], value, atol=1e-4, rtol=1e-4)
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(fast.state_dict()[name], value, atol=1e-4, rtol=1e-4)
