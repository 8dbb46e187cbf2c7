"""The critics' TD-learning in C++: `critic_update.cpp` on the tensors of torch's modules, in place."""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pessimism.native import products
from pessimism.native.library import load
from pessimism.native.problem import (
    NORMALISED_SLOTS,
    PLAIN_SLOTS,
    RESIDUAL_SLOTS,
    Masks,
    Problem,
    Streams,
    Updates,
    in_slots,
    parts_of,
    pointer,
    pointers,
)
from pessimism.nn.backbones import DroQCritic
from pessimism.nn.critic import EnsembleCritic, ResidualCritic
from pessimism.nn.ensemble import EnsembleDropout, EnsembleLayerNorm, EnsembleLinear
from pessimism.nn.optim import Adam
from pessimism.strategies import OrderedSum
from pessimism.values import quantile_huber_loss, squared_td_loss

MATRICES = (4, 8)  # the square ones, inner and outer


def refusal(critic: EnsembleCritic, td_loss: Callable[[Tensor, Tensor], Tensor]) -> str | None:
    """Return why the C++ update is not for this critic and loss, or None if it is."""
    head = critic.head.weight
    conditions = {
        "it runs on processors only": head.device.type == "cpu",
        "it computes in float32 only": head.dtype == torch.float32,
        "it knows two hidden layers, with DroQ's LayerNorm and dropout or without, and one residual block with "
        "projected or no spectral norms": _is_known(critic),
        "it knows the squared error of one atom and the quantiles' Huber loss": _constants(td_loss, head.shape[-1]),
    }
    reason = next((text for text, met in conditions.items() if not met), None)
    return reason or products.refusal(critic.precision)  # last, as it may have to build the library


