"""A one-stage detector (FCOS, Tian et al. 2019): every place of a map votes for one object.

A small ResNet, a feature pyramid (Lin et al. 2016) of strides 4, 8 and 16, and one head shared
by its levels. For each place the head gives class logits, the distances from the place to the
four sides of its object, and how central the place is in it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actzip.tasks.models.resnet import BasicBlock, conv3x3, initialise

STRIDES = (4, 8, 16)
_PRIOR = 0.01  #: a place is an object this often; else the first steps drown in background


class Prediction(NamedTuple):
    """What the head says about all places of all levels, the finest level first."""

    logits: Tensor  #: (n, places, classes)
    distances: Tensor  #: (n, places, 4): to left, top, right, bottom, in pixels, positive
    centerness: Tensor  #: (n, places), a logit


class Places(NamedTuple):
    """Where the places are; the same for every picture of a size."""

    points: Tensor  #: (places, 2): x, y in pixels
    strides: Tensor  #: (places,)


class Backbone(nn.Module):
    """A ResNet of basic blocks; the maps of strides 4, 8 and 16."""

    def __init__(self, channels: int, width: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv3x3(channels, width, 2), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.stages = nn.ModuleList()
        for stage in range(len(STRIDES)):
            first = BasicBlock(width << max(stage - 1, 0), width << stage, 2)
            rest = (BasicBlock(width << stage, width << stage) for _ in range(depth - 1))
            self.stages.append(nn.Sequential(first, *rest))

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


class Pyramid(nn.Module):
    """Coarse maps, enlarged, are added to the finer ones: all levels know the whole picture."""

    def __init__(self, inputs: list[int], width: int) -> None:
        super().__init__()
        self.reduce = nn.ModuleList(nn.Conv2d(each, width, 1) for each in inputs)
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in inputs)

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        levels = [reduce(x) for reduce, x in zip(self.reduce, maps, strict=True)]
        for fine in reversed(range(len(levels) - 1)):
            size = levels[fine].shape[-2:]
            levels[fine] = levels[fine] + F.interpolate(levels[fine + 1], size, mode="nearest")
        return [smooth(x) for smooth, x in zip(self.smooth, levels, strict=True)]


def tower(width: int, depth: int) -> nn.Sequential:
    layers = nn.Sequential()
    for _ in range(depth):
        layers.append(nn.Conv2d(width, width, 3, padding=1, bias=False))
        layers.append(nn.GroupNorm(8, width))
        layers.append(nn.ReLU(inplace=True))
    return layers


class Head(nn.Module):
    """Two towers, one for the class, one for the box; the same weights at every level."""

    def __init__(self, classes: int, width: int, depth: int) -> None:
        super().__init__()
        self.classify = tower(width, depth)
        self.locate = tower(width, depth)
        self.logits = nn.Conv2d(width, classes, 3, padding=1)
        self.distances = nn.Conv2d(width, 4, 3, padding=1)
        self.centerness = nn.Conv2d(width, 1, 3, padding=1)
        self.scales = nn.Parameter(torch.ones(len(STRIDES)))
        prior = -math.log((1 - _PRIOR) / _PRIOR)
        for layer, bias in ((self.logits, prior), (self.distances, 0.0), (self.centerness, 0.0)):
            nn.init.normal_(layer.weight, std=0.01)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, bias)

    def forward(self, levels: list[Tensor]) -> Prediction:
        parts = []
        for index, x in enumerate(levels):
            located = self.locate(x)
            # exp keeps distances positive; the clamp keeps a wild first step finite
            raw = (self.distances(located) * self.scales[index]).clamp(max=8)
            maps = (self.logits(self.classify(x)), raw.exp() * STRIDES[index])
            parts.append((*maps, self.centerness(located)))
        logits, distances, centerness = (
            torch.cat([each.flatten(2).transpose(1, 2) for each in kind], dim=1)
            for kind in zip(*parts, strict=True)
        )
        return Prediction(logits, distances, centerness.squeeze(-1))


class Detector(nn.Module):
    """Pictures (n, C, H, W) to a Prediction over all places; `places` says where these are."""

    def __init__(
        self,
        classes: int,
        channels: int = 3,
        width: int = 32,
        depth: int = 2,
        pyramid: int = 64,
        tower: int = 2,
    ) -> None:
        super().__init__()
        if pyramid % 8:
            raise ValueError(f"the pyramid's width is cut into 8 groups, got {pyramid}")
        self.backbone = Backbone(channels, width, depth)
        self.pyramid = Pyramid([width << stage for stage in range(len(STRIDES))], pyramid)
        initialise(self)
        self.head = Head(classes, pyramid, tower)

    def forward(self, x: Tensor) -> Prediction:
        prediction: Prediction = self.head(self.pyramid(self.backbone(x)))
        return prediction


def places(height: int, width: int) -> Places:
    """The middle of every cell of every level, in the order of a Prediction."""
    points, strides = [], []
    for stride in STRIDES:
        rows, columns = -(-height // stride), -(-width // stride)
        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        points.append((torch.stack([x, y], dim=-1).flatten(0, 1) + 0.5) * stride)
        strides.append(torch.full((rows * columns,), float(stride)))
    return Places(torch.cat(points), torch.cat(strides))
