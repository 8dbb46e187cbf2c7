"""The C++ update against torch's, step by step; the reference is the same update in double precision."""

import copy
import ctypes
from functools import partial

import pytest
import torch

from pessimism.agents.sac import SACAgent
from pessimism.native import library
from pessimism.native.critic import CriticUpdate, covered
from pessimism.nn.actor import SquashedGaussianActor
from pessimism.nn.critic import plain_critic, residual_critic
from pessimism.ops import Adam, polyak_
from pessimism.strategies import LearnedPenalty
from pessimism.types import Batch
from pessimism.values import quantile_huber_loss, squared_td_loss

TAU, ACT = 0.01, 3
needs_library = pytest.mark.skipif(isinstance(library.load(), str), reason=str(library.load()))
needs_tiles = pytest.mark.skipif(not library.has_tiles(), reason="the processor has no AMX")
products = pytest.mark.parametrize(
    "tiles", [pytest.param(False, id="vectors"), pytest.param(True, id="tiles", marks=needs_tiles)]
)


class Learner:
    """A critic, its average and its optimizer."""

    def __init__(self, build, members, inputs, hidden, tiles=None):
        torch.manual_seed(0)
        self.tiles = tiles
        self.critic = build(inputs, members=members, hidden=hidden)
        with torch.no_grad():  # no parameter at a special value
            for parameter in self.critic.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        self.start()

    def start(self):
        self.averaged = copy.deepcopy(self.critic).requires_grad_(False)
        self.optimizer = Adam(self.critic.parameters(), 1e-3, eps=1e-3)  # large: no step of the sign of rounding
        self.native = CriticUpdate(self.critic, self.averaged, self.optimizer, TAU, tiles=self.tiles)

    def copied(self, dtype):
        """Return the same learner, at its start."""
        other = copy.copy(self)
        other.critic = copy.deepcopy(self.critic).to(dtype)
        other.start()
        return other

    def torch_step(self, obs, action, target):
        """Return target critics' values, values and loss, as in `SACAgent._update_critic`."""
        next_values = self.averaged(obs, action)
        values = self.critic(obs, action)
        loss = squared_td_loss(values, target)
        self.optimizer.minimise(loss)
        self.critic.normalise_()
        polyak_(self.averaged, self.critic, TAU)
        return next_values, values.detach(), loss.detach()

    def native_step(self, obs, action, target):
        inputs = torch.cat([obs, action], dim=-1)
        next_values = self.native.target_values(inputs)
        loss, values, _ = self.native.learn(inputs, target)
        return next_values, values, loss

    def state(self):
        parts = {"critic": self.critic, "averaged": self.averaged, "optimizer": self.optimizer}
        return {f"{part}.{name}": x for part, module in parts.items() for name, x in module.state_dict().items()}


def draw(seed, batch, inputs):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, n, generator=generator) for n in (inputs - ACT, ACT, 1)]


@needs_library
@products
@pytest.mark.parametrize("build", [plain_critic, residual_critic, partial(residual_critic, spectral="none")])
@pytest.mark.parametrize(
    "sizes", [(2, 7, 23, 64), (5, 29, 45, 32), (3, 1, 376, 96), (10, 256, 23, 256), (2, 100, 5, 320)], ids=str
)
def test_updates_agree_with_torch(build, sizes, tiles):
    members, batch, inputs, hidden = sizes
    fast = Learner(build, members, inputs, hidden, tiles)
    exact = fast.copied(torch.float64)
    for step in range(4):
        given = draw(step, batch, inputs)
        for one, two in zip(fast.native_step(*given), exact.torch_step(*(x.double() for x in given)), strict=True):
            torch.testing.assert_close(one.double(), two, atol=1e-5, rtol=1e-5)
    state = exact.state()
    for name, value in fast.state().items():
        wanted = state[name].double()
        torch.testing.assert_close(value.double(), wanted, atol=5e-6 * wanted.abs().max().item(), rtol=0, msg=name)


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
@products
def test_what_is_not_finite_is_not_hidden(tiles):
    learner = Learner(plain_critic, 2, 7, 32, tiles)
    obs, action, target = draw(0, 8, 7)
    obs[3, 0], obs[4, 0] = float("nan"), float("inf")
    inputs = torch.cat([obs, action], dim=-1)
    finite = learner.native.target_values(inputs).isfinite()
    assert finite[:, [0, 1, 2, 5, 6, 7]].all()
    assert not finite[:, 3:5].any()
    loss, _, _ = learner.native.learn(inputs, target)
    assert not loss.isfinite()


