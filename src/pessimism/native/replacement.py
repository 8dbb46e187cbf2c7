"""Matrix products in C++ for graphs that torch compiles, as torch's own are slow on many processors.

`torch.compile` calls `InCpp` with each graph, and it replaces the products. Eager networks still go through torch.
Loading this module takes over a second, because it loads torch's compiler.
"""

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

from pessimism.native.products import OPERATIONS
from pessimism.nn.critic import Precision

LONGEST = 1024  # inner size and columns; C++ keeps a whole right operand in the caches, torch cuts it into blocks
BATCHED, SINGLE, ADDED = (torch.ops.aten.bmm.default, torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


class InCpp(CustomGraphPass):
    """Replaces the products of a graph by those of a precision."""

    def __init__(self, precision: Precision) -> None:
        self.precision = precision

    @property
    def product(self) -> torch._ops.OpOverload:
        """The operation that is put in."""
        return getattr(torch.ops.pessimism, OPERATIONS[self.precision]).default

    def __call__(self, graph: Graph) -> None:
        """Called by torch before it compiles a graph."""
        for node in list(graph.nodes):
            if node.target in (BATCHED, SINGLE) and _fits(*node.args):
                node.target = self.product
            elif node.target is ADDED and not node.kwargs and _fits(*node.args[1:]):
                self._replace_added(graph, node)

    def uuid(self) -> bytes:
        """Return what the cache of compiled graphs knows this by."""
        return get_hash_for_files((__file__,), self.precision)

    def _replace_added(self, graph: Graph, node: Node) -> None:
        """Replace bias + left @ right by a product and a sum."""
        bias, left, right = node.args
        with graph.inserting_before(node):
            made = graph.call_function(self.product, (left, right))
        made.meta.update(node.meta)
        node.target, node.args = torch.ops.aten.add.Tensor, (made, bias)


def _fits(left: Node, right: Node) -> bool:
    operands = (left.meta["val"], right.meta["val"])
    known = all(one.dtype == torch.float32 and one.device.type == "cpu" for one in operands)
    return known and max(operands[1].shape[-2:]) <= LONGEST
