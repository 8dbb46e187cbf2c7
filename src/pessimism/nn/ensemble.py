"""Layers of an ensemble: one tensor with a leading axis for the N members, one batched product."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

SpectralForm = Literal["projection", "reparameterised", "none"]


def orthogonal_(weight: Tensor, gain: float) -> Tensor:
    """Fill each member's matrix [in, out] of `weight` [N, in, out] with an orthogonal one of its own."""
    for member in weight:
        nn.init.orthogonal_(member, gain)
    return weight


def xavier_(weight: Tensor) -> Tensor:
    """Fill each member's matrix of `weight` [N, in, out] uniformly, its variance 2 / (in + out)."""
    bound = math.sqrt(6 / (weight.shape[1] + weight.shape[2]))
    return nn.init.uniform_(weight, -bound, bound)


def unit_orthogonal_(module: nn.Module) -> None:
    """Draw all linear layers again, orthogonal with gain 1 (DrQ-v2, SAC-AE, CURL), except spectral ones."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
            nn.init.zeros_(layer.bias)
        elif isinstance(layer, EnsembleLinear) and not isinstance(layer, SpectralLinear):
            orthogonal_(layer.weight, 1.0)


def product(inputs: Tensor, kernel: Tensor) -> Tensor:
    """Multiply member by member: [N, B, in], [N, in, out] -> [N, B, out]."""
    if kernel.shape[-1] == 1:  # a product of width 1 is slower than multiply and sum
        return (inputs * kernel.mT).sum(-1, keepdim=True)
    return torch.bmm(inputs, kernel)


class EnsembleLinear(nn.Module):
    """N affine layers: [B, in] (shared by all) or [N, B, in] -> [N, B, out]."""

    def __init__(self, members: int, inputs: int, outputs: int, gain: float = math.sqrt(2)) -> None:
        super().__init__()
        self.weight = nn.Parameter(orthogonal_(torch.empty(members, inputs, outputs), gain))
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))

    def kernel(self) -> Tensor:
        """Return the matrices that the inputs are multiplied with: [N, in, out]."""
        return self.weight

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply all members."""
        kernel = self.kernel()
        if inputs.dim() == 2:
            inputs = inputs.expand(len(kernel), *inputs.shape)  # [N, B, in] without a copy
        return product(inputs, kernel) + self.bias


class SpectralLinear(EnsembleLinear):
    """N affine layers whose matrices have largest singular value 1 (Miyato et al., 2018).

    The singular vectors follow the weights by one power iteration per update, in `normalise_`.
    `projection` divides the stored weights there, once after each optimizer step, as the author's code
    does at each forward pass; `reparameterised` divides in the forward pass, with a gradient through sigma.
    """

    left: Tensor
    right: Tensor

    def __init__(self, members: int, size: int, form: SpectralForm) -> None:
        super().__init__(members, size, size)
        self.form = form
        self.register_buffer("left", nn.functional.normalize(torch.randn(members, size, 1), dim=1))
        self.register_buffer("right", torch.zeros(members, size, 1))
        for _ in range(10):  # the vectors start at random; later one iteration follows the weights' drift
            self.normalise_()

    def sigma(self) -> Tensor:
        """Return the largest singular values as the vectors see them: [N, 1, 1]."""
        return (self.left * self.weight * self.right.mT).sum((1, 2), keepdim=True)

    def kernel(self) -> Tensor:
        """Return the matrices that the inputs are multiplied with."""
        return self.weight / self.sigma() if self.form == "reparameterised" else self.weight

    @torch.no_grad()
    def normalise_(self) -> None:
        """Take one power iteration and, as a projection, scale the weights to sigma = 1."""
        right = nn.functional.normalize((self.weight * self.left).sum(1, keepdim=True).mT, dim=1)  # W^T u
        image = (self.weight * right.mT).sum(2, keepdim=True)  # W v: [N, in, 1]
        sigma = image.norm(dim=1, keepdim=True)
        self.right.copy_(right)
        self.left.copy_(image / sigma)
        if self.form == "projection":
            self.weight.div_(sigma)


