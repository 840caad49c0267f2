"""Bounded with the entropy stage, without the C++ library: PyTorch, and numpy for the coder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
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
from actzip.kernels.entropy_table import SPAN, SYMBOLS, Table, as_tensor
from actzip.kernels.errors import DamagedError
from actzip.kernels.reference import raw_blocks
from actzip.kernels.reference.bounded import packed_sizes, unzigzag, zigzag
from actzip.kernels.reference.bounded_symbols import (
    dequantize,
    padded,
    quantize,
    residuals,
    unpredict,
)
from actzip.kernels.reference.entropy import decode_spans, encode_spans
from actzip.kernels.reference.entropy_rows import Bytes, Ints
from actzip.kernels.reference.parts import (
    blocks_of,
    chains_at_once,
    chunks_of,
    part_of,
    parts,
    span_of,
    span_parts,
)

_EXTRA_ROOM = 2 * SPAN  #: bytes of extra bits that a span may have
_DAMAGED = "bounded_decode: the stored bytes are damaged"


def encode(
    x: Tensor, layout: BoundedLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor | None:
    """The payload, or None when plain packing is shorter."""
    choice = _look(x, layout, seed)
    if choice is None:
        return None
    spans: list[bytes] = []
    levels = torch.zeros(layout.chunks, dtype=torch.uint8, device=x.device)
    raw = torch.zeros(layout.blocks, dtype=torch.bool, device=x.device)
    for batch in chains_at_once(-(-layout.n // SPAN), choice.table.chain):
        symbols, after = [], []
        for span in batch:
            whole = span_of(layout, span)
            held = torch.zeros(whole.n, dtype=torch.int32, device=x.device)
            for part in span_parts(layout, span):
                here, is_raw, level = quantize(part_of(x, part), part, seed)
                found = _codes(here, part, choice.kind).view(-1)[: part.n]
                held[part.first - whole.first :][: part.n] = found
                blocks_of(raw, part).copy_(is_raw)
                chunks_of(levels, part).copy_(level)
            extra, codes = _Extra(), held.cpu().numpy().view(np.uint32)
            for at in range(0, whole.n, 2 * CHUNK):
                few = codes[at : at + 2 * CHUNK].astype(np.int64)
                symbols.append(_coded_symbols(few, choice.table))
                extra.add(symbols[-1], few)
            kept = raw_blocks.values_of(part_of(x, whole), blocks_of(raw, whole))
            after.append((extra.stored(), kept))
        coded = encode_spans(np.concatenate(symbols), choice.table)
        for words, (extras, kept) in zip(coded, after, strict=True):
            if len(extras) > _EXTRA_ROOM:
                return None
            spans.append(len(words).to_bytes(4, "little") + words + extras + kept)
    sizes = torch.tensor([len(s) for s in spans], device=x.device)
    first = head(choice, levels, raw_blocks.bitmap(raw), sizes)
    body = as_tensor(b"".join(spans), x.device)
    if first.numel() + body.numel() > worst_case(layout):
        return None
    data = allocate(first.numel() + body.numel())
    torch.cat([first, body], out=data)
    return data


def decode(data: Tensor, layout: BoundedLayout, seed: int, out: Tensor) -> None:
    cut = split(data, layout)
    levels, kind = cut.levels.long(), cut.choice.kind
    if bool((levels >= len(SCALE)).any()):
        raise DamagedError(_DAMAGED)
    raw = raw_blocks.from_bitmap(cut.raw, layout, "bounded_decode")
    cuts = _spans(cut.offsets, cut.body, raw, layout)
    read = _read(cuts, cut.body, cut.choice, layout)
    for part, symbols in unpredict(read, layout) if kind == Kind.DIFFERENCES else read:
        values = dequantize(symbols, part, chunks_of(levels, part), seed)
        begin = cuts[part.first // SPAN].kept
        part_of(out, part).copy_(raw_blocks.put_back(values, raw, part, cut.body, begin))


def _read(
    cuts: Sequence[_Span], body: Tensor, choice: Choice, layout: BoundedLayout
) -> Iterator[tuple[BoundedLayout, Tensor]]:
    """Symbols of each part, or residuals; modulo 2^32, as the C++ twin computes."""
    octets = body.cpu().numpy()
    for batch in chains_at_once(len(cuts), choice.table.chain):
        begin, end = batch.start * SPAN, min(layout.n, batch.stop * SPAN)
        coded = [octets[cuts[k].coded] for k in batch]
        found = decode_spans(coded, choice.table, end - begin)
        for k in batch:
            codes = _with_extra(found[k * SPAN - begin :][:SPAN], octets[cuts[k].extra])
            for part in span_parts(layout, k):
                here = codes[part.first - k * SPAN :][: part.n].astype(np.int64)
                symbols = padded(torch.from_numpy(here).to(body.device), BLOCK)
                symbols = unzigzag(symbols) if choice.kind != Kind.UNSIGNED else symbols
                yield part, ((symbols + 2**31) & 0xFFFFFFFF) - 2**31


def _look(x: Tensor, layout: BoundedLayout, seed: int) -> Choice | None:
    """What some of the chunks ask for, as bounded_count finds it."""
    looked = np.zeros(layout.chunks, dtype=bool)
    looked[looked_at(layout).numpy()] = True
    counts = torch.zeros(NEGATIVE + 2, dtype=torch.int64, device=x.device)  # the last: packed
    for part in parts(layout):
        mine = looked[part.first // CHUNK :][: part.chunks]
        if not mine.any():
            continue
        symbols, raw, _ = quantize(part_of(x, part), part, seed)
        there = torch.from_numpy(mine).to(x.device)
        here = there.repeat_interleave(CHUNK, output_size=len(mine) * CHUNK)[: part.n].long()
        for kind, begin in COUNTS_OF.items():
            codes = _codes(symbols, part, kind).view(-1)[: part.n]
            times = here
            if kind == Kind.UNSIGNED:
                counts[NEGATIVE] += ((codes >> 31) * here).sum()
                times = here * (codes >> 31 == 0)
            counts[begin : begin + SYMBOLS].scatter_add_(0, _symbol_on_device(codes), times)
        sizes = padded(packed_sizes(symbols, raw, part), BLOCKS_PER_CHUNK).sum(1)
        counts[-1] += (sizes * there).sum()
    *found, packed = counts.tolist()
    return choose(found, packed, layout)


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


def _symbol_on_device(codes: Tensor) -> Tensor:
    exponent = torch.frexp(codes.clamp(min=1).double())[1].long() - 1
    octave = DIRECT + (exponent - 6) * 8 + (codes >> (exponent - 3).clamp(min=0) & 7)
    found = torch.where(exponent > 29, ESCAPE, octave)
    return torch.where(codes < DIRECT, codes, found)


def _coded_symbols(codes: Ints, table: Table) -> Bytes:
    """Those that the table holds, ESCAPE for all others."""
    wanted = _symbol_of(codes)
    missing = np.array(table.frequencies)[wanted] == 0
    found: Bytes = np.where(missing, ESCAPE, wanted).astype(np.uint8)
    return found


class _Extra:
    """The low bits of all codes above the direct ones, least significant bit first."""

    def __init__(self) -> None:
        self._held, self._bits = 0, 0

    def add(self, found: Bytes, codes: Ints) -> None:
        there = found >= DIRECT
        for symbol, code in zip(found[there].tolist(), codes[there].tolist(), strict=True):
            width = extra_bits(symbol)
            self._held |= (code & ((1 << width) - 1)) << self._bits
            self._bits += width

    def stored(self) -> bytes:
        return self._held.to_bytes((self._bits + 7) // 8, "little")


def _with_extra(found: Bytes, stream: Bytes) -> npt.NDArray[np.uint32]:
    """The codes of a span from its symbols and extra bits."""
    codes = found.astype(np.uint32)
    held, bits = int.from_bytes(stream.tobytes(), "little"), 8 * len(stream)
    for i in np.flatnonzero(found >= DIRECT):
        symbol = int(found[i])
        width = extra_bits(symbol)
        place = symbol - DIRECT
        base = 0 if symbol == ESCAPE else (8 + place % 8) << (place // 8 + 3)
        codes[i] = base + (held & ((1 << width) - 1))
        held >>= width
        bits -= width
    if bits < 0:
        raise DamagedError(_DAMAGED)
    return codes


class _Span(NamedTuple):
    """Where in the body the parts of a span are."""

    coded: slice
    extra: slice
    kept: int  #: where raw blocks begin


def _spans(
    offsets: Tensor, body: Tensor, raw: raw_blocks.Which, layout: BoundedLayout
) -> list[_Span]:
    starts, found = offsets.tolist(), []
    for begin, end, size in zip(
        starts, [*starts[1:], body.numel()], raw_blocks.sizes(raw, layout), strict=True
    ):
        coded = begin + 4
        extra = coded + int.from_bytes(bytes(body[begin:coded].tolist()), "little")
        if extra + size > end:
            raise DamagedError(_DAMAGED)
        found.append(_Span(slice(coded, extra), slice(extra, end - size), end - size))
    return found
