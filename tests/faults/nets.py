"""Small models whose saved tensors cover the roles: masks, indices, geometry, shared, plain."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def convnet(dropout: float = 0.25) -> nn.Sequential:
    """Convolutions, batch norm, ReLU in and out of place, max-pool, dropout, linear."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.Dropout(dropout),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 6 * 6, 10),
    )


def batch(seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 3, 16, 16, generator=g).to(dtype)
    return x, torch.randint(0, 10, (4,), generator=g)


def loss_of(seed: int = 0, dtype: torch.dtype = torch.float32) -> Callable[[nn.Module], Tensor]:
    x, y = batch(seed, dtype)
    return lambda model: F.cross_entropy(model(x), y)
