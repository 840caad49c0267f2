"""Custom autograd functions as users write them; programs call them by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable


def total(*tensors: Tensor) -> Tensor:
    """A loss whose gradient tells the elements of each tensor apart."""
    parts = [torch.zeros((), dtype=torch.float64, requires_grad=True)]
    for t in tensors:
        real = t.abs() if t.is_complex() else t
        weight = torch.linspace(-1, 1.5, real.numel(), dtype=torch.float64).reshape(real.shape)
        parts.append((real * weight.to(real.dtype)).sum().double())
    return torch.stack(parts).sum()


class Cube(Function):
    """Saves its input, and can be differentiated twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * g * x * x


class Exp(Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.tanh().exp()
        ctx.save_for_backward(y, x)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        y, x = ctx.saved_tensors
        return g * y * (1 - x.tanh() ** 2)


class Gate(Function):
    """Saves a mask, a tensor made inside and one that is not there; backward runs once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        mask, inside = x > 0, y.sigmoid()
        ctx.save_for_backward(mask, inside, None)
        return x * mask, inside * 2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        mask, inside, _ = ctx.saved_tensors
        return g * mask, 2 * h * inside * (1 - inside)


class Double_(Function):
    """Edits its input in place and says so."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g


class Setup(Function):
    """Forward without a context."""

    @staticmethod
    def forward(x: Tensor, scale: float) -> Tensor:
        return torch.sin(x * scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return g * ctx.scale * torch.cos(x * ctx.scale), None


class Straight(Function):
    """Gives its input back, and saves a view of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x[..., :1])
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g + 0 * x


class Block(nn.Module):
    """A residual block with an edit in place."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu_(self.up(self.norm(x)))
        return x + self.down(h)


class Cleared(nn.Module):
    """Zeroes a row of its weight in each forward pass."""

    def __init__(self, width: int):
        super().__init__()
        self.w = nn.Parameter(torch.ones(width, width) / width)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.w[0].zero_()
        return x @ self.w


#: Templates that use what is above.
CUSTOM = [
    "Cube.apply({a})",
    "Exp.apply({a})",
    "Gate.apply({a}, {q})",
    "Double_.apply({a})",
    "Double_.apply({a}.clone())",
    "Setup.apply({a}, {c})",
    "Straight.apply({a})",
    "Cube.apply({a}.clone()[..., 0])",
]
