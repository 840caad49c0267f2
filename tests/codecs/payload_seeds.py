"""Small honest payloads of every codec, dtype and layout: what the fuzzer starts from."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.codecs import (
    BitMask,
    Bounded,
    Cast,
    Centred,
    Codec,
    Dithered,
    Dual,
    FixedPoint,
    Group,
    Index,
    Keep,
    Payload,
    Rectified,
    Split,
    Window,
)

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def _values(*shape: int) -> Tensor:
    """Normal numbers, half of them zero, with a NaN and an infinity."""
    n = torch.Size(shape).numel()
    x = torch.randn(n, generator=torch.Generator().manual_seed(n)).clamp(min=0)
    x[n // 3], x[n // 2] = float("nan"), float("inf")
    return x.view(shape)


def _floating() -> list[tuple[Codec, Tensor]]:
    x, maps = _values(4, 3, 8), _values(2, 3, 6, 8)
    last = maps.to(memory_format=torch.channels_last)
    calm = maps.nan_to_num(0.0, 0.0)
    return [
        (Keep(), x),
        (Keep(), x[:, :1].expand(4, 3, 8)),
        (Keep(), x[:, :, ::2]),
        (Cast(torch.bfloat16), x),
        (Cast(torch.float16), x),
        (BitMask(), x),
        (BitMask(on=2.0), (x > 0) * 2.0),
        *((Group(bits=bits), x) for bits in (1, 2, 5, 8)),
        (Group(bits=3, group_size=10, zero=True), last),
        (Group(bits=(1, 8, 2, 4), group_size=7), x),
        (Group(bits=2, entropy=True), calm),
        (Group(bits=(1, 2, 2, 4), group_size=64, entropy=True), torch.ones(4, 300)),
        (Dual(block=3), maps),
        (Dual(block=3, zero=True, rounding="stochastic"), last),
        (Dual(block=2, bits=4, axes=(1,)), x),
        (Dual(block=4, bits=1, align="original"), calm),
        (Bounded(0.1), x),
        (Bounded(1e-3, rounding="nearest"), maps),
        (Bounded((0.1, 0.01, 1.0)), maps),
        (Bounded(0.5, predict="lorenzo"), calm),
        (Bounded(0.5, entropy=True), torch.ones(5000)),
        (Bounded(1e-3, entropy=True), _values(1000)),
        (Bounded(1e-2, entropy=True, predict="lorenzo"), torch.linspace(0, 9, 1024).view(32, 32)),
        (Dithered(3.0), torch.linspace(-3, 3, 4200)),
        (Dithered((2.0, 0.5), origin=0.5, coarser=2.0), torch.linspace(-3, 3, 4200).view(-1, 2)),
        (Dithered(0.1, origin=0.5), maps),
        (Centred((1.0, -2.0), 0.5), torch.linspace(-3, 3, 4200).view(-1, 2)),
        (Rectified(0.1), x),
        (Rectified(1.0), torch.linspace(-3, 3, 4200).clamp(min=0)),
        (Rectified(0.2), _values(4100)),
        (FixedPoint(4), maps),
        (FixedPoint((2, 16, 5), skip_zeros=True), x),
        (FixedPoint(6, rounding="nearest", channel_dim=-1), x),
        (Split(Group(bits=2), 3), x),
        (Split(Bounded(0.1, entropy=True), 2), calm),
        (Split(Group(bits=(1, 2, 3, 4)), 4), x),
    ]


def payloads() -> list[Payload]:
    """One of each, the floating ones in one dtype after the other."""
    window = Window((3, 2), (2, 2), (1, 0), (1, 1), (6, 6))
    spatial = torch.zeros(2, 3, 6, 6)
    pooled = torch.nn.functional.max_pool2d(
        spatial, (3, 2), (2, 2), (1, 0), return_indices=True, ceil_mode=False
    )[1]
    found = [
        codec.encode(x.to(FLOATS[i % 4]) if i % 5 else x, seed=i)
        for i, (codec, x) in enumerate(_floating())
    ]
    numbers = torch.arange(60).view(3, 20)
    others: list[tuple[Codec, Tensor]] = [
        (window, pooled),
        (Window((1,), (1,), (0,), (1,), (9,)), torch.arange(9).expand(2, 9).contiguous()),
        (Index(), numbers),
        (Index(), (numbers % 7).to(torch.uint8)),
        (Index(), torch.full((50,), 9, dtype=torch.int32)),
        (Split(Index(), 2), numbers),
        (BitMask(), numbers % 3 == 0),
        (Keep(), torch.randn(5, dtype=torch.complex64)),
        (Keep(), torch.empty(3, 0)),
        (FixedPoint(3), torch.empty(0, 5)),
        (Group(4), torch.tensor(2.5)),
    ]
    return found + [codec.encode(x, seed=2**64 - 1) for codec, x in others]
