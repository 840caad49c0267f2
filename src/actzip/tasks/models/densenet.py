"""DenseNet (Huang et al. 2016): every layer reads the concatenation of all before it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class DenseLayer(nn.Module):
    """BN-ReLU-conv1×1 to a bottleneck, BN-ReLU-conv3×3 to `growth` new channels."""

    def __init__(self, inputs: int, growth: int, bottleneck: int = 4) -> None:
        super().__init__()
        width = bottleneck * growth
        self.squeeze = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, width, 1, bias=False),
        )
        self.grow = nn.Sequential(
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.grow(self.squeeze(x))], dim=1)


def transition(inputs: int, outputs: int) -> nn.Sequential:
    """Fewer channels and half the size, between two blocks."""
    return nn.Sequential(
        nn.BatchNorm2d(inputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.AvgPool2d(2),
    )


class DenseNet(nn.Module):
    """A stem, dense blocks with transitions between them, a classifier.

    `small` is the CIFAR form: the stem keeps the size of the picture.
    """

    def __init__(
        self,
        depths: Sequence[int] = (6, 12, 24, 16),
        growth: int = 32,
        stem: int = 64,
        classes: int = 1000,
        channels: int = 3,
        *,
        small: bool = False,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, stem, 3, padding=1, bias=False))
        if not small:
            self.stem = nn.Sequential(
                nn.Conv2d(channels, stem, 7, 2, padding=3, bias=False),
                nn.BatchNorm2d(stem),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(3, 2, padding=1),
            )
        width = stem
        self.blocks = nn.Sequential()
        for index, depth in enumerate(depths):
            if index > 0:
                self.blocks.append(transition(width, width // 2))
                width //= 2
            block = nn.Sequential(*(DenseLayer(width + i * growth, growth) for i in range(depth)))
            self.blocks.append(block)
            width += depth * growth
        self.norm = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.blocks(self.stem(x)))
        logits: Tensor = self.head(self.pool(x).flatten(1))
        return logits


def densenet121(classes: int = 1000, channels: int = 3) -> DenseNet:
    return DenseNet(classes=classes, channels=channels)


def densenet161(classes: int = 1000, channels: int = 3, growth: int = 48) -> DenseNet:
    return DenseNet((6, 12, 36, 24), growth, 2 * growth, classes, channels)