def covered(critic: EnsembleCritic, td_loss: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Return whether the C++ update is for this critic and loss."""
    return refusal(critic, td_loss) is None


def _is_known(critic: EnsembleCritic) -> bool:
    if isinstance(critic, ResidualCritic):
        return all(layer.form == "projection" for layer in critic.spectral)
    if type(critic) is DroQCritic:
        return True
    layers = [type(layer) for layer in critic.body]
    return type(critic) is EnsembleCritic and layers == [EnsembleLinear, nn.ReLU, EnsembleLinear, nn.ReLU]


def _constants(td_loss: Callable[[Tensor, Tensor], Tensor], atoms: int) -> tuple[float, float] | None:
    """Return a loss's scale and kappa, of which the other is 0, or None for a loss that C++ does not know."""
    function, options = td_loss, dict[str, float]()
    if isinstance(td_loss, partial):
        function, options = td_loss.func, dict(td_loss.keywords)
        if td_loss.args or set(options) - {"scale", "kappa"}:
            return None
    if function is squared_td_loss and atoms == 1:
        return options.get("scale", 0.5), 0.0
    if function is quantile_huber_loss:
        return 0.0, options.get("kappa", 1.0)
    return None


class CriticUpdate:
    """Values of the target critics, and one step of TD-learning, for critics that are `covered`."""

    def __init__(
        self,
        critic: EnsembleCritic,
        averaged: EnsembleCritic,
        optimizer: Adam,
        tau: float,
        td_loss: Callable[[Tensor, Tensor], Tensor],
        *,
        tiles: bool | None = None,  # as the processor has them
        target: str = "native",  # another instruction set, for tests
    ) -> None:
        library = load(target)
        self.library, self.optimizer = library, optimizer
        tiles = library.tiles if tiles is None else tiles
        self.products = (int(tiles), parts_of(critic.precision, tiles=tiles))
        self.problems, self.place = dict[tuple[int, ...], Problem](), 0
        self.samples = critic.samples if isinstance(critic, DroQCritic) else 1
        rate = next((layer.rate for layer in _dropouts(critic)), 0.0)
        self.drop_below = round(rate * 2**31)  # as in EnsembleDropout
        self.members, self.hidden, self.atoms = critic.head.weight.shape
        first, second = optimizer.betas
        loss = _constants(td_loss, self.atoms)
        assert loss is not None, td_loss
        self.quantiles = loss[1] > 0
        adam = (1 - first, 1 - second, second, optimizer.eps)
        self.constants = (*loss, _norm_epsilon(critic), *adam, tau, 1 / (1 - rate))
        self.tensors = [*_weights(critic, averaged, optimizer), *_singular_vectors(critic)]
        self.streams = [
            [x for layer in _dropouts(one) for x in (layer.key, layer.calls)] for one in (critic, averaged)
        ]

    def target_values(self, inputs: Tensor) -> Tensor:
        """[B, obs + act] -> [N, B, K], of the averaged critics; under M masks [N * M, B, K]."""
        rows = inputs.repeat(self.samples, 1)  # [M * B, obs + act]
        values = self._values(rows)
        self.library.functions.target_values(self._problem(rows, 0), pointer(rows), pointer(values))
        return values.view(-1, len(inputs), self.atoms)

    def values(self, inputs: Tensor) -> Tensor:
        """Return the same of the critics themselves, with a gradient to the inputs alone."""
        values: Tensor = _Values.apply(inputs.repeat(self.samples, 1), self)
        return values.view(-1, len(inputs), self.atoms)

    def learn(
        self, inputs: Tensor, target: Tensor, next_inputs: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Take one step of the optimizer and of the average. Returns the loss and the values before: [N, B, K].

        The third is what `target_values` would now return for `next_inputs` [B, obs + act].
        """
        if next_inputs is not None and self.samples > 1:  # a batch of another size
            return *self.learn(inputs, target)[:2], self.target_values(next_inputs)
        target, values, losses = target.contiguous(), self._values(inputs), torch.empty(self.members)
        next_values = None if next_inputs is None else self._values(next_inputs)
        mean_scale, square_scale = self.optimizer.advance().tolist()
        rate = ctypes.c_float(self.optimizer.lr * mean_scale)
        self.library.functions.learn(
            *(
                self._problem(inputs, target.shape[-1]),
                pointer(inputs),
                pointer(target),
                rate,
                ctypes.c_float(square_scale),
            ),
            *(pointer(values), pointer(losses), pointer(next_inputs), pointer(next_values)),
        )
        return losses.sum(), values, next_values

    def learn_all(
        self,
        inputs: Tensor,
        next_inputs: Tensor,
        orders: Sequence[OrderedSum],
        *,
        rewards: Tensor,
        discounts: Tensor,
        bonuses: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take a step of the optimizer and of the average for each of U batches of critics with one atom.

        inputs and next inputs [U, B, obs + act]; how the target critics are read in each update; rewards, discounts
        and entropy bonuses [U, B, 1]. Returns the last update's loss, values before it and target critics' values.
        """
        rows = next_inputs.repeat(1, self.samples, 1)  # [U, M * B, obs + act]
        values, losses, next_values = self._values(inputs[0]), torch.empty(self.members), self._values(rows[0])
        estimates, factors = self.members * self.samples, self.optimizer.advance_by(len(orders))
        tensors = {
            "read": torch.tensor([len(order.members) for order in orders]),
            "chosen": _table([order.members for order in orders], estimates),
            "weights": _table([order.weights for order in orders], estimates).float(),
            "inputs": inputs,
            "next_inputs": rows,
            "rewards": rewards,
            "discounts": discounts,
            "bonuses": bonuses,
            "rates": torch.tensor([self.optimizer.lr * mean_scale for mean_scale, _ in factors]),
            "square_scales": torch.tensor([square_scale for _, square_scale in factors]),
            "values": values,
            "losses": losses,
            "next_values": next_values,
        }
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}  # kept until the call is over
        updates = Updates(len(orders), estimates, **{name: pointer(tensor) for name, tensor in tensors.items()})
        problem, reading = self._problem(inputs[0], 0), self._problem(rows[0], 0)
        self.library.functions.learn_all(problem, reading, ctypes.byref(updates))
        return losses.sum(), values, next_values.view(-1, inputs.shape[1], 1)

    def _online_values(self, inputs: Tensor) -> tuple[Tensor, "ctypes.Array[ctypes.c_uint32]"]:
        """Return the values, and the masks that they were computed under."""
        values, masks = self._values(inputs), Masks()
        self.library.functions.online_values(self._problem(inputs, 0), pointer(inputs), pointer(values), masks)
        return values, masks

    def _values_and_gradients(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values [N, B, 1] and the gradient of each [N, B, obs + act], for critics with one atom."""
        values, gradients = self._values(inputs), torch.empty(self.members, *inputs.shape)
        slopes = torch.ones_like(values)
        self.library.functions.values_and_gradient(
            *(self._problem(inputs, 0), pointer(inputs)), *map(pointer, (slopes, values, gradients))
        )
        return values, gradients

    def _input_gradient(self, inputs: Tensor, masks: "ctypes.Array[ctypes.c_uint32]", slopes: Tensor) -> Tensor:
        """Return the gradient of sum(slopes values): slopes [N, B, K] -> [B, obs + act]."""
        slopes, values = slopes.contiguous(), self._values(inputs)
        gradients = torch.empty(self.members, *inputs.shape)  # summed in order, whatever the number of threads
        self.library.functions.input_gradient(
            *(self._problem(inputs, 0), masks, pointer(inputs)),
            *(pointer(slopes), pointer(values), pointer(gradients)),
        )
        return gradients.sum(dim=0)

    def _values(self, inputs: Tensor) -> Tensor:
        return torch.empty(self.members, len(inputs), self.atoms)

    def _problem(self, inputs: Tensor, targets: int) -> "ctypes._CArgObject":
        """Describe the tensors, once for each size, and anew when the module's memory has changed."""
        place = self.optimizer.targets[0].data_ptr()
        if place != self.place:
            self.place, self.problems = place, {}
        key = (*inputs.shape, targets if self.quantiles else 0, torch.get_num_threads())
        if key not in self.problems:
            batch, width, atoms, threads = key
            sizes = (self.members, batch, width, self.hidden, self.atoms, atoms, threads)
            streams = (Streams(*map(pointer, stream)) for stream in self.streams)
            self.problems[key] = Problem(
                *(*sizes, *self.products, self.drop_below),
                *(*map(pointers, self.tensors), *streams),
                *self.constants,
            )
        return ctypes.byref(self.problems[key])


class _Values(torch.autograd.Function):
    """The critics' values as a function of their inputs."""

    @staticmethod
    def forward(context: Any, inputs: Tensor, update: CriticUpdate) -> Tensor:  # noqa: ANN401
        context.update = update
        if update.atoms == 1:  # a value's gradient does not depend on its slope: one pass computes both
            values, gradients = update._values_and_gradients(inputs)
            context.save_for_backward(gradients)
        else:
            values, context.masks = update._online_values(inputs)
            context.save_for_backward(inputs)
        return values

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (saved,) = context.saved_tensors
        if context.update.atoms == 1:
            return (slopes[0] * saved).sum(dim=0), None  # [B, obs + act], members in order
        return context.update._input_gradient(saved, context.masks, *slopes), None


def _weights(critic: EnsembleCritic, averaged: EnsembleCritic, optimizer: Adam) -> list[list[Tensor | None]]:
    """Return parameters, their averages and Adam's two moments, in the places that C++ has for them."""
    places = NORMALISED_SLOTS if isinstance(critic, DroQCritic) else PLAIN_SLOTS
    places = RESIDUAL_SLOTS if isinstance(critic, ResidualCritic) else places
    groups = (critic.parameters(), averaged.parameters(), optimizer.means, optimizer.squares)
    return [in_slots(tensors, places) for tensors in groups]


def _singular_vectors(critic: EnsembleCritic) -> list[list[Tensor | None]]:
    """Return left and right singular vectors, in the places of their matrices."""
    places = MATRICES if critic.spectral else ()
    return [in_slots([getattr(layer, side) for layer in critic.spectral], places) for side in ("left", "right")]


def _table(lines: Sequence[Sequence[float]], width: int) -> Tensor:
    """Return lines of numbers, filled up with zeros: of whole numbers if they are."""
    return torch.tensor([[*line, *[0] * (width - len(line))] for line in lines])


def _norm_epsilon(critic: EnsembleCritic) -> float:
    return next((layer.eps for layer in critic.body.modules() if isinstance(layer, EnsembleLayerNorm)), 0.0)


def _dropouts(critic: EnsembleCritic) -> list[EnsembleDropout]:
    return [layer for layer in critic.body if isinstance(layer, EnsembleDropout)]
