"""Vision transformer (Dosovitskiy et al. 2020): an image as a sequence of patches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from actzip.tasks.models.attention import Attention


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a LayerNorm and around a skip."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class ViT(nn.Module):
    """Patches and a class token through `depth` blocks; the class token is classified."""

    def __init__(
        self,
        image: int = 224,
        patch: int = 16,
        width: int = 384,
        depth: int = 12,
        heads: int = 6,
        classes: int = 1000,
        channels: int = 3,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if image % patch or width % heads:
            raise ValueError(
                f"patches must tile the image and heads the width, got image={image}, "
                f"patch={patch}, width={width}, heads={heads}"
            )
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        x = self.blocks(self.dropout(x + self.position))
        logits: Tensor = self.head(self.norm(x)[:, 0])
        return logits


def vit_s16(classes: int = 1000, channels: int = 3) -> ViT:
    return ViT(classes=classes, channels=channels)
