"""A learner whose update can be taken by torch and by C++, for each instruction set that runs here."""

import copy
import platform

import pytest
import torch

from pessimism.native import library
from pessimism.native.critic import CriticUpdate
from pessimism.nn.critic import Pairs
from pessimism.nn.ensemble import EnsembleLayerNorm
from pessimism.nn.optim import Adam, polyak_
from pessimism.values import squared_td_loss

TAU, ACT = 0.01, 3
SIZES = [  # members, batch, inputs, hidden: odd ones leave vectors and pairs of terms half empty
    (2, 7, 23, 64),
    (5, 29, 45, 32),
    (3, 1, 376, 96),
    (10, 256, 23, 256),
    (2, 100, 5, 320),
    (2, 65, 9, 40),
    (3, 50, 4, 17),
]
try:
    TILES, PAIRS, MISSING = library.load().tiles, library.load().pairs, ""
except library.NoLibraryError as error:
    TILES, PAIRS, MISSING = False, False, str(error)
needs_library = pytest.mark.skipif(bool(MISSING), reason=MISSING)
needs_tiles = pytest.mark.skipif(not TILES, reason="the processor has no AMX")
needs_pairs = pytest.mark.skipif(not PAIRS, reason="the processor has no AVX512_BF16")
needs_bfloat16 = pytest.mark.skipif(not (TILES or PAIRS), reason="the processor has neither AMX nor AVX512_BF16")
needs_avx2 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="the processor has no AVX2"
)
OTHERS = (("sse2", "x86-64", ()), ("avx2", "x86-64-v3", needs_avx2))
ON_X86 = platform.machine().lower() in ("x86_64", "amd64")
WAYS = [
    pytest.param(("native", False), id="vectors"),
    *(pytest.param((target, False), id=name, marks=marks) for name, target, marks in OTHERS if ON_X86),
    pytest.param(("native", True), id="tiles", marks=needs_tiles),
]
products = pytest.mark.parametrize("way", WAYS)  # an instruction set, and whether its tiles are used
ROUNDED_WAYS = [
    pytest.param(("native", False), id="vectors", marks=needs_pairs),
    pytest.param(("native", True), id="tiles", marks=needs_tiles),
]
rounded_products = pytest.mark.parametrize("way", ROUNDED_WAYS)  # of bfloat16
in_each_precision = pytest.mark.parametrize(
    ("way", "precision"),
    [
        pytest.param(*way.values, precision, id=f"{way.id}-{precision}", marks=way.marks)
        for precision, ways in (("float32", WAYS), ("bfloat16", ROUNDED_WAYS))
        for way in ways
    ],
)


class Learner:
    """A critic, its average and its optimizer."""

    def __init__(
        self, build, members, inputs, hidden, way=("native", None), *, td_loss=squared_td_loss, precision="float32"
    ):
        torch.manual_seed(0)
        self.way, self.td_loss = way, td_loss
        self.critic = build(inputs, members=members, hidden=hidden)
        self.critic.precision = precision
        with torch.no_grad():  # no parameter at a special value
            for parameter in self.critic.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        self.start()

    def start(self):
        self.averaged = self.critic.averaged()
        self.optimizer = Adam(self.critic.parameters(), 1e-3, eps=1e-3)  # large: no step of the sign of rounding
        target, tiles = self.way
        self.native = CriticUpdate(
            self.critic, self.averaged, self.optimizer, TAU, self.td_loss, tiles=tiles, target=target
        )

    def copied(self, dtype):
        """Return the same learner, at its start."""
        other = copy.copy(self)
        other.critic = copy.deepcopy(self.critic).to(dtype)
        other.start()
        return other

    def torch_step(self, obs, action, target):
        """Return target critics' values, values and loss, as the eager agent computes them."""
        pairs = Pairs(obs, action, obs, action)
        next_values = self.averaged.following(pairs)
        values = self.critic.current(pairs)
        loss = self.td_loss(values, target)
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


def draw(seed, batch, inputs, atoms=1):
    """Return observations, actions and targets."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, n, generator=generator) for n in (inputs - ACT, ACT, atoms)]


def off_the_kinks(critic, transitions):
    """Return transitions of which none brings a unit so near to zero that rounding decides whether it is active.

    Those that do are replaced by one that does not. At an inactive unit the gradient jumps, so that a difference
    of one rounding would grow to one of a whole transition's share.
    """
    rows = torch.arange(len(transitions[0]))
    for _ in range(5):  # under dropout a transition has another mask in another place
        nearest = nearest_to_zero(critic, *transitions[:2])
        safe = nearest > 2e-6
        if safe.all():
            break
        transitions = [x[torch.where(safe, rows, nearest.argmax())] for x in transitions]
    return transitions


def nearest_to_zero(critic, obs, action):
    """Return how near each transition's update brings a unit to the kink of its ReLU: [B]."""
    critic = copy.deepcopy(critic)  # whose calls of dropout do not count
    nearest = torch.full((len(obs),), torch.inf, dtype=torch.float64)

    def note(layer, inputs, units):  # [N, B, hidden]
        torch.minimum(nearest, units.detach().abs().amin(dim=(0, 2)), out=nearest)

    before = [layer for layer in critic.body if isinstance(layer, EnsembleLayerNorm)]
    second = critic.body[2]
    for layer in before or (critic.body[0], getattr(second, "inner", second)):
        layer.register_forward_hook(note)
    critic.current(Pairs(*[x.double() for x in (obs, action, obs, action)]))
    return nearest


def assert_same_updates(fast, exact, given):
    """Take the same steps with both, and compare what they return and what they leave behind."""
    for drawn in given:
        transitions = off_the_kinks(exact.critic, drawn)
        doubles = [x.double() for x in transitions]
        for one, two in zip(fast.native_step(*transitions), exact.torch_step(*doubles), strict=True):
            torch.testing.assert_close(one.double(), two, atol=1e-5, rtol=1e-5)
    state = exact.state()
    for name, value in fast.state().items():
        wanted = state[name].double()
        torch.testing.assert_close(value.double(), wanted, atol=5e-6 * wanted.abs().max().item(), rtol=0, msg=name)
