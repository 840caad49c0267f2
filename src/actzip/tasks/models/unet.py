"""U-Net (Ronneberger et al. 2015): down, up, and a skip at every size; a label per pixel."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """`levels` halvings of the map, each doubling the width, and the same way back.

    Height and width of the input must be multiples of 2**levels.
    """

    def __init__(
        self, classes: int = 2, channels: int = 3, width: int = 64, levels: int = 4
    ) -> None:
        super().__init__()
        self.levels = levels
        self.first = double_conv(channels, width)
        self.down = nn.ModuleList(double_conv(width << i, width << (i + 1)) for i in range(levels))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(width << (i + 1), width << i, 2, stride=2)
            for i in reversed(range(levels))
        )
        self.merge = nn.ModuleList(
            double_conv(width << (i + 1), width << i) for i in reversed(range(levels))
        )
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        if (height | width) & ((1 << self.levels) - 1):
            raise ValueError(
                f"a U-Net of {self.levels} levels needs sides that are multiples of "
                f"{1 << self.levels}, got {height}×{width}; pad or crop the images"
            )
        x = self.first(x)
        skips = []
        for down in self.down:
            skips.append(x)
            x = down(self.pool(x))
        for up, merge, skip in zip(self.up, self.merge, reversed(skips), strict=True):
            x = merge(torch.cat([skip, up(x)], dim=1))
        logits: Tensor = self.head(x)
        return logits