class EnsembleLayerNorm(nn.Module):
    """Layer normalisation with a gain and a bias for each member: [N, B, size] -> [N, B, size]."""

    def __init__(self, members: int, size: int, eps: float = 1e-3) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(members, 1, size))
        self.bias = nn.Parameter(torch.zeros(members, 1, size))
        self.eps = eps

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise over the last axis."""
        normal = nn.functional.layer_norm(inputs, inputs.shape[-1:], eps=self.eps)
        return normal * self.gain + self.bias


def _square(members: int, size: int, spectral: SpectralForm) -> EnsembleLinear:
    if spectral == "none":
        return EnsembleLinear(members, size, size)
    return SpectralLinear(members, size, spectral)


class ResidualBlock(nn.Module):
    """LayerNorm, spectrally normalised layer, ReLU, spectrally normalised layer, and a skip around them."""

    def __init__(self, members: int, size: int, spectral: SpectralForm) -> None:
        super().__init__()
        self.norm = EnsembleLayerNorm(members, size)
        self.inner = _square(members, size, spectral)
        self.outer = _square(members, size, spectral)

    def hidden(self, inputs: Tensor) -> Tensor:
        """Return what the outer layer is given: [N, B, size] -> [N, B, size]."""
        return self.inner(self.norm(inputs)).relu()

    def forward(self, inputs: Tensor) -> Tensor:
        """[N, B, size] -> [N, B, size]."""
        return inputs + self.outer(self.hidden(inputs))


class UnitLinear(nn.Module):
    """N linear layers without a bias, [N, B, in] -> [N, B, out], each unit's weights a vector of length 1 (XQC).

    After a normalisation the length of the weights has no effect on the outputs. Fixed at 1, it does not grow, and
    the effective learning rate stays the same.
    """

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(orthogonal_(torch.empty(members, inputs, outputs), 1.0))
        self.normalise_()

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply all members."""
        return product(inputs, self.weight)

    def normalise_(self) -> None:
        """Project the weights back after an optimizer step."""
        unit_(self.weight)


class UnitHead(EnsembleLinear):
    """N affine layers whose units' weights, biases apart, are vectors of length 1."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__(members, inputs, outputs, 1.0)
        self.normalise_()

    def normalise_(self) -> None:
        """Project the weights back after an optimizer step."""
        unit_(self.weight)


@torch.no_grad()
def unit_(weight: Tensor) -> None:
    """Scale each unit's weights to length 1: [N, in, out], over `in`."""
    weight.div_(weight.norm(dim=1, keepdim=True))


class EnsembleBatchNorm(nn.Module):
    """Batch normalisation with statistics, a gain and a bias for each member: [N, B, size] -> [N, B, size].

    `running_mean` and `running_var` follow the batches that are normalised by their own statistics, and replace
    those in all other calls, where a single observation is enough. Variances are those of the batch itself (1/B),
    and `momentum` is the share that is kept, both as in Flax.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, members: int, size: int, momentum: float = 0.99, eps: float = 1e-3) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(members, 1, size))
        self.bias = nn.Parameter(torch.zeros(members, 1, size))
        self.register_buffer("running_mean", torch.zeros(members, 1, size))
        self.register_buffer("running_var", torch.ones(members, 1, size))
        self.momentum, self.eps = momentum, eps

    def forward(self, inputs: Tensor, *, by_batch: bool) -> Tensor:
        """Normalise over the batch, by its own statistics or by the running ones."""
        mean, var = self.running_mean, self.running_var
        if by_batch:
            mean = inputs.mean(dim=1, keepdim=True)  # [N, 1, size]
            var = (inputs - mean).square().mean(dim=1, keepdim=True)
            self._follow(mean.detach(), var.detach())
        scale = self.gain * (var + self.eps).rsqrt()
        return inputs * scale + (self.bias - mean * scale)

    @torch.no_grad()
    def _follow(self, mean: Tensor, var: Tensor) -> None:
        self.running_mean.lerp_(mean.expand_as(self.running_mean), 1 - self.momentum)
        self.running_var.lerp_(var.expand_as(self.running_var), 1 - self.momentum)


class EnsembleDropout(nn.Module):
    """Dropout whose masks are a random stream of their own: [N, B, size] -> [N, B, size].

    The mask of call t is a hash of (key, t, place). The key is drawn with the first weights, and the number of
    calls is a buffer: state_dict() holds the whole stream. Compiled and eager masks are the same.
    """

    key: Tensor
    calls: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("key", torch.randint(2**31 - 1, (1,), dtype=torch.int32))
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int32))

    def forward(self, inputs: Tensor) -> Tensor:
        """Drop inputs at random, and scale the others up."""
        self.calls.add_(1)
        places = torch.arange(inputs.numel(), dtype=torch.int32, device=inputs.device).view(inputs.shape)
        number = hashed(places + hashed(hashed(self.calls) + self.key)) & 0x7FFFFFFF  # uniform on [0, 2**31)
        kept = number >= round(self.rate * 2**31)
        return inputs * (kept.to(inputs.dtype) / (1 - self.rate))


def hashed(numbers: Tensor) -> Tensor:
    """Mix the bits of 32-bit integers; products wrap around (Wellons' low-bias hash)."""
    numbers = numbers ^ ((numbers >> 16) & 0xFFFF)
    numbers = numbers * 0x7FEB352D
    numbers = numbers ^ ((numbers >> 15) & 0x1FFFF)
    numbers = numbers * (0x846CA68B - 2**32)  # as a signed number
    return numbers ^ ((numbers >> 16) & 0xFFFF)
