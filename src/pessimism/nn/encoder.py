"""From images to features: cropping, convolutions, trunks of policy and critics, CURL's contrastive loss."""

import math
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

ConvolutionForm = Literal["orthogonal", "delta-orthogonal"]
LARGEST = 255.0  # of a pixel


class Crop(NamedTuple):
    """Cuts a window of `size` pixels out of images whose borders are repeated `padding` pixels outwards.

    With a padding of 4 and a window as large as the image it is DrQ's random shift, with none and a smaller
    window CURL's random crop. A window's place is its upper left corner, one for all frames of a stack.
    """

    image: int  # height and width of the images
    size: int  # height and width of the windows
    padding: int
    places: int  # how many places a random window may take along an axis

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw the places of `count` windows: [B, 2]."""
        return torch.randint(self.places, (count, 2), generator=generator)

    def centre(self, count: int) -> Tensor:
        """Return the place in the middle, for acting: [B, 2]."""
        return torch.full((count, 2), (self.image + 2 * self.padding - self.size) // 2)

    def __call__(self, frames: Tensor, place: Tensor) -> Tensor:
        """Cut and stack: frames [B, stack, H, W, C] (bytes), place [B, 2] -> [B, stack * C, size, size] (bytes).

        Only indices are computed: neither the padded image nor a second copy is made. The result is in
        channels-last memory format, which is fastest for the convolutions.
        """
        within = torch.arange(self.size, device=frames.device)
        corner = place.to(frames.device) - self.padding
        rows = (corner[:, 0, None] + within).clamp(0, self.image - 1)  # [B, size]
        columns = (corner[:, 1, None] + within).clamp(0, self.image - 1)
        item = torch.arange(len(frames), device=frames.device)
        pixels = frames.permute(0, 2, 3, 1, 4)  # [B, H, W, stack, C]
        window = pixels[item[:, None, None], rows[:, :, None], columns[:, None, :]]  # [B, size, size, stack, C]
        return window.flatten(3).permute(0, 3, 1, 2)


def random_shift(image: int) -> Crop:
    """Return DrQ's augmentation for images of this size: a shift by up to 4 pixels."""
    return Crop(image, image, padding=4, places=9)


def random_crop(image: int) -> Crop:
    """Return CURL's augmentation: a window of 84/100 of the size."""
    size = round(0.84 * image)
    return Crop(image, size, padding=0, places=image - size)


def no_augmentation(image: int) -> Crop:
    """Return the window that is the whole image."""
    return Crop(image, image, padding=0, places=1)


class ConvEncoder(nn.Module):
    """Four convolutions of 3 x 3, the first with stride 2 (DrQ-v2's, SAC-AE's and CURL's): bytes to features."""

    def __init__(
        self,
        channels: int,
        size: int,
        *,
        filters: int = 32,
        offset: float = 0.5,
        form: ConvolutionForm = "orthogonal",
    ) -> None:
        super().__init__()
        inputs = (channels, filters, filters, filters)
        layers = [
            nn.Conv2d(width, filters, kernel_size=3, stride=stride)
            for width, stride in zip(inputs, (2, 1, 1, 1), strict=True)
        ]
        for layer in layers:
            initialise_convolution_(layer.weight, form)
            nn.init.zeros_(cast(Tensor, layer.bias))
        self.layers = nn.ModuleList(layers)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.offset = offset
        self.features = filters * ((size - 3) // 2 + 1 - 6) ** 2

    def forward(self, images: Tensor) -> Tensor:
        """[B, channels, H, W] (bytes) -> [B, features], in the order in which they lie in memory."""
        hidden = images.float() / LARGEST - self.offset
        for layer in self.layers:
            hidden = layer(hidden).relu()
        return hidden.permute(0, 2, 3, 1).flatten(1)


def initialise_convolution_(weight: Tensor, form: ConvolutionForm) -> None:
    """Fill [out, in, 3, 3] orthogonally with gain sqrt 2; "delta" uses the centre of the kernel alone."""
    if form == "orthogonal":
        nn.init.orthogonal_(weight, math.sqrt(2))
        return
    nn.init.zeros_(weight)
    with torch.no_grad():
        weight[:, :, 1, 1] = nn.init.orthogonal_(torch.empty(weight.shape[:2]), math.sqrt(2))


class Trunk(nn.Module):
    """A narrow layer between the convolutions and what is made of them: linear, LayerNorm and, for DrQ-v2, tanh."""

    def __init__(self, inputs: int, outputs: int = 50, *, squashed: bool = True) -> None:
        super().__init__()
        self.linear, self.norm, self.squashed = nn.Linear(inputs, outputs), nn.LayerNorm(outputs), squashed

    def forward(self, features: Tensor) -> Tensor:
        """[B, features] -> [B, outputs]."""
        hidden: Tensor = self.norm(self.linear(features))
        return hidden.tanh() if self.squashed else hidden


class Contrast(nn.Module):
    """InfoNCE with a learned bilinear similarity (Laskin et al., 2020)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features, features))

    def forward(self, anchor: Tensor, positive: Tensor) -> Tensor:
        """Return the loss of telling each anchor's own positive from the others: 2 x [B, features] -> scalar."""
        logits = anchor @ self.weight @ positive.mT  # [B, B]
        return nn.functional.cross_entropy(logits, torch.arange(len(anchor), device=anchor.device))
