"""The limit: what the matrix products of one environment step take when nothing else is done.

The last layer of a critic is left out: with an output of width 1 it is a multiplication and a sum. So are
biases, activations, normalisation, loss, optimizer and averaging: the distance to the limit is theirs.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from pessimism.bench.worker import Setting, Step


Layers = Sequence[tuple[int, int]]  # inputs, outputs


class Product(NamedTuple):
    """A batched product [matrices, rows, inner] @ [matrices, inner, columns]."""

    purpose: str
    matrices: int
    rows: int
    inner: int
    columns: int
    times: int  # in one environment step
    transposed: Literal["neither", "left", "right"] = "neither"  # how the operand lies in memory

    @property
    def flops(self) -> int:
        """Floating-point operations in one environment step."""
        return 2 * self.matrices * self.rows * self.inner * self.columns * self.times


def products(setting: "Setting") -> list[Product]:
    """List the products of one environment step, layer by layer as the networks are written.

    The residual critic multiplies its outer layer with its head first and so does without some of them: its
    fraction of this limit may pass 1.
    The first layer needs no gradient of its input, except where the policy climbs its action.
    """
    critic = critic_layers(setting)
    policy = [
        (setting.obs_size, setting.hidden),
        (setting.hidden, setting.hidden),
        (setting.hidden, 2 * setting.action_size),
    ]
    members, updates, batch = setting.members, setting.updates, setting.batch
    action = (setting.action_size, setting.hidden)  # the action's rows of the critics' first layer
    return [
        *forward("next actions", 1, updates * batch, policy, 1),
        *forward("target critics", members, batch, critic, updates),
        *forward("critics", members, batch, critic, updates),
        *weight_gradients("critics", members, batch, critic, updates),
        *input_gradients("critics", members, batch, critic[1:], updates),
        *forward("policy", 1, batch, policy, 1),
        *forward("critics of the policy", members, batch, critic, 1),
        *input_gradients("critics of the policy", members, batch, [*critic[1:], action], 1),
        *weight_gradients("policy", 1, batch, policy, 1),
        *input_gradients("policy", 1, batch, policy[1:], 1),
    ]


def critic_layers(setting: "Setting") -> list[tuple[int, int]]:
    """Return the layers before the last: one of hidden width in the plain critic, two in the residual."""
    square = (setting.hidden, setting.hidden)
    first = (setting.obs_size + setting.action_size, setting.hidden)
    return [first, square] if setting.critic == "plain" else [first, square, square]


def forward(purpose: str, matrices: int, rows: int, layers: Layers, times: int) -> Iterable[Product]:
    """Inputs times weights."""
    return [Product(purpose, matrices, rows, inputs, outputs, times) for inputs, outputs in layers]


def weight_gradients(purpose: str, matrices: int, rows: int, layers: Layers, times: int) -> Iterable[Product]:
    """Inputs, transposed, times the gradients of the outputs."""
    return [Product(purpose, matrices, inputs, rows, outputs, times, "left") for inputs, outputs in layers]


def input_gradients(purpose: str, matrices: int, rows: int, layers: Layers, times: int) -> Iterable[Product]:
    """Gradients of the outputs times the weights, transposed."""
    return [Product(purpose, matrices, rows, outputs, inputs, times, "right") for inputs, outputs in layers]


def limit_step(setting: "Setting") -> "Step":
    """Return a step that does the products: as batched ones, or as many operations in one large product."""
    wanted = products(setting)
    if setting.contestant == "limit-single":
        return single_step(sum(product.flops for product in wanted))
    return batched_step(wanted, setting.updates)


def batched_step(wanted: Sequence[Product], updates: int) -> "Step":
    """Return a step that does the products in the order of the updates, into memory that is there already."""
    prepared = [(product, *operands(product)) for product in wanted]
    order = [
        tensors for turn in range(updates) for product, *tensors in prepared if turn < product.times
    ]  # turn by turn: an update then finds in the caches what a real one would

    def step() -> None:
        for left, right, result in order:
            torch.bmm(left, right, out=result)

    return step


def operands(product: Product) -> tuple[Tensor, Tensor, Tensor]:
    """Return random operands, laid out as in the update, and room for the result."""
    matrices, rows, inner, columns = product.matrices, product.rows, product.inner, product.columns
    left_shape = (inner, rows) if product.transposed == "left" else (rows, inner)
    right_shape = (columns, inner) if product.transposed == "right" else (inner, columns)
    left, right = torch.randn(matrices, *left_shape), torch.randn(matrices, *right_shape)
    return (
        left.mT if product.transposed == "left" else left,
        right.mT if product.transposed == "right" else right,
        torch.empty(matrices, rows, columns),
    )


def single_step(flops: int) -> "Step":
    """Return a step that does as many operations in one product of square matrices."""
    side = round((flops / 2) ** (1 / 3))
    left, right, result = torch.randn(side, side), torch.randn(side, side), torch.empty(side, side)
    return lambda: torch.mm(left, right, out=result)
