"""Bounded with the entropy stage, without the C++ library: PyTorch, and numpy for the coder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from actzip.kernels.bounded_layout import (
    BLOCK,
    BLOCKS_PER_CHUNK,
    CHUNK,
    SCALE,
    BoundedLayout,
    worst_case,
)
from actzip.kernels.bounded_squeezed import (
    DIRECT,
    ESCAPE,
    SqueezeTable,
    choose_table,
    extra_bits,
    look_every,
    split,
)
from actzip.kernels.entropy_table import SPAN, SYMBOLS, as_tensor
from actzip.kernels.errors import DamagedError
from actzip.kernels.reference.bounded import packed_sizes, unzigzag, zigzag
from actzip.kernels.reference.bounded_symbols import (
    dequantize,
    padded,
    quantize,
    residuals,
    unpredict,
)
from actzip.kernels.reference.entropy import Bytes, Ints, decode_spans, encode_spans

_EXTRA_ROOM = 2 * SPAN  #: bytes of extra bits that a span may have


def encode(
    x: Tensor, layout: BoundedLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor | None:
    """The payload, or None when plain packing is shorter."""
    symbols, raw, levels = quantize(x, layout, seed)
    table = _look(symbols.clone(), raw, layout)
    if table is None:
        return None
    codes = _codes(symbols, layout, table.is_signed).view(-1)[: layout.n].cpu().numpy()
    wanted = _symbol_of(codes)
    missing = np.array(table.frequencies)[wanted] == 0
    found: Bytes = np.where(missing, ESCAPE, wanted).astype(np.uint8)
    values = padded(x, BLOCK).view(torch.uint8).cpu().numpy()
    spans = []
    for k, coded in enumerate(encode_spans(found, table.frequencies)):
        here = slice(k * SPAN, (k + 1) * SPAN)
        extra = _extra_bytes(found[here], codes[here])
        if len(extra) > _EXTRA_ROOM:
            return None
        kept = _raw_bytes(values, raw.cpu().numpy(), k, layout)
        spans.append(len(coded).to_bytes(4, "little") + coded + extra + kept)
    sizes = np.array([len(s) for s in spans], dtype=np.int64)
    offsets = (np.cumsum(sizes) - sizes).astype("<u8").tobytes()
    maps = padded(raw, BLOCKS_PER_CHUNK).view(-1, 8, 8).long() << torch.arange(8, device=x.device)
    head = bytes(levels.tolist()) + bytes(maps.sum(2).view(-1).tolist())
    joined = table.stored() + head + offsets + b"".join(spans)
    if len(joined) > worst_case(layout):
        return None
    data = allocate(len(joined))
    data.copy_(as_tensor(joined, data.device))
    return data


def decode(data: Tensor, layout: BoundedLayout, seed: int, out: Tensor) -> None:
    parts = split(data, layout)
    levels = parts.levels.long()
    raw = (parts.raw[:, None] >> torch.arange(8, device=data.device) & 1).bool().view(-1)
    if bool((levels >= len(SCALE)).any()) or bool(raw[layout.blocks :].any()):
        raise DamagedError("bounded_decode: the stored bytes are damaged")
    raw = raw[: layout.blocks]
    coded, extras, kept = _cut(parts.offsets, parts.body, raw, layout)
    found = decode_spans(coded, parts.table.frequencies, layout.n)
    codes = _with_extra(found, extras)
    symbols = padded(torch.from_numpy(codes).to(data.device), BLOCK)
    if parts.table.is_signed or layout.width:
        symbols = unzigzag(symbols)
    if layout.width:
        symbols = unpredict(symbols, torch.ones_like(raw), layout)
    inside = torch.arange(layout.blocks * BLOCK, device=data.device) < layout.n
    symbols = torch.where(inside.view(-1, BLOCK), symbols, torch.zeros_like(symbols))
    symbols = ((symbols + 2**31) & 0xFFFFFFFF) - 2**31
    values = padded(dequantize(symbols, layout, levels, seed), BLOCK)
    if bool(raw.any()):
        values[raw] = padded(kept.view(layout.dtype), BLOCK)
    out.copy_(values.view(-1)[: layout.n])


def _look(symbols: Tensor, raw: Tensor, layout: BoundedLayout) -> SqueezeTable | None:
    """The table from every so manyth chunk, as bounded_count finds it."""
    every = look_every(layout)
    chunk = torch.arange(layout.blocks * BLOCK, device=symbols.device) // CHUNK
    looked = (chunk % every == 0)[: layout.n]
    flat = symbols.view(-1)[: layout.n][looked]
    signed = _codes(symbols, layout, True).view(-1)[: layout.n][looked]
    counts = _count(signed) + _count(flat[flat >= 0]) + [int((flat < 0).sum())]
    sizes = packed_sizes(symbols, raw, layout)
    packed = int(
        sizes[torch.arange(layout.blocks, device=raw.device) // BLOCKS_PER_CHUNK % every == 0].sum()
    )
    return choose_table(counts, packed, layout)


def _count(codes: Tensor) -> list[int]:
    found = torch.from_numpy(_symbol_of(codes.cpu().numpy()).astype(np.int64))
    counts: list[int] = torch.bincount(found, minlength=SYMBOLS).tolist()
    return counts


def _codes(symbols: Tensor, layout: BoundedLayout, is_signed: bool) -> Tensor:
    """Codes as unsigned 32-bit numbers; negative ones without a sign are large."""
    if layout.width:
        return zigzag(residuals(symbols, layout))
    return zigzag(symbols) if is_signed else symbols & 0xFFFFFFFF


def _symbol_of(codes: Ints) -> Ints:
    """64 direct symbols, then eight per octave; see csrc/bounded_squeeze.hpp."""
    exponent = np.floor(np.log2(np.maximum(codes, 1))).astype(np.int64)
    octave = DIRECT + (exponent - 6) * 8 + ((codes >> np.maximum(exponent - 3, 0)) & 7)
    found = np.where(exponent > 29, ESCAPE, octave)
    return np.where(codes < DIRECT, codes, found)


def _extra_bytes(found: Bytes, codes: Ints) -> bytes:
    """The low bits of all codes above the direct ones, least significant bit first."""
    held, bits = 0, 0
    for symbol, code in zip(found[found >= DIRECT], codes[found >= DIRECT], strict=True):
        width = extra_bits(int(symbol))
        held |= (int(code) & ((1 << width) - 1)) << bits
        bits += width
    return held.to_bytes((bits + 7) // 8, "little")


def _with_extra(found: Bytes, extras: Sequence[Bytes]) -> Ints:
    codes = found.astype(np.int64)
    for k, stream in enumerate(extras):
        held, bits = int.from_bytes(stream.tobytes(), "little"), 8 * len(stream)
        for i in np.flatnonzero(found[k * SPAN : (k + 1) * SPAN] >= DIRECT) + k * SPAN:
            symbol = int(found[i])
            width = extra_bits(symbol)
            place = symbol - DIRECT
            base = 0 if symbol == ESCAPE else (8 + place % 8) << (place // 8 + 3)
            codes[i] = base + (held & ((1 << width) - 1))
            held >>= width
            bits -= width
        if bits < 0:
            raise DamagedError("bounded_decode: the stored bytes are damaged")
    return codes


def _raw_bytes(values: Bytes, raw: Bytes, span: int, layout: BoundedLayout) -> bytes:
    per_span = SPAN // BLOCK
    rows = np.flatnonzero(raw[span * per_span : (span + 1) * per_span]) + span * per_span
    joined = values[rows].tobytes()
    if len(rows) and rows[-1] == layout.blocks - 1:
        joined = joined[: len(joined) - (layout.blocks * BLOCK - layout.n) * layout.itemsize]
    return joined


def _cut(
    offsets: Tensor, body: Tensor, raw: Tensor, layout: BoundedLayout
) -> tuple[list[Bytes], list[Bytes], Tensor]:
    """Coded symbols and extra bits of each span, and the values of all raw blocks."""
    begins = np.frombuffer(offsets.cpu().numpy().tobytes(), dtype="<i8").astype(np.int64)
    ends = np.append(begins, body.numel())[1:]
    if (begins < 0).any() or (begins > ends).any() or (ends > body.numel()).any():
        raise DamagedError("bounded_decode: the stored bytes are damaged")
    lengths = torch.full((layout.blocks,), BLOCK * layout.itemsize)
    if layout.blocks:
        lengths[-1] -= (layout.blocks * BLOCK - layout.n) * layout.itemsize
    kept_bytes = padded(lengths * raw.cpu(), SPAN // BLOCK).sum(1).tolist()
    coded, extras, kept = [], [], [body.new_zeros(0)]
    for begin, end, size in zip(begins.tolist(), ends.tolist(), kept_bytes, strict=True):
        length = int.from_bytes(bytes(body[begin : begin + 4].tolist()), "little")
        if begin + 4 + length + size > end:
            raise DamagedError("bounded_decode: the stored bytes are damaged")
        part = body[begin + 4 : end].cpu().numpy()
        coded.append(part[:length])
        extras.append(part[length : len(part) - size])
        kept.append(body[end - size : end])
    return coded, extras, torch.cat(kept).clone()
