"""What the conformance kit feeds to codecs: shapes, dtypes, layouts, special values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

#: Makes a tensor of a shape and dtype from a generator.
Values = Callable[[tuple[int, ...], torch.dtype, torch.Generator], Tensor]

SHAPES: tuple[tuple[int, ...], ...] = (
    (),
    (0,),
    (1,),
    (31,),
    (33,),
    (255,),
    (256,),
    (257,),
    (1031,),
    (0, 3, 4),
    (2, 3, 7),
    (3, 2, 9, 10),
    (2, 2, 0, 5),
    (2, 3, 2, 5, 8),
)

#: The shapes that are also filled with special values.
ODD: tuple[tuple[int, ...], ...] = ((), (33,), (257,), (2, 3, 7), (3, 2, 9, 10))

DTYPES: tuple[torch.dtype, ...] = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
)


def ordinary(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Normal values, a third of them zero; integers over a few hundred values; fair bits."""
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    if dtype == torch.bool:
        return x > 0
    if not dtype.is_floating_point:
        return (x * 40).round().clamp(-120, 120).abs().to(dtype)
    return torch.where(x.abs() < 0.4, torch.zeros_like(x), x * 3 + 0.5).to(dtype)


def layouts(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The same kind of values in every layout that a tensor of this rank can have."""
    yield "contiguous", x
    if x.dim() >= 2:
        yield "transposed", x.transpose(0, -1).contiguous().transpose(0, -1)
        yield "transposed view", x.transpose(0, 1)
    if x.dim() == 4:
        yield "channels_last", x.contiguous(memory_format=torch.channels_last)
    if x.dim() == 5:
        yield "channels_last_3d", x.contiguous(memory_format=torch.channels_last_3d)
    if x.dim() >= 1 and x.shape[-1] > 1:
        yield "expanded", x[..., :1].expand(x.shape)
        wide = torch.stack([x, x], -1).flatten(-2)
        yield "strided", wide[..., ::2]
        yield "sliced with an offset", torch.cat([x, x], -1)[..., 1 : 1 + x.shape[-1]]
    if x.dim() == 1 and x.numel() > 4:
        yield "overlapping", x.unfold(0, 3, 1).reshape(-1)[: x.numel()]
        yield "overlapping view", x.unfold(0, 3, 1)


def special(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Floating tensors of x's shape and dtype with the values that break codecs."""
    info = torch.finfo(x.dtype)
    yield "zeros", torch.zeros_like(x)
    yield "negative zeros", -torch.zeros_like(x)
    yield "a constant", torch.full_like(x, 1000.3)
    yield "denormals", (x.double() * info.smallest_normal / 16).to(x.dtype)
    yield "the largest values", torch.full_like(x, info.max).copysign(x)
    yield "a large mean", (x.double() * 0.01 + 500).to(x.dtype)
    yield "all NaN", torch.full_like(x, float("nan"))
    for name, value in (("NaN", float("nan")), ("inf", float("inf")), ("-inf", -float("inf"))):
        if x.numel():
            spoiled = x.clone()
            spoiled.view(-1)[x.numel() // 2] = value
            yield f"one {name}", spoiled
