"""A DCGAN pair (Radford et al. 2015): a generator and a discriminator of square images."""

from __future__ import annotations

import math

from torch import Tensor, nn


def _doublings(image: int) -> int:
    """How often a 4×4 map doubles to give the image."""
    steps = round(math.log2(image)) - 2
    if steps < 1 or 4 << steps != image:
        raise ValueError(f"a DCGAN image has a side of 8, 16, 32, 64, …, got {image}")
    return steps


class Generator(nn.Module):
    """Noise (batch, latent) to images in [-1, 1], from a 4×4 map by transposed convolutions."""

    def __init__(
        self, latent: int = 100, image: int = 64, channels: int = 3, width: int = 64
    ) -> None:
        super().__init__()
        steps = _doublings(image)
        inputs = width << (steps - 1)
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(latent, inputs, 4, bias=False),
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
        )
        for _ in range(steps - 1):
            self.layers.append(nn.ConvTranspose2d(inputs, inputs // 2, 4, 2, 1, bias=False))
            inputs //= 2
            self.layers.append(nn.BatchNorm2d(inputs))
            self.layers.append(nn.ReLU(inplace=True))
        self.layers.append(nn.ConvTranspose2d(inputs, channels, 4, 2, 1, bias=False))
        self.layers.append(nn.Tanh())

    def forward(self, noise: Tensor) -> Tensor:
        images: Tensor = self.layers(noise[:, :, None, None])
        return images


class Discriminator(nn.Module):
    """Images to one logit each: positive means real."""

    def __init__(self, image: int = 64, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        steps = _doublings(image)
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)
        )
        for _ in range(steps - 1):
            self.layers.append(nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False))
            width *= 2
            self.layers.append(nn.BatchNorm2d(width))
            self.layers.append(nn.LeakyReLU(0.2, inplace=True))
        self.layers.append(nn.Conv2d(width, 1, 4, bias=False))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images).flatten()
        return logits
