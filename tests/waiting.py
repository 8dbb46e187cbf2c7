"""A stand-in for a GPU: whatever would make the host wait for one is an error."""

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
WAITS = {aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default, aten.equal.default}


class NoWaiting(TorchDispatchMode):
    """Refuses to read values of a tensor from Python, but for the steps that torch.optim counts on the host."""

    def __init__(self, agent: nn.Module) -> None:
        super().__init__()
        self.on_host = {buffer.data_ptr() for name, buffer in agent.named_buffers() if name == "pessimism.step"}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Let everything else pass."""
        assert func not in WAITS or args[0].data_ptr() in self.on_host, f"{func} waits for the device"
        return func(*args, **(kwargs or {}))
