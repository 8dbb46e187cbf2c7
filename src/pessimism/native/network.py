"""A policy's network in C++, without gradients: to C++ it is an ensemble of one plain critic with several atoms."""

import ctypes
from typing import TypeGuard

import torch
from torch import Tensor, nn

from pessimism.native.library import load
from pessimism.native.problem import PLAIN_SLOTS, Masks, Problem, in_slots, parts_of, pointer, pointers

LAYERS = [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]


def is_plain(net: nn.Module) -> TypeGuard[nn.Sequential]:
    """Return whether C++ can evaluate a network: two hidden layers of one width, in float32, on a processor."""
    if not isinstance(net, nn.Sequential) or [type(layer) for layer in net] != LAYERS:
        return False
    first, inner, last = _linear(net)
    has_biases = all(layer.bias is not None for layer in (first, inner, last))
    in_reach = all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in net.parameters())
    return has_biases and in_reach and inner.in_features == inner.out_features


def _linear(net: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in net if isinstance(layer, nn.Linear)]


class PolicyNetwork:
    """Evaluates a network that `is_plain`, with the weights that it has when it is called."""

    def __init__(
        self,
        net: nn.Sequential,
        *,
        tiles: bool | None = None,  # as the processor has them
        target: str = "native",  # another instruction set, for tests
    ) -> None:
        self.library, self.layers = load(target), _linear(net)
        self.tiles = self.library.tiles if tiles is None else tiles
        # torch stores matrices as [outputs, inputs], C++ reads [inputs, outputs]; filled anew in each call
        self.matrices = [torch.empty(layer.in_features, layer.out_features) for layer in self.layers]

    @torch.no_grad()
    def __call__(self, inputs: Tensor) -> Tensor:
        """[.., inputs] -> [.., outputs]."""
        parameters = list[Tensor]()
        for layer, matrix in zip(self.layers, self.matrices, strict=True):
            parameters += [matrix.copy_(layer.weight.t()), layer.bias]
        (width, hidden), outputs = self.matrices[0].shape, self.layers[-1].out_features
        rows = inputs.float().reshape(-1, width).contiguous()
        values = torch.empty(len(rows), outputs)
        problem = Problem(
            members=1,
            batch=len(rows),
            inputs=width,
            hidden=hidden,
            atoms=outputs,
            threads=torch.get_num_threads(),
            tiles=int(self.tiles),
            parts=parts_of("float32", tiles=self.tiles),
            online=pointers(in_slots(parameters, PLAIN_SLOTS)),
        )
        self.library.functions.online_values(ctypes.byref(problem), pointer(rows), pointer(values), Masks())
        return values.view(*inputs.shape[:-1], outputs)
