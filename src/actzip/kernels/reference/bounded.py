"""Bounded in plain PyTorch, second half: symbols to bytes, block by block, and back."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import (
    BITMAP,
    BLOCK,
    BLOCKS_PER_CHUNK,
    DELTA,
    MAX_WIDTH,
    OFFSET_MASK,
    PLAIN,
    RAW,
    SCALE,
    BoundedLayout,
    sections,
)
from actzip.kernels.errors import DamagedError
from actzip.kernels.reference.bounded_symbols import (
    dequantize,
    padded,
    quantize,
    residuals,
    unpredict,
)


def encode(
    x: Tensor, layout: BoundedLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor:
    symbols, raw, levels = quantize(x, layout, seed)
    headers, codes, present = _choose(symbols, raw, layout)
    sizes = _sizes(headers, present, layout)
    ends = sizes.cumsum(0)
    starts = ends - sizes
    table, total = 8 * layout.chunks, int(sizes.sum())
    data = allocate(table + layout.blocks + total)
    entries = starts[::BLOCKS_PER_CHUNK] | levels << 56
    data[:table] = _bytes_of(entries, 8).view(-1)
    data[table : table + layout.blocks] = headers.to(torch.uint8)
    body = data[table + layout.blocks :]
    values = padded(x, BLOCK).view(torch.uint8)
    for header in torch.unique(headers).tolist():
        rows = headers == header
        if header == RAW:
            parts = values[rows]
        else:
            parts = _pack(codes[rows], present[rows], header % 32)
            if header // 32 & ~1 == BITMAP:
                parts = _with_bitmap(parts, present[rows], _lengths(layout, x.device)[rows])
        _scatter(body, starts[rows], sizes[rows], parts)
    return data


def decode(data: Tensor, layout: BoundedLayout, seed: int, out: Tensor) -> None:
    parts = sections(layout, data)
    if parts is None:
        raise DamagedError(
            f"bounded_decode: {data.numel()} bytes are too few for {layout.n} values"
        )
    table, headers, body = parts
    entries = _integers(table.view(-1, 8))
    levels = entries >> 56 & 255
    if bool((levels >= len(SCALE)).any()):
        raise DamagedError("bounded_decode: the stored bytes are damaged")
    starts, present = _locate(headers.long(), entries & OFFSET_MASK, body, layout)
    symbols = _unpack(headers.long(), starts, present, body, layout)
    raw = headers == RAW
    delta = headers // 32 == DELTA
    delta &= headers != RAW
    symbols = unpredict(symbols, delta, layout)
    inside = torch.arange(layout.blocks * BLOCK, device=data.device) < layout.n
    symbols = torch.where(inside.view(-1, BLOCK), symbols, torch.zeros_like(symbols))
    out.copy_(dequantize(symbols, layout, levels, seed))
    if bool(raw.any()):
        values = padded(out, BLOCK)
        size = BLOCK * layout.itemsize
        values[raw] = _gather(body, starts[raw], size).contiguous().view(layout.dtype)
        out.copy_(values.view(-1)[: layout.n])


def packed_sizes(symbols: Tensor, raw: Tensor, layout: BoundedLayout) -> Tensor:
    """Bytes of each block when packed."""
    headers, _, present = _choose(symbols, raw, layout)
    return _sizes(headers, present, layout)


def _lengths(layout: BoundedLayout, device: torch.device) -> Tensor:
    """Values of each block: 64, fewer in the last."""
    lengths = torch.full((layout.blocks,), BLOCK, device=device)
    if layout.blocks:
        lengths[-1] = layout.n - (layout.blocks - 1) * BLOCK
    return lengths


def _choose(symbols: Tensor, raw: Tensor, layout: BoundedLayout) -> tuple[Tensor, Tensor, Tensor]:
    """Header, codes and which codes are there, for each block; the rules of bounded_encode.hpp."""
    lengths = _lengths(layout, symbols.device)
    inside = torch.arange(BLOCK, device=symbols.device) < lengths[:, None]
    is_signed = (symbols < 0).any(1)
    codes = torch.where(is_signed[:, None], zigzag(symbols), symbols)
    largest = codes.amax(1)
    width, short = _bit_width(largest), _bit_width((largest - 1).clamp(min=0))
    nonzero = symbols != 0
    count = nonzero.sum(1)
    plain = (lengths * width + 7) // 8
    bitmap = (lengths + 7) // 8 + (count * short + 7) // 8
    raw = raw | ((width > 0) & (torch.minimum(plain, bitmap) >= lengths * layout.itemsize))
    symbols[raw] = 0
    steps = zigzag(residuals(symbols, layout)) * inside
    delta_width = _bit_width(steps.amax(1))
    delta = (lengths * delta_width + 7) // 8
    use_delta = (width > 0) & (4 * count >= 3 * lengths) & (delta < torch.minimum(plain, bitmap))
    use_bitmap = (width > 0) & (bitmap < plain) & ~use_delta
    headers = (PLAIN + is_signed.long()) * 32 + width
    headers = torch.where(use_bitmap, (BITMAP + is_signed.long()) * 32 + short, headers)
    headers = torch.where(use_delta, DELTA * 32 + delta_width, headers)
    headers = torch.where(raw, torch.full_like(headers, RAW), headers)
    codes = torch.where(use_bitmap[:, None], (codes - 1).clamp(min=0), codes)
    codes = torch.where(use_delta[:, None], steps, codes)
    return headers, codes, torch.where(use_bitmap[:, None], nonzero, inside)


def _sizes(headers: Tensor, present: Tensor, layout: BoundedLayout) -> Tensor:
    lengths = _lengths(layout, headers.device)
    size = (present.sum(1) * (headers % 32) + 7) // 8
    size = size + torch.where(headers // 32 & ~1 == BITMAP, (lengths + 7) // 8, 0)
    return torch.where(headers == RAW, lengths * layout.itemsize, size)


def zigzag(s: Tensor) -> Tensor:
    return torch.where(s < 0, -2 * s - 1, 2 * s)


def unzigzag(u: Tensor) -> Tensor:
    return torch.where(u & 1 == 1, -(u >> 1) - 1, u >> 1)


def _bit_width(v: Tensor) -> Tensor:
    return (v[:, None] >= 2 ** torch.arange(MAX_WIDTH + 1, device=v.device)).sum(1)


def _positions(present: Tensor, width: int) -> Tensor:
    """The bit at which each present code begins; absent ones go to a place that is cut off."""
    before = present.long().cumsum(1) - 1
    return torch.where(present, before * width, BLOCK * width)


def _pack(codes: Tensor, present: Tensor, width: int) -> Tensor:
    """Codes of equal width, one block per row, least significant bit first."""
    bits = torch.arange(width, device=codes.device)
    places = (_positions(present, width)[:, :, None] + bits).flatten(1)
    stream = torch.zeros(
        codes.shape[0], BLOCK * width + width, dtype=torch.long, device=codes.device
    )
    stream.scatter_(1, places, (codes[:, :, None] >> bits & 1).flatten(1))
    octets = stream[:, : BLOCK * width].reshape(codes.shape[0], 8 * width, 8)
    return (octets << torch.arange(8, device=codes.device)).sum(2).to(torch.uint8)


def _with_bitmap(parts: Tensor, present: Tensor, lengths: Tensor) -> Tensor:
    """Each row's bitmap, as long as the block needs, before its codes."""
    octets = present.view(-1, 8, 8).long() << torch.arange(8, device=parts.device)
    joined = torch.cat([octets.sum(2).to(torch.uint8), parts], 1)
    short = (lengths + 7) // 8
    if int(short.min()) < 8:  # only the last block of a tensor
        joined[-1] = torch.cat(
            [joined[-1, : int(short[-1])], parts[-1], joined[-1, int(short[-1]) : 8]]
        )
    return joined


