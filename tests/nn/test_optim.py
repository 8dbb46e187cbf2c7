"""The optimizer against torch's, averaging on literals."""

import pytest
import torch
from torch import nn

from pessimism.agents.sac import to_device
from pessimism.native.graphs import compiled
from pessimism.nn.compilation import compiler
from pessimism.nn.optim import Adam, polyak_

CPU = torch.device("cpu")


def regression(parameters):
    first, second = parameters
    inputs = torch.linspace(-1, 1, 20).view(10, 2)
    return ((inputs @ first).tanh() @ second - 0.3).square().mean()


def fresh():
    generator = torch.Generator().manual_seed(0)
    return [
        nn.Parameter(torch.randn(2, 4, generator=generator)),
        nn.Parameter(torch.randn(4, 1, generator=generator)),
    ]


def test_several_steps_at_once_count_as_so_many():
    one, other = Adam(fresh(), 1e-2), Adam(fresh(), 1e-2)
    for optimizer in (one, other):
        optimizer.schedule_(0.7)
        optimizer.advance()
    at_once, singly = torch.tensor(one.advance_by(5)), torch.stack([other.advance() for _ in range(5)])
    assert torch.equal(at_once, singly)
    assert torch.equal(one.powers, other.powers)
    assert torch.equal(one.advance(), other.advance())


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.999)])
def test_adam_is_torchs_adam(betas):
    ours, theirs = fresh(), fresh()
    optimizer, reference = Adam(ours, 1e-2, betas), torch.optim.Adam(theirs, 1e-2, betas)
    for _ in range(30):
        optimizer.minimise(regression(ours))
        reference.zero_grad()
        regression(theirs).backward()
        reference.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_gradients_are_clipped_by_their_global_norm():
    ours, theirs = fresh(), fresh()
    optimizer, reference = Adam(ours, 1e-2), torch.optim.Adam(theirs, 1e-2)
    for _ in range(5):
        optimizer.minimise(regression(ours), clip=0.01)
        reference.zero_grad()
        regression(theirs).backward()
        nn.utils.clip_grad_norm_(theirs, 0.01)
        reference.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_state_of_adam_is_complete():
    ours, copies = fresh(), fresh()
    one, two = Adam(ours, 1e-2), Adam(copies, 1e-2)
    for _ in range(3):
        one.minimise(regression(ours))
    two.load_state_dict(one.state_dict())
    for target, source in zip(copies, ours, strict=True):
        target.data.copy_(source.data)
    one.minimise(regression(ours))
    two.minimise(regression(copies))
    assert all(torch.equal(a, b) for a, b in zip(ours, copies, strict=True))


def test_polyak_average_on_literals():
    averaged, source = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    averaged.weight.data.fill_(1.0)
    source.weight.data.fill_(3.0)
    polyak_(averaged, source, 0.25)
    assert averaged.weight.item() == pytest.approx(1.5)


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_a_compiled_step_changes_what_the_eager_one_changes():
    """The state that Adam keeps must move inside a compiled graph too, step after step."""
    ours, theirs = fresh(), fresh()
    one, two = Adam(ours, 1e-2), Adam(theirs, 1e-2)
    step = compiled(lambda: one.minimise(regression(ours)), CPU)
    for _ in range(4):
        step()
        two.minimise(regression(theirs))
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, two.state_dict()[name], atol=1e-6, rtol=1e-5)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_many_agents_may_be_compiled_in_one_process():
    class Scale(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.weight = torch.full((size,), 2.0)

        def double(self, values):
            return values * self.weight

    for size in range(1, 11):  # torch gives up after 8 of a class by itself
        assert compiled(Scale(size).double, CPU)(torch.ones(size)).tolist() == [2.0] * size


def test_results_of_a_recorded_graph_outlive_the_next_replay(monkeypatch):
    asked, memory = [], torch.zeros(1)
    monkeypatch.setattr(
        torch, "compile", lambda function, **settings: asked.append(settings["options"]) or function
    )
    step = compiled(lambda: {"count": memory.add_(1), "name": "steps"}, torch.device("cuda"))
    first, second = step(), step()
    assert asked == [{"triton.cudagraphs": True}]
    assert (first["count"].item(), second["count"].item(), second["name"]) == (1.0, 2.0, "steps")


def test_tensors_on_the_device_are_not_copied():
    here = torch.ones(2)
    assert to_device(here, CPU) is here
