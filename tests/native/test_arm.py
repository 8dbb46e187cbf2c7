"""The C++ update for ARM, cross-compiled and run by an emulator, against torch in double precision."""

import shutil
import struct
import subprocess
from functools import partial
from pathlib import Path

import pytest
import torch

from learners import Learner, draw, needs_library
from pessimism.native import library
from pessimism.nn.backbones import DroQCritic
from pessimism.nn.critic import plain_critic, residual_critic
from pessimism.values import quantile_huber_loss, squared_td_loss

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
needs_arm = pytest.mark.skipif(
    shutil.which(COMPILER) is None or shutil.which(EMULATOR) is None,
    reason="apt-get install g++-aarch64-linux-gnu qemu-user",
)
STEPS = 2


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A program that takes one update on ARM."""
    made, source = tmp_path_factory.mktemp("arm") / "driver", Path(__file__).with_name("driver.cpp")
    flags = ["-std=c++17", "-O2", "-static", "-Wno-unknown-pragmas", f"-I{library.SOURCE.parent}"]
    subprocess.run([COMPILER, *flags, str(source), "-o", str(made)], check=True)
    return made


def floats(tensor):
    return tensor.detach().float().contiguous().numpy().tobytes()


def emulated_step(driver, learner, obs, action, target):
    """Take one update of the learner on ARM; return target critics' values, values and loss."""
    native, inputs = learner.native, torch.cat([obs, action], dim=-1)
    mean_scale, square_scale = learner.optimizer.advance().tolist()
    sizes = (native.members, len(obs), inputs.shape[1], native.hidden, native.atoms)
    sizes = (*sizes, target.shape[1] if native.quantiles else 0, native.drop_below)
    numbers = (*native.constants, learner.optimizer.lr * mean_scale, square_scale)
    tensors = [tensor for group in native.tensors for tensor in group]
    given = [struct.pack("7q11f", *sizes, *numbers)]
    given.append(struct.pack("8i", *([int(x) for streams in native.streams for x in streams] or [0] * 8)))
    for tensor in tensors:
        given += [struct.pack("q", 0)] if tensor is None else [struct.pack("q", tensor.numel()), floats(tensor)]
    made = subprocess.run(
        [EMULATOR, str(driver)], input=b"".join([*given, floats(inputs), floats(target)]), stdout=-1, check=True
    )
    result = torch.frombuffer(bytearray(made.stdout), dtype=torch.float32)
    shape = (native.members, len(obs), native.atoms)
    count = native.members * len(obs) * native.atoms
    before, values, losses, *updated = result.split(
        [count, count, native.members, *(tensor.numel() for tensor in tensors if tensor is not None)]
    )
    with torch.no_grad():
        for tensor, new in zip((tensor for tensor in tensors if tensor is not None), updated, strict=True):
            tensor.copy_(new.view_as(tensor))
    for _, calls in zip(*[iter(x for streams in native.streams for x in streams)] * 2, strict=True):
        calls.add_(1)
    return before.view(shape), values.view(shape), losses.sum()


@needs_arm
@needs_library
@pytest.mark.slow
@pytest.mark.parametrize("build", [plain_critic, residual_critic, partial(DroQCritic, dropout=0.3)])
@pytest.mark.parametrize(
    ("sizes", "atoms"), [((2, 50, 23, 64), 1), ((3, 9, 5, 21), 1), ((2, 20, 9, 32), 5)], ids=str
)
def test_updates_on_arm_agree_with_torch(driver, build, sizes, atoms):
    members, batch, inputs, hidden = sizes
    td_loss = squared_td_loss if atoms == 1 else quantile_huber_loss
    fast = Learner(partial(build, atoms=atoms), members, inputs, hidden, td_loss=td_loss)
    exact = fast.copied(torch.float64)
    for step in range(STEPS):
        given = draw(step, batch, inputs, atoms)
        wanted = exact.torch_step(*(x.double() for x in given))
        for one, two in zip(emulated_step(driver, fast, *given), wanted, strict=True):
            torch.testing.assert_close(one.double(), two, atol=1e-5, rtol=1e-5)
    state = exact.state()
    for name, value in fast.state().items():
        wanted = state[name].double()
        torch.testing.assert_close(value.double(), wanted, atol=5e-6 * wanted.abs().max().item(), rtol=0, msg=name)
