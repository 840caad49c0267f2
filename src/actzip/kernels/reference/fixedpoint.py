"""Per-channel fixed point in plain PyTorch; the format is that of csrc/fixedpoint/chunk.hpp."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import BLOCK, BLOCKS_PER_CHUNK
from actzip.kernels.entropy_table import as_tensor
from actzip.kernels.errors import DamagedError
from actzip.kernels.fixedpoint_layout import DITHER, NEAREST, FixedPointLayout
from actzip.kernels.reference.bounded_symbols import padded
from actzip.kernels.reference.dither import dither

_WIDEST = 16


def largest(x: Tensor, layout: FixedPointLayout) -> Tensor:
    """The largest finite magnitude of each channel."""
    found = torch.zeros(len(layout.bits), dtype=layout.real, device=x.device)
    size = x.to(layout.real).abs()
    size = torch.where(size < torch.inf, size, torch.zeros_like(size))
    return found.scatter_reduce(0, _channels(layout, layout.n, x.device), size, "amax")


def encode(
    x: Tensor, layout: FixedPointLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor:
    most = largest(x, layout)
    steps = layout.steps(most)
    codes = padded(_quantize(x, layout, steps, layout.limits(most), seed), BLOCK)
    values = padded(x, BLOCK)
    inside = torch.arange(values.numel(), device=x.device).view(-1, BLOCK) < layout.n
    present = inside & (values != 0) if layout.skip_zeros else inside
    parts = _pack(codes, present, inside, layout)
    kept = (codes == 0) & present
    chunks = []
    for first in range(0, values.shape[0], BLOCKS_PER_CHUNK):
        here = slice(first, first + BLOCKS_PER_CHUNK)
        raw = values[here][kept[here]].view(torch.uint8)
        chunks.append(b"".join(parts[here]) + bytes(raw.tolist()))
    offsets, at = b"", 0
    for chunk in chunks:
        offsets += at.to_bytes(8, "little")
        at += len(chunk)
    joined = bytes(steps.view(torch.uint8).tolist()) + offsets + b"".join(chunks)
    data = allocate(len(joined))
    data.copy_(as_tensor(joined, x.device))
    return data


def decode(data: Tensor, layout: FixedPointLayout, seed: int, out: Tensor) -> None:
    start = layout.steps_size + 8 * layout.chunks
    if data.numel() < start:
        raise DamagedError(f"fixedpoint_decode: {data.numel()} bytes are too few")
    steps = data[: layout.steps_size].clone().view(layout.real)
    raw = bytes(data.tolist())
    table = range(layout.steps_size, start, 8)
    begins = [int.from_bytes(raw[i : i + 8], "little", signed=True) for i in table]
    ends = [*begins, len(raw) - start][1:]
    codes, present, kept = [], [], []
    for chunk, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if not 0 <= begin <= end <= len(raw) - start:
            raise DamagedError("fixedpoint_decode: the stored bytes are damaged")
        blocks = _Chunk(raw[start + begin : start + end], layout, chunk)
        codes += blocks.codes
        present += blocks.present
        kept.append(blocks.kept)
    u = torch.tensor(codes, dtype=torch.long, device=data.device)
    there = torch.tensor(present, dtype=torch.bool, device=data.device)
    out.copy_(_dequantize(u, there, layout, steps, seed))
    missing = there & (u == 0)
    if bool(missing.any()):
        out[missing] = as_tensor(b"".join(kept), data.device).view(layout.dtype)


def _channels(layout: FixedPointLayout, n: int, device: torch.device) -> Tensor:
    return torch.arange(n, device=device) // layout.inner % len(layout.bits)


def _widths(layout: FixedPointLayout, n: int, device: torch.device) -> Tensor:
    return torch.tensor(layout.bits, device=device)[_channels(layout, n, device)]


def _quantize(
    x: Tensor, layout: FixedPointLayout, steps: Tensor, limits: Tensor, seed: int
) -> Tensor:
    """Codes q + 2^(bits - 1), 0 for values to be kept as they are."""
    channel = _channels(layout, layout.n, x.device)
    inv = torch.where(steps > 0, 1.0 / steps, torch.zeros_like(steps))[channel]
    top = (2 ** (_widths(layout, layout.n, x.device) - 1) - 1).to(layout.real)
    v = dither(seed, 0, layout.n, x.device).to(layout.real)
    wide = x.to(layout.real)
    q = torch.round(wide * inv + v * (layout.rounding != NEAREST))
    q = torch.where(q < top, q, top)
    q = torch.where(q > -top, q, -top)
    back = (q - v * (layout.rounding == DITHER)) * steps[channel]
    error = (wide - back.to(layout.dtype).to(layout.real)).abs()
    code = (q + top + 1).long()
    return torch.where(error <= limits[channel], code, torch.zeros_like(code))


def _dequantize(
    u: Tensor, present: Tensor, layout: FixedPointLayout, steps: Tensor, seed: int
) -> Tensor:
    top = (2 ** (_widths(layout, layout.n, u.device) - 1) - 1).to(layout.real)
    v = dither(seed, 0, layout.n, u.device).to(layout.real) * (layout.rounding == DITHER)
    back = ((u.to(layout.real) - top - 1) - v) * steps[_channels(layout, layout.n, u.device)]
    return torch.where(present, back, torch.zeros_like(back)).to(layout.dtype)


def _pack(codes: Tensor, present: Tensor, inside: Tensor, layout: FixedPointLayout) -> list[bytes]:
    """The bytes of each block: bitmap if asked for, then the codes that are there."""
    widths = _widths(layout, codes.numel(), codes.device).view(-1, BLOCK) * present
    bits = torch.arange(_WIDEST, device=codes.device)
    ends = widths.cumsum(1)
    places = (ends - widths)[:, :, None] + bits
    wanted = bits < widths[:, :, None]
    places = torch.where(wanted, places, BLOCK * _WIDEST)
    stream = torch.zeros(codes.shape[0], BLOCK * _WIDEST + 1, dtype=torch.long, device=codes.device)
    stream.scatter_(1, places.flatten(1), (codes[:, :, None] >> bits & 1).flatten(1))
    weights = 1 << torch.arange(8, device=codes.device)
    octets = (stream[:, :-1].view(-1, 2 * BLOCK, 8) * weights).sum(2).to(torch.uint8)
    maps = (present.view(-1, 8, 8) * weights).sum(2).to(torch.uint8)
    map_sizes = ((inside.sum(1) + 7) // 8 * layout.skip_zeros).tolist()
    sizes = ((ends[:, -1] + 7) // 8).tolist()
    return [
        bytes(maps[k, : map_sizes[k]].tolist()) + bytes(octets[k, : sizes[k]].tolist())
        for k in range(codes.shape[0])
    ]


class _Chunk:
    """The codes of a chunk, which of them are there, and the bytes of values kept as they are."""

    def __init__(self, raw: bytes, layout: FixedPointLayout, chunk: int) -> None:
        self.codes: list[int] = []
        self.present: list[bool] = []
        at, first = 0, chunk * BLOCK * BLOCKS_PER_CHUNK
        last = min(layout.n, first + BLOCK * BLOCKS_PER_CHUNK)
        for begin in range(first, last, BLOCK):
            here = min(BLOCK, last - begin)
            held = (1 << here) - 1
            if layout.skip_zeros:
                held &= int.from_bytes(_take(raw, at, (here + 7) // 8), "little")
                at += (here + 7) // 8
            there = [bool(held >> i & 1) for i in range(here)]
            places = range(begin, begin + here)
            widths = [layout.bits[i // layout.inner % len(layout.bits)] for i in places]
            size = (sum(w for w, t in zip(widths, there, strict=True) if t) + 7) // 8
            stream = int.from_bytes(_take(raw, at, size), "little")
            at += size
            for width, is_there in zip(widths, there, strict=True):
                self.codes.append(stream & ((1 << width) - 1) if is_there else 0)
                stream >>= width if is_there else 0
            self.present += there
        lost = sum(t and c == 0 for c, t in zip(self.codes, self.present, strict=True))
        self.kept = _take(raw, at, lost * layout.dtype.itemsize)


def _take(raw: bytes, at: int, size: int) -> bytes:
    if at + size > len(raw):
        raise DamagedError("fixedpoint_decode: the stored bytes are damaged")
    return raw[at : at + size]
