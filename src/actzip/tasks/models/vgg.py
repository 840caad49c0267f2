"""VGG (Simonyan & Zisserman 2014): 3×3 convolutions, max-pooling, a wide classifier."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))
VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG(nn.Module):
    """Stages of convolutions, each ended by a 2×2 max-pool; adaptive pooling; three Linears."""

    def __init__(
        self,
        stages: Sequence[Sequence[int]],
        classes: int = 1000,
        channels: int = 3,
        *,
        norm: bool = False,
        hidden: int = 4096,
        pooled: int = 7,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.stages = nn.Sequential()
        for widths in stages:
            stage = nn.Sequential()
            for width in widths:
                stage.append(nn.Conv2d(channels, width, 3, padding=1))
                if norm:
                    stage.append(nn.BatchNorm2d(width))
                stage.append(nn.ReLU(inplace=True))
                channels = width
            stage.append(nn.MaxPool2d(2))
            self.stages.append(stage)
        self.pool = nn.AdaptiveAvgPool2d(pooled)
        self.head = nn.Sequential(
            nn.Linear(channels * pooled * pooled, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stages(x))
        logits: Tensor = self.head(x.flatten(1))
        return logits


def vgg11(classes: int = 1000, channels: int = 3, *, norm: bool = False) -> VGG:
    return VGG(VGG11, classes, channels, norm=norm)


def vgg16(classes: int = 1000, channels: int = 3, *, norm: bool = False) -> VGG:
    return VGG(VGG16, classes, channels, norm=norm)
