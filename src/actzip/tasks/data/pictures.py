"""Pictures of one size held as bytes; normalised, augmented and enlarged a batch at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_CHUNK = 256  #: pictures measured at a time


@dataclass(frozen=True, eq=False)
class Scale:
    """Mean and deviation per channel, of the training pictures."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, images: Tensor) -> Scale:
        """Measured over uint8 pictures (n, C, H, W); a channel without contrast keeps its scale."""
        count = images.numel() / images.shape[1]
        total = torch.zeros(images.shape[1], dtype=torch.float64)
        square = torch.zeros_like(total)
        for part in images.split(_CHUNK):
            values = part.float()  # exact; only the sum of a chunk is rounded
            total += values.sum((0, 2, 3))
            square += values.square_().sum((0, 2, 3))
        mean = total / count
        deviation = (square / count - mean**2).clamp(min=0).sqrt()
        deviation[deviation == 0] = 1
        return cls(mean.float(), deviation.float())

    def apply(self, images: Tensor) -> Tensor:
        """float32 pictures of mean 0 and deviation 1."""
        shape = (1, -1, 1, 1)
        return (images.float() - self.mean.view(shape)) / self.deviation.view(shape)


@dataclass(frozen=True)
class Augment:
    """A random crop of the picture padded with black by `pad`, and a horizontal flip."""

    pad: int = 0
    flip: bool = False

    def apply(self, images: Tensor, rng: torch.Generator) -> Tensor:
        """As many draws from `rng` for each picture, whatever they turn out to be."""
        n, channels, height, width = images.shape
        top = torch.randint(2 * self.pad + 1, (n, 1), generator=rng)
        left = torch.randint(2 * self.pad + 1, (n, 1), generator=rng)
        flipped = torch.rand(n, 1, generator=rng) < 0.5 * self.flip
        columns = torch.arange(width).expand(n, -1)
        columns = torch.where(flipped, width - 1 - columns, columns) + left
        rows = torch.arange(height) + top
        padded = F.pad(images, (self.pad,) * 4)
        return padded[
            torch.arange(n).view(n, 1, 1, 1),
            torch.arange(channels).view(1, -1, 1, 1),
            rows.view(n, 1, height, 1),
            columns.view(n, 1, 1, width),
        ]


def resize(images: Tensor, side: int) -> Tensor:
    """float pictures as (n, C, side, side), bilinear; smoothed first where they shrink."""
    if images.shape[-2:] == (side, side):
        return images
    shrinks = side < max(images.shape[-2:])
    return F.interpolate(images, (side, side), mode="bilinear", antialias=shrinks)


@dataclass(frozen=True, eq=False)
class Pictures:
    """Examples of classify: uint8 pictures (n, C, H, W) with a label each."""

    images: Tensor
    labels: Tensor
    scale: Scale
    side: int
    augment: Augment = Augment()

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, indices: Tensor, rng: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Pictures (n, C, side, side) and their labels (n,)."""
        images = self.images[indices]
        if rng is not None and self.augment != Augment():
            images = self.augment.apply(images, rng)
        return resize(self.scale.apply(images), self.side), self.labels[indices]
