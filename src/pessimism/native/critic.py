"""The critics' TD-learning in C++: `critic_update.cpp` on the tensors of torch's modules, in place."""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pessimism.native import products
from pessimism.native.library import load
from pessimism.native.problem import SLOTS, Problem, in_slots, parts_of, pointer, pointers
from pessimism.nn.critic import EnsembleCritic, ResidualCritic
from pessimism.nn.ensemble import EnsembleLinear, ResidualBlock
from pessimism.nn.optim import Adam
from pessimism.values import quantile_huber_loss, squared_td_loss

MATRICES = (4, 6)  # the square ones, inner and outer


def refusal(critic: EnsembleCritic, td_loss: Callable[[Tensor, Tensor], Tensor]) -> str | None:
    """Return why the C++ update is not for this critic and loss, or None if it is."""
    head = critic.head.weight
    conditions = {
        "it runs on processors only": head.device.type == "cpu",
        "it computes in float32 only": head.dtype == torch.float32,
        "it knows two hidden layers, or one residual block with projected or no spectral norms": _is_known(critic),
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
        block = critic.body[-1]
        norm_epsilon = block.norm.eps if isinstance(block, ResidualBlock) else 0.0
        self.library, self.optimizer = library, optimizer
        tiles = library.tiles if tiles is None else tiles
        self.products = (int(tiles), parts_of(critic.precision, tiles=tiles))
        self.problem, self.key = Problem(), (0, 0, 0, 0, 0)
        self.members, self.hidden, self.atoms = critic.head.weight.shape
        first, second = optimizer.betas
        loss = _constants(td_loss, self.atoms)
        assert loss is not None, td_loss
        self.quantiles = loss[1] > 0
        self.constants = (*loss, norm_epsilon, 1 - first, 1 - second, second, optimizer.eps, tau)
        self.tensors = [
            *(in_slots(list(tensors)) for tensors in (critic.parameters(), averaged.parameters())),
            *(in_slots(tensors) for tensors in (optimizer.means, optimizer.squares)),
            *(_vectors([getattr(layer, side) for layer in critic.spectral]) for side in ("left", "right")),
        ]

    def target_values(self, inputs: Tensor) -> Tensor:
        """[B, obs + act] -> [N, B, K], of the averaged critics."""
        values = self._values(inputs)
        self.library.functions.target_values(self._problem(inputs, 0), pointer(inputs), pointer(values))
        return values

    def values(self, inputs: Tensor) -> Tensor:
        """[B, obs + act] -> [N, B, K], of the critics themselves, with a gradient to the inputs alone."""
        values: Tensor = _Values.apply(inputs, self)
        return values

    def learn(
        self, inputs: Tensor, target: Tensor, next_inputs: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Take one step of the optimizer and of the average. Returns the loss and the values before: [N, B, K].

        The third is what `target_values` would now return for `next_inputs` [B, obs + act].
        """
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

    def _online_values(self, inputs: Tensor) -> Tensor:
        values = self._values(inputs)
        self.library.functions.online_values(self._problem(inputs, 0), pointer(inputs), pointer(values))
        return values

    def _input_gradient(self, inputs: Tensor, slopes: Tensor) -> Tensor:
        """Return the gradient of sum(slopes values): slopes [N, B, K] -> [B, obs + act]."""
        slopes, values = slopes.contiguous(), self._values(inputs)
        gradients = torch.empty(self.members, *inputs.shape)  # summed in order, whatever the number of threads
        self.library.functions.input_gradient(
            self._problem(inputs, 0), pointer(inputs), pointer(slopes), pointer(values), pointer(gradients)
        )
        return gradients.sum(dim=0)

    def _values(self, inputs: Tensor) -> Tensor:
        return torch.empty(self.members, len(inputs), self.atoms)

    def _problem(self, inputs: Tensor, targets: int) -> "ctypes._CArgObject":
        """Describe the tensors; again when the module's memory has changed since the last call."""
        key = (self.optimizer.targets[0].data_ptr(), *inputs.shape, targets, torch.get_num_threads())
        if key != self.key:
            self.key, (_, batch, width, _, threads) = key, key
            atoms = (self.atoms, targets if self.quantiles else 0)
            sizes = (self.members, batch, width, self.hidden, *atoms, threads, *self.products)
            self.problem = Problem(*sizes, *map(pointers, self.tensors), *self.constants)
        return ctypes.byref(self.problem)


class _Values(torch.autograd.Function):
    """The critics' values as a function of their inputs."""

    @staticmethod
    def forward(context: Any, inputs: Tensor, update: CriticUpdate) -> Tensor:  # noqa: ANN401
        context.save_for_backward(inputs)
        context.update = update
        return update._online_values(inputs)

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (inputs,) = context.saved_tensors
        return context.update._input_gradient(inputs, *slopes), None


def _vectors(tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """Put singular vectors into the places of their matrices."""
    vectors = dict(zip(MATRICES, tensors, strict=False))
    return [vectors.get(slot) for slot in range(SLOTS)]
