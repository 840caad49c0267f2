"""Bounded with the entropy stage, without the C++ library: PyTorch, and numpy for the coder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from actzip.kernels.bounded_entropy_layout import (
    COUNTS_OF,
    DIRECT,
    ESCAPE,
    NEGATIVE,
    Choice,
    Kind,
    choose,
    extra_bits,
    head,
    looked_at,
    split,
)
from actzip.kernels.bounded_layout import (
    BLOCK,
    BLOCKS_PER_CHUNK,
    CHUNK,
    SCALE,
    BoundedLayout,
    worst_case,
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
    choice = _look(symbols.clone(), raw, layout)  # which packing would change
    if choice is None:
        return None
    codes = _codes(symbols, layout, choice.kind).view(-1)[: layout.n].cpu().numpy()
    wanted = _symbol_of(codes)
    missing = np.array(choice.table.frequencies)[wanted] == 0
    found: Bytes = np.where(missing, ESCAPE, wanted).astype(np.uint8)
    values = padded(x, BLOCK).view(torch.uint8).cpu().numpy()
    spans = []
    for k, coded in enumerate(encode_spans(found, choice.table)):
        here = slice(k * SPAN, (k + 1) * SPAN)
        extra = _extra_bytes(found[here], codes[here])
        if len(extra) > _EXTRA_ROOM:
            return None
        kept = _raw_bytes(values, raw.cpu().numpy(), k, layout)
        spans.append(len(coded).to_bytes(4, "little") + coded + extra + kept)
    maps = padded(raw, BLOCKS_PER_CHUNK).view(-1, 8, 8).long() << torch.arange(8, device=x.device)
    maps = maps.sum(2).view(-1).to(torch.uint8)
    sizes = torch.tensor([len(s) for s in spans], device=x.device)
    first = head(choice, levels.to(torch.uint8), maps, sizes)
    body = as_tensor(b"".join(spans), x.device)
    if first.numel() + body.numel() > worst_case(layout):
        return None
    data = allocate(first.numel() + body.numel())
    torch.cat([first, body], out=data)
    return data


def decode(data: Tensor, layout: BoundedLayout, seed: int, out: Tensor) -> None:
    parts = split(data, layout)
    levels = parts.levels.long()
    raw = (parts.raw[:, None] >> torch.arange(8, device=data.device) & 1).bool().view(-1)
    if bool((levels >= len(SCALE)).any()) or bool(raw[layout.blocks :].any()):
        raise DamagedError("bounded_decode: the stored bytes are damaged")
    raw = raw[: layout.blocks]
    coded, extras, kept = _cut(parts.offsets, parts.body, raw, layout)
    kind = parts.choice.kind
    found = decode_spans(coded, parts.choice.table, layout.n)
    codes = _with_extra(found, extras)
    symbols = padded(torch.from_numpy(codes).to(data.device), BLOCK)
    if kind != Kind.UNSIGNED:
        symbols = unzigzag(symbols)
    if kind == Kind.DIFFERENCES:
        symbols = unpredict(symbols, torch.ones_like(raw), layout)
    inside = torch.arange(layout.blocks * BLOCK, device=data.device) < layout.n
    symbols = torch.where(inside.view(-1, BLOCK), symbols, torch.zeros_like(symbols))
    symbols = ((symbols + 2**31) & 0xFFFFFFFF) - 2**31
    values = padded(dequantize(symbols, layout, levels, seed), BLOCK)
    if bool(raw.any()):
        values[raw] = padded(kept.view(layout.dtype), BLOCK)
    out.copy_(values.view(-1)[: layout.n])


def _look(symbols: Tensor, raw: Tensor, layout: BoundedLayout) -> Choice | None:
    """What some of the chunks ask for, as bounded_count finds it."""
    here = torch.zeros(layout.chunks, dtype=torch.bool, device=symbols.device)
    here[looked_at(layout).to(symbols.device)] = True
    looked = here.repeat_interleave(CHUNK)[: layout.n]
    counts = [0] * (NEGATIVE + 1)
    for kind, begin in COUNTS_OF.items():
        codes = _codes(symbols, layout, kind).view(-1)[: layout.n][looked]
        if kind == Kind.UNSIGNED:
            counts[NEGATIVE] = int((codes >> 31).sum())
            codes = codes[codes >> 31 == 0]
        counts[begin : begin + SYMBOLS] = _count(codes)
    blocks = here.repeat_interleave(BLOCKS_PER_CHUNK)[: layout.blocks]
    packed = int(packed_sizes(symbols, raw, layout)[blocks].sum())
    return choose(counts, packed, layout)


def _count(codes: Tensor) -> list[int]:
    found = torch.from_numpy(_symbol_of(codes.cpu().numpy()).astype(np.int64))
    counts: list[int] = torch.bincount(found, minlength=SYMBOLS).tolist()
    return counts


def _codes(symbols: Tensor, layout: BoundedLayout, kind: Kind) -> Tensor:
    """Codes as unsigned 32-bit numbers; negative ones without a sign are large."""
    if kind == Kind.DIFFERENCES:
        return zigzag(residuals(symbols, layout))
    return zigzag(symbols) if kind == Kind.SIGNED else symbols & 0xFFFFFFFF


def _symbol_of(codes: Ints) -> Ints:
    """64 direct symbols, then eight per octave; see csrc/bounded/squeeze.hpp."""
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
    ends = [*offsets.tolist()[1:], body.numel()][: offsets.numel()]
    lengths = torch.full((layout.blocks,), BLOCK * layout.itemsize)
    if layout.blocks:
        lengths[-1] -= (layout.blocks * BLOCK - layout.n) * layout.itemsize
    kept_bytes = padded(lengths * raw.cpu(), SPAN // BLOCK).sum(1).tolist()
    coded, extras, kept = [], [], [body.new_zeros(0)]
    for begin, end, size in zip(offsets.tolist(), ends, kept_bytes, strict=True):
        length = int.from_bytes(bytes(body[begin : begin + 4].tolist()), "little")
        if begin + 4 + length + size > end:
            raise DamagedError("bounded_decode: the stored bytes are damaged")
        part = body[begin + 4 : end].cpu().numpy()
        coded.append(part[:length])
        extras.append(part[length : len(part) - size])
        kept.append(body[end - size : end])
    return coded, extras, torch.cat(kept).clone()
