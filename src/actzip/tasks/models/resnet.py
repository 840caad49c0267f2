"""Residual networks (He et al. 2015): the ImageNet form and the smaller CIFAR form."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def conv1x1(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 1, stride, bias=False)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The identity where shapes agree, else a projection."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(conv1x1(inputs, outputs, stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = conv3x3(inputs, width, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = shortcut(inputs, width, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += self.shortcut(x)
        out: Tensor = self.relu(y)
        return out


class Bottleneck(nn.Module):
    """1×1 down, 3×3 with the stride, 1×1 up to four times the width."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = conv1x1(inputs, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = conv1x1(width, outputs)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.shortcut = shortcut(inputs, outputs, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.shortcut(x)
        out: Tensor = self.relu(y)
        return out


class ResNet(nn.Module):
    """A stem, stages of residual blocks that halve the map and double the width, a classifier."""

    def __init__(
        self,
        stem: nn.Module,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        width: int,
        classes: int,
    ) -> None:
        super().__init__()
        self.stem = stem
        self.stages = nn.Sequential()
        inputs = width
        for stage, depth in enumerate(depths):
            blocks = nn.Sequential()
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(inputs, width << stage, stride))
                inputs = (width << stage) * block.expansion
            self.stages.append(blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inputs, classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        logits: Tensor = self.head(self.pool(x).flatten(1))
        return logits


def initialise(model: nn.Module) -> None:
    """He's initialisation, which keeps the variance through ReLUs."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def imagenet_stem(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, width, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, padding=1),
    )


def cifar_stem(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(conv3x3(channels, width), nn.BatchNorm2d(width), nn.ReLU(inplace=True))


def resnet18(classes: int = 1000, channels: int = 3, width: int = 64) -> ResNet:
    return ResNet(imagenet_stem(channels, width), BasicBlock, (2, 2, 2, 2), width, classes)


def resnet50(classes: int = 1000, channels: int = 3, width: int = 64) -> ResNet:
    return ResNet(imagenet_stem(channels, width), Bottleneck, (3, 4, 6, 3), width, classes)


def resnet152(classes: int = 1000, channels: int = 3, width: int = 64) -> ResNet:
    return ResNet(imagenet_stem(channels, width), Bottleneck, (3, 8, 36, 3), width, classes)


def cifar_resnet(depth: int, classes: int = 10, channels: int = 3, width: int = 16) -> ResNet:
    """The CIFAR form: three stages of (depth - 2) / 6 basic blocks; depth is 8, 14, 20, 26, …"""
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(
            f"a CIFAR ResNet has a depth of 6n + 2 (8, 14, 20, 32, 44, 56, 110), got {depth}"
        )
    blocks = (depth - 2) // 6
    return ResNet(cifar_stem(channels, width), BasicBlock, (blocks,) * 3, width, classes)


def resnet8(classes: int = 10, channels: int = 3) -> ResNet:
    return cifar_resnet(8, classes, channels)


def resnet20(classes: int = 10, channels: int = 3) -> ResNet:
    return cifar_resnet(20, classes, channels)
