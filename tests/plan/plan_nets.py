"""Small networks of several kinds, as `actzip plan` takes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from actzip.tasks.config import Config, make

CONFIGS: dict[str, Config] = {
    "resnet": make(task="classify", model="resnet8", batch=10, side=16),
    "vit": make(task="classify", model="vit", batch=5, sizes={"depth": 1}),
    "unet": make(task="segment", batch=2, side=32, sizes={"width": 16}),
    "gpt": make(task="lm", batch=3, length=40, sizes={"depth": 1}),
}


class Gated(nn.Module):
    """A gated MLP behind a norm, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.gate, self.up, self.down = nn.Linear(64, 128), nn.Linear(64, 128), nn.Linear(128, 64)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        out: Tensor = x + self.drop(self.down(nn.functional.silu(self.gate(y)) * self.up(y)))
        return out


def gated() -> tuple[nn.Module, Any]:
    return nn.Sequential(Gated(), Gated()), torch.randn(32, 64)


def recurrent() -> tuple[nn.Module, Any]:
    return nn.GRU(16, 24, batch_first=True), torch.randn(4, 6, 16)


def looks_at_values() -> tuple[nn.Module, Any]:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(x)
            return y * 2 if float(y.sum()) > 0 else y

    return Looks(), torch.randn(4, 8)
