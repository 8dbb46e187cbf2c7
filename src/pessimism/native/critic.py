"""The critics' TD-learning in C++: `critic_update.cpp` on the tensors of torch's modules, in place."""

import ctypes
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pessimism.native.library import has_tiles, load
from pessimism.nn.critic import EnsembleCritic, ResidualBlock, ResidualCritic
from pessimism.nn.ensemble import EnsembleLinear
from pessimism.ops import Adam
from pessimism.values import squared_td_loss

SLOTS = 10  # parameters of a residual critic; a plain one has no layer norm (2, 3) and no outer layer (6, 7)
PLAIN_SLOTS = (0, 1, 4, 5, 8, 9)
MATRICES = (4, 6)  # the square ones, inner and outer
TILE = 32  # the hidden width is a multiple of it
# Threads take whole members: beyond this ratio of their time to their work torch is faster (docs/performance.md).
IDLE, IDLE_WITH_TILES = 1.2, 1.6

CONSTANTS = ("norm_epsilon", "first_rate", "second_rate", "second_decay", "epsilon", "tau")
Pointers = ctypes.c_void_p * SLOTS


class Problem(ctypes.Structure):
    """The C++ structure of the same name."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("members", "batch", "inputs", "hidden", "threads", "tiles")),
        *((name, Pointers) for name in ("online", "averaged", "means", "squares", "left", "right")),
        *((name, ctypes.c_float) for name in CONSTANTS),
    )


def covered(critic: EnsembleCritic, td_loss: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Say whether the C++ update is for this critic and loss: one atom, float32, on a processor."""
    head = critic.head.weight
    members, hidden, atoms = head.shape
    threads = torch.get_num_threads()
    return (
        _is_known(critic)
        and td_loss is squared_td_loss
        and (head.device.type, head.dtype) == ("cpu", torch.float32)
        and atoms == 1
        and hidden % TILE == 0
        and not isinstance(load(), str)  # which builds it: asked for when nothing else speaks against it
        and math.ceil(members / threads) * threads <= (IDLE_WITH_TILES if has_tiles() else IDLE) * members
    )


def _is_known(critic: EnsembleCritic) -> bool:
    if isinstance(critic, ResidualCritic):
        return all(layer.form == "projection" for layer in critic.spectral)
    return [type(layer) for layer in critic.body] == [EnsembleLinear, nn.ReLU, EnsembleLinear, nn.ReLU]


class CriticUpdate:
    """Values of the target critics, and one step of TD-learning, for critics that are `covered`."""

    def __init__(
        self,
        critic: EnsembleCritic,
        averaged: EnsembleCritic,
        optimizer: Adam,
        tau: float,
        *,
        tiles: bool | None = None,  # as the processor has them
    ) -> None:
        block = critic.body[-1]
        norm_epsilon = block.norm.eps if isinstance(block, ResidualBlock) else 0.0
        self.optimizer, self.tiles = optimizer, has_tiles() if tiles is None else tiles
        self.problem, self.key = Problem(), (0, 0, 0, 0)
        self.members, self.hidden, _ = critic.head.weight.shape
        first, second = optimizer.betas
        self.constants = (norm_epsilon, 1 - first, 1 - second, second, optimizer.eps, tau)
        self.tensors = [
            *(_slots(list(tensors)) for tensors in (critic.parameters(), averaged.parameters())),
            *(_slots(tensors) for tensors in (optimizer.means, optimizer.squares)),
            *(_vectors([getattr(layer, side) for layer in critic.spectral]) for side in ("left", "right")),
        ]

    def target_values(self, inputs: Tensor) -> Tensor:
        """[B, obs + act] -> [N, B, 1], of the averaged critics."""
        values = self._values(inputs)
        _library().target_values(self._problem(inputs), _pointer(inputs), _pointer(values))
        return values

    def learn(
        self, inputs: Tensor, target: Tensor, next_inputs: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Take one step of the optimizer and of the average. Returns the loss and the values before: [N, B, 1].

        The third is what `target_values` would now say of `next_inputs` [B, obs + act].
        """
        target, values, losses = target.contiguous(), self._values(inputs), torch.empty(self.members)
        next_values = None if next_inputs is None else self._values(next_inputs)
        mean_scale, square_scale = self.optimizer.advance().tolist()
        rate = ctypes.c_float(self.optimizer.lr * mean_scale)
        _library().learn(
            *(self._problem(inputs), _pointer(inputs), _pointer(target), rate, ctypes.c_float(square_scale)),
            *(_pointer(values), _pointer(losses), _pointer(next_inputs), _pointer(next_values)),
        )
        return losses.sum(), values, next_values

    def _values(self, inputs: Tensor) -> Tensor:
        return torch.empty(self.members, len(inputs), 1)

    def _problem(self, inputs: Tensor) -> "ctypes._CArgObject":
        """Describe the tensors: anew when the module was given other memory since the last call."""
        key = (self.optimizer.targets[0].data_ptr(), *inputs.shape, torch.get_num_threads())
        if key != self.key:
            self.key, (_, batch, width, threads) = key, key
            sizes = (self.members, batch, width, self.hidden, threads, self.tiles)
            pointers = (
                Pointers(*(None if tensor is None else tensor.data_ptr() for tensor in slots))
                for slots in self.tensors
            )
            self.problem = Problem(*sizes, *pointers, *self.constants)
        return ctypes.byref(self.problem)


def _slots(tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """Put a critic's parameters, or what belongs to each, into the places that C++ has for them."""
    slots: list[Tensor | None] = [None] * SLOTS
    for slot, tensor in zip(range(SLOTS) if len(tensors) == SLOTS else PLAIN_SLOTS, tensors, strict=True):
        slots[slot] = tensor
    return slots


def _vectors(tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """Put singular vectors into the places of their matrices."""
    vectors = dict(zip(MATRICES, tensors, strict=False))
    return [vectors.get(slot) for slot in range(SLOTS)]


def _pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _library() -> ctypes.CDLL:
    library = load()
    assert isinstance(library, ctypes.CDLL), library
    return library