@needs_library
@products
def test_the_number_of_threads_does_not_change_a_bit(tiles):
    start, threads, states = Learner(residual_critic, 5, 11, 64, tiles), torch.get_num_threads(), []
    for count in (1, 2, 3):
        one = start.copied(torch.float32)  # as drawn once: how a matrix is made orthogonal depends on threads
        torch.set_num_threads(count)
        for step in range(3):
            one.native_step(*draw(step, 33, 11))
        states.append(one.state())
    torch.set_num_threads(threads)
    for other in states[1:]:
        assert all(torch.equal(value, other[name]) for name, value in states[0].items())


@needs_library
@products
def test_values_come_with_the_update_before_them(tiles):
    one, two = (Learner(residual_critic, 3, 9, 32, tiles) for _ in range(2))
    (obs, action, target), following = draw(0, 40, 9), torch.randn(40, 9)
    *_, ahead = one.native.learn(torch.cat([obs, action], dim=-1), target, following)
    two.native_step(obs, action, target)
    assert torch.equal(ahead, two.native.target_values(following))


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
@pytest.mark.parametrize(
    ("critic", "loss", "expected"),
    [
        (plain_critic(5, members=2, hidden=32), squared_td_loss, True),
        (residual_critic(5, members=2, hidden=32), squared_td_loss, True),
        (residual_critic(5, members=2, hidden=32, spectral="none"), squared_td_loss, True),
        (residual_critic(5, members=2, hidden=32, spectral="reparameterised"), squared_td_loss, False),
        (plain_critic(5, members=2, hidden=40), squared_td_loss, False),
        (plain_critic(5, members=2, hidden=32, atoms=3), quantile_huber_loss, False),
        (plain_critic(5, members=2, hidden=32), quantile_huber_loss, False),
        (plain_critic(5, members=2, hidden=32).double(), squared_td_loss, False),
    ],
)
def test_what_is_covered(critic, loss, expected, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert covered(critic, loss) is expected


@needs_library
@pytest.mark.parametrize(
    ("members", "threads", "with_vectors", "with_tiles"),
    [(10, 1, True, True), (10, 2, True, True), (5, 2, True, True), (3, 2, False, True), (10, 24, False, False)],
)
def test_threads_without_a_member_speak_for_torch(members, threads, with_vectors, with_tiles, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    for tiles, expected in ((False, with_vectors), (True, with_tiles)):
        monkeypatch.setattr("pessimism.native.critic.has_tiles", lambda tiles=tiles: tiles)
        assert covered(plain_critic(5, members=members, hidden=32), squared_td_loss) is expected


@needs_library
@pytest.mark.parametrize("build", [plain_critic, residual_critic])
def test_agents_with_and_without_it_agree(build, monkeypatch):
    monkeypatch.setattr("pessimism.agents.sac.compiled", lambda function, device: function)
    agents = []
    for compile in (False, True):
        torch.manual_seed(0)
        actor, critic = SquashedGaussianActor(5, ACT, hidden=16), build(5 + ACT, members=4, hidden=32)
        generator = torch.Generator().manual_seed(1)
        agents.append(
            SACAgent(
                actor=actor,
                critic=critic,
                pessimism=LearnedPenalty(),
                target_entropy=-3.0,
                generator=generator,
                compile=compile,
            )
        )
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
    assert fast.native is not None
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(fast.state_dict()[name], value, atol=1e-4, rtol=1e-4)


def test_a_machine_that_cannot_says_why(monkeypatch, tmp_path):
    library.load.cache_clear()
    try:
        monkeypatch.setattr(library, "compiler", lambda: None)
        assert library.load() == "there is no C++ compiler"
        library.load.cache_clear()
        broken = tmp_path / "c++"
        broken.write_text(
            "#!/bin/sh\ncase $* in *-dM*) echo __AVX512F__;; *) echo no such option >&2; exit 1;; esac"
        )
        broken.chmod(0o755)
        monkeypatch.setattr(library, "compiler", lambda: str(broken))
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        assert library.load() == "the C++ source does not build: no such option"
        library.load.cache_clear()
        broken.write_text("#!/bin/sh\n")
        assert library.load() == "the processor has no AVX-512"
    finally:
        library.load.cache_clear()


@needs_library
@pytest.mark.slow
def test_the_library_is_built_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    library.load.cache_clear()
    try:
        assert isinstance(library.load(), ctypes.CDLL)
        (built,) = tmp_path.rglob("*.so")
        before = built.stat()
        library.load.cache_clear()
        library.load()
        assert built.stat().st_mtime_ns == before.st_mtime_ns
    finally:
        library.load.cache_clear()