def _scatter(body: Tensor, starts: Tensor, sizes: Tensor, parts: Tensor) -> None:
    columns = torch.arange(parts.shape[1], device=body.device)
    wanted = columns < sizes[:, None]
    body[(starts[:, None] + columns)[wanted]] = parts[wanted]


def _gather(body: Tensor, starts: Tensor, size: int) -> Tensor:
    """`size` bytes from each start; zeros past the end."""
    places = starts[:, None] + torch.arange(size, device=body.device)
    longer = torch.cat([body, body.new_zeros(1)])
    return longer[places.clamp(max=body.numel())]


def _bytes_of(values: Tensor, count: int) -> Tensor:
    shifts = 8 * torch.arange(count, device=values.device)
    return (values[:, None] >> shifts & 255).to(torch.uint8)


def _integers(octets: Tensor) -> Tensor:
    shifts = 8 * torch.arange(octets.shape[1], device=octets.device)
    return (octets.long() << shifts).sum(1)


def _locate(
    headers: Tensor, offsets: Tensor, body: Tensor, layout: BoundedLayout
) -> tuple[Tensor, Tensor]:
    """Where each block begins, and which of its codes are there; every length is checked."""
    combo, width = headers // 32, headers % 32
    lengths = _lengths(layout, headers.device)
    end = torch.tensor([body.numel()], device=offsets.device)
    ends = torch.cat([offsets, end])[1:]
    bad = (headers != RAW) & ((combo > DELTA) | (width > MAX_WIDTH))
    if bool(bad.any()) or bool((offsets > ends).any()) or bool((ends > body.numel()).any()):
        raise DamagedError("bounded_decode: the stored bytes are damaged")
    present = torch.arange(BLOCK, device=headers.device) < lengths[:, None]
    is_map = (combo & ~1 == BITMAP) & (headers != RAW)
    starts = torch.zeros_like(headers)
    at = offsets.clone()
    for b in range(
        min(BLOCKS_PER_CHUNK, layout.blocks)
    ):  # the chunks side by side, block after block
        rows = torch.arange(b, layout.blocks, BLOCKS_PER_CHUNK, device=headers.device)
        here = at[: rows.numel()]
        octets = _gather(body, here, 8)[:, :, None].long() >> torch.arange(8, device=at.device)
        bits = (octets & 1).view(-1, BLOCK).bool()
        present[rows] &= bits | ~is_map[rows, None]
        size = _sizes(headers, present, layout)[rows]
        starts[rows] = here
        at[: rows.numel()] += size
        if bool((at > ends).any()):
            raise DamagedError("bounded_decode: the stored bytes are damaged")
    return starts, present


def _unpack(
    headers: Tensor, starts: Tensor, present: Tensor, body: Tensor, layout: BoundedLayout
) -> Tensor:
    """Symbols of each block, residuals where the mode is delta, zeros where it is raw."""
    symbols = torch.zeros(headers.numel(), BLOCK, dtype=torch.long, device=headers.device)
    map_bytes = (_lengths(layout, headers.device) + 7) // 8
    bit = torch.arange(8, device=headers.device)
    for header in torch.unique(headers[headers != RAW]).tolist():
        rows = headers == header
        combo, width = header // 32, header % 32
        is_map = combo & ~1 == BITMAP
        begin = starts[rows] + map_bytes[rows] * int(is_map)
        stream = _gather(body, begin, 8 * width + 4)[:, :, None].long() >> bit & 1
        bits = torch.arange(width, device=headers.device)
        places = _positions(present[rows], width)[:, :, None] + bits
        taken = stream.flatten(1).gather(1, places.flatten(1)).view(places.shape)
        codes = (taken << bits).sum(2) + int(is_map)
        codes = torch.where(present[rows], codes, torch.zeros_like(codes))
        symbols[rows] = unzigzag(codes) if combo & 1 or combo == DELTA else codes
    return symbols
