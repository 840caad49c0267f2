"""Random tensors and codecs for comparing backends."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from actzip.codecs import BitMask, Codec, Dithered, Dual, Group, Index

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ODD = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 3.4e38, 1e-42)
ROUNDING = ("dither", "stochastic", "nearest")


def floats(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Normal values, or what is left of them after something that happens to activations."""
    generator = torch.Generator().manual_seed(rng.getrandbits(60))
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    kind = rng.choice(["normal", "relu", "scaled", "shifted", "constant", "negative zero", "odd"])
    if kind == "relu":
        x = x.relu()
    elif kind == "scaled":
        x = x * 10.0 ** rng.randint(-42, 38)
    elif kind == "shifted":
        x = x + rng.uniform(-1000, 1000)
    elif kind == "constant":
        x = torch.full_like(x, rng.uniform(-10, 10))
    elif kind == "negative zero":
        x = -x.relu()
    x = x.to(dtype)
    if kind == "odd" and x.numel():
        for _ in range(rng.randint(1, 4)):
            x.view(-1)[rng.randrange(x.numel())] = rng.choice(ODD)
    return x


def group(rng: random.Random) -> tuple[Codec, Tensor]:
    n = rng.choice([0, 1, 5, 31, 32, 33, 64, 255, 256, 257, 1000, 3000, 20000])
    samples = rng.choice([0, 0, 0, 1, 2, 5])
    bits = tuple(rng.randint(1, 8) for _ in range(samples)) or rng.randint(1, 8)
    size = rng.choice([1, 2, 7, 31, 32, 33, 64, 100, 256, 1024, 5000])
    codec = Group(bits, size, rng.choice(ROUNDING), rng.random() < 0.5)
    return codec, floats(rng, (samples, n) if samples else (n,), rng.choice(FLOATS))


def dual(rng: random.Random) -> tuple[Codec, Tensor]:
    rank = rng.randint(1, 3)
    top = {1: 100, 2: 33, 3: 12}[rank]
    sides = [rng.randint(1, top) for _ in range(rank)]
    if rng.random() < 0.5:  # maps of whole blocks of 32 are coded in registers
        sides = [side + -side % 8 for side in sides]
    samples, channels = rng.randint(0, 3), rng.choice([1, 3, 40, 64])
    last = rng.random() < 0.5
    shape = (samples, *sides, channels) if last else (samples, channels, *sides)
    x = floats(rng, shape, rng.choice(FLOATS))
    block, bits = rng.choice([1, 2, 5, 8, 8]), rng.randint(1, 8)
    align, rounding, zero = (
        rng.choice(["ceil", "original"]),
        rng.choice(ROUNDING),
        rng.random() < 0.5,
    )
    if last and rng.random() < 0.5:  # channels innermost in memory only
        x, last = x.movedim(-1, 1), False
    axes = tuple(range(1, 1 + rank)) if last else None
    return Dual(block, bits, align, rounding, zero, axes), x


def mask(rng: random.Random) -> tuple[Codec, Tensor]:
    n = rng.choice([0, 1, 7, 8, 9, 31, 32, 33, 1000, 70000])
    x = floats(rng, (n,), rng.choice(FLOATS))
    kind = rng.choice(["bool", "relu", "noise"])
    if kind == "bool":
        return BitMask(), x > 0
    if kind == "relu":
        return BitMask(), x
    on = rng.choice([1.25, 2.0, 1 / 0.9, -3.0])
    level = torch.tensor(on, dtype=x.dtype)
    return BitMask(on=on), torch.where(x > 0, level, torch.zeros_like(level))


def index(rng: random.Random) -> tuple[Codec, Tensor]:
    dtype = rng.choice(INTS)
    info = torch.iinfo(dtype)
    low = rng.randint(info.min, info.max - 1)
    high = min(info.max, low + 2 ** rng.randint(0, 63))
    n = rng.choice([0, 1, 7, 8, 33, 1000, 40000])
    generator = torch.Generator().manual_seed(rng.getrandbits(60))
    x = torch.randint(low, high, (n,), generator=generator, dtype=torch.int64).to(dtype)
    return Index(), x


def dithered(rng: random.Random) -> tuple[Codec, Tensor]:
    channels = rng.choice([1, 3, 7])
    shape = (rng.choice([1, 5, 100, 700, 3000]), channels, rng.choice([1, 2, 9]))
    error = 10 ** rng.uniform(-1.5, 1.5)
    each = tuple(error * rng.uniform(0.1, 3) for _ in range(channels))
    origins = tuple(rng.uniform(-1, 1) for _ in range(channels))
    origin = rng.choice([None, None, 0.0, 0.3, origins])
    coarser = 1.0 if origin is None else rng.choice([1.0, 3.0])
    x = floats(rng, shape, rng.choice(FLOATS))
    x = x.transpose(1, 2) if rng.random() < 0.3 else x
    fit = x.shape[1] == channels
    codec = Dithered(rng.choice([error, each]) if fit else error, 1, origin, coarser)
    return (codec if fit or origin is not origins else Dithered(error)), x


MAKERS = {"group": group, "dual": dual, "mask": mask, "index": index, "dithered": dithered}
