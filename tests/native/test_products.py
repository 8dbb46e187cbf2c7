"""Products in C++ against torch's, and the graphs that call them."""

import pytest
import torch
from torch import nn

from learners import needs_library, needs_pairs
from pessimism.native import graphs, products
from pessimism.native.graphs import compiled
from pessimism.native.library import NoLibraryError
from pessimism.native.products import product

CPU = torch.device("cpu")
in_each_precision = pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=needs_pairs)])
SIZES = [(2, 512, 23, 512), (2, 33, 40, 101), (1, 7, 5, 12), (3, 1, 17, 1), (5, 64, 256, 32)]


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def assert_exact(made, left, right, precision="float32"):
    kind = getattr(torch, precision)
    wanted = left.to(kind).double() @ right.to(kind).double()
    assert made.shape == wanted.shape
    assert made.is_contiguous()
    torch.testing.assert_close(made.double(), wanted, atol=1e-6 * left.shape[-1], rtol=1e-5)


@needs_library
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("left_turned", [False, True])
@pytest.mark.parametrize("right_turned", [False, True])
@in_each_precision
def test_products_agree_with_torch_in_any_layout(sizes, left_turned, right_turned, precision):
    members, rows, inner, columns = sizes
    left = drawn(members, inner, rows).mT if left_turned else drawn(members, rows, inner)
    right = drawn(members, columns, inner).mT if right_turned else drawn(members, inner, columns)
    assert_exact(product(left, right, precision), left, right, precision)


@needs_library
@in_each_precision
def test_operands_may_be_shared_cut_out_or_scattered(precision):
    right = drawn(3, 10, 7)
    for left in (drawn(9, 10).expand(3, 9, 10), drawn(3, 20, 12)[:, 5:14, 1:11], drawn(3, 9, 20)[:, :, ::2]):
        assert_exact(product(left, right, precision), left, right, precision)
    assert_exact(product(left[0], right[0], precision), left[0], right[0], precision)


@needs_library
@pytest.mark.parametrize("members", [1, 2, 3])
@in_each_precision
def test_products_do_not_depend_on_the_number_of_threads(members, precision):
    left, right, before = drawn(members, 130, 70), drawn(members, 70, 50), torch.get_num_threads()
    made = []
    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            made.append(product(left, right, precision))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(made[0], one) for one in made[1:])


def learned(inputs, bias, stacks, head):
    """Return a loss and its gradients: an added, a batched and a single product, forward and backward."""
    hidden = torch.addmm(bias, inputs, stacks[0]).relu()  # [B, H]
    loss = (torch.bmm(hidden.expand(2, *hidden.shape), stacks).sum(dim=0) @ head).square().mean()
    return loss.detach(), *torch.autograd.grad(loss, [bias, stacks, head])


@needs_library
def test_products_of_a_compiled_graph_are_in_cpp_and_give_what_torch_gives(monkeypatch):
    calls = []
    monkeypatch.setattr(products, "load", lambda load=products.load: calls.append(1) or load())
    given = (drawn(5, 6), *(drawn(*shape).requires_grad_() for shape in ((6,), (2, 6, 6), (6, 4))))
    fast = compiled(learned, CPU)
    fast(*given)
    calls.clear()
    for one, two in zip(fast(*given), learned(*given), strict=True):
        torch.testing.assert_close(one, two)
    assert len(calls) == 8  # three forward; backward two for each but the first, which has none to its inputs


@needs_pairs
def test_products_of_a_compiled_graph_follow_the_precision():
    bias, pairs = (
        drawn(4),
        [(drawn(5, 6), drawn(6, 4)), (drawn(7, 6), drawn(6, 3)), (drawn(2, 5, 9), drawn(2, 9, 8))],
    )

    def products_of(bias, pairs):  # an added, a single and a batched one
        return torch.addmm(bias, *pairs[0]), torch.mm(*pairs[1]), torch.bmm(*pairs[2])

    for precision in ("float32", "bfloat16"):
        added, *others = compiled(products_of, CPU, precision)(bias, pairs)
        for made, operands in zip((added - bias, *others), pairs, strict=True):
            assert_exact(made, *operands, precision)


@needs_library
def test_products_too_large_for_the_caches_stay_with_torch(monkeypatch):
    net, calls = nn.Linear(1100, 4, bias=False), []
    monkeypatch.setattr(products, "load", lambda load=products.load: calls.append(1) or load())
    fast = compiled(net, CPU)
    before = len(calls)
    with torch.no_grad():
        torch.testing.assert_close(fast(drawn(5, 1100)), net(drawn(5, 1100)))
    assert len(calls) == before


def test_without_the_library_graphs_keep_the_products_of_torch(monkeypatch):
    def refuse():
        raise NoLibraryError("there is no C++ compiler")

    monkeypatch.setattr(products, "load", refuse)
    given = []
    monkeypatch.setattr(graphs.torch, "compile", lambda function, **options: given.append(options) or function)
    compiled(torch.relu, CPU)
    assert given[0]["options"] == {"cpp_wrapper": True}
