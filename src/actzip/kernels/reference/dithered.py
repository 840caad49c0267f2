"""Dithered without the C++ library, second half: codes to bytes (dithered_layout.py), and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from actzip.kernels.bounded_layout import BLOCK, BLOCKS_PER_CHUNK, CHUNK
from actzip.kernels.dithered_contexts import (
    BINS,
    COUNTED,
    ESCAPE,
    Choice,
    Contexts,
    choose,
)
from actzip.kernels.dithered_layout import (
    EXTRA_ROOM,
    DitheredLayout,
    head,
    looked_at,
    split,
    too_fine,
)
from actzip.kernels.entropy_table import SPAN, as_tensor
from actzip.kernels.errors import DamagedError
from actzip.kernels.reference.bounded_symbols import padded
from actzip.kernels.reference.dithered_grid import dequantize, dither_rows, quantize
from actzip.kernels.reference.entropy import Bytes, Ints
from actzip.kernels.reference.entropy_rows import Rows, decode_rows, encode_rows

_DAMAGED = "dithered_decode: the stored bytes are damaged"


def encode(
    x: Tensor, layout: DitheredLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor | None:
    """The payload, or None when steps are too fine for this format."""
    codes, raw, levels = quantize(x, layout, seed)
    bins = _bins(layout, seed, x.device)
    choice = _look(codes, bins, layout)
    if too_fine(choice, layout):
        return None
    groups = Groups.of(bins, choice.contexts, layout.n)
    found = codes.cpu().numpy()
    symbols, escaped = groups.symbols(found, choice.contexts)
    coded = encode_rows(groups.rows(symbols, choice.chain), _tables(choice.contexts))
    values = padded(x, BLOCK).view(torch.uint8).cpu().numpy()
    bodies = []
    for k, words in enumerate(coded):
        spans = range(k * choice.chain, min(layout.spans, (k + 1) * choice.chain))
        extras = [_gamma(found[_span(s)][escaped[_span(s)]]) for s in spans]
        if any(len(e) > EXTRA_ROOM for e in extras):
            return None
        kept = b"".join(_raw_bytes(values, raw.cpu().numpy(), s, layout) for s in spans)
        bodies.append(words + b"".join(extras) + kept)
    maps = padded(raw, BLOCKS_PER_CHUNK).view(-1, 8, 8).long() << torch.arange(8, device=x.device)
    first = head(
        choice,
        levels.to(torch.uint8),
        maps.sum(2).view(-1).to(torch.uint8),
        torch.tensor([len(b) for b in bodies], device=x.device),
        torch.tensor([len(c) for c in coded], device=x.device),
    )
    body = as_tensor(b"".join(bodies), x.device)
    data = allocate(first.numel() + body.numel())
    torch.cat([first, body], out=data)
    return data


def decode(data: Tensor, layout: DitheredLayout, seed: int, out: Tensor) -> None:
    parts = split(data, layout)
    raw = (parts.raw[:, None] >> torch.arange(8, device=data.device) & 1).bool().view(-1)
    if bool(raw[layout.blocks :].any()):
        raise DamagedError(_DAMAGED)
    raw = raw[: layout.blocks]
    groups = Groups.of(_bins(layout, seed, data.device), parts.contexts, layout.n)
    body = parts.body.cpu().numpy()
    places = parts.offsets.tolist()
    ends = [at + c for at, c in zip(places, parts.coded.tolist(), strict=False)]
    rows = groups.rows(np.zeros(groups.total, np.uint8), parts.chain)
    words = [body[a:b] for a, b in zip(places, ends, strict=False)]
    symbols = decode_rows(rows, words, _tables(parts.contexts))
    codes, escaped = groups.codes(symbols, parts.contexts)
    kept_bytes = _raw_sizes(raw, layout)
    kept = [body[:0]]
    for k, begin in enumerate(ends):
        spans = range(k * parts.chain, min(layout.spans, (k + 1) * parts.chain))
        end = places[k + 1]
        size = sum(kept_bytes[s] for s in spans)
        if begin + size > end:
            raise DamagedError(_DAMAGED)
        at, extra = 0, np.unpackbits(body[begin : end - size], bitorder="little")
        for s in spans:
            here = np.flatnonzero(escaped[_span(s)]) + s * SPAN
            codes[here], at = _ungamma(extra, at, len(here))
        if at != len(extra):
            raise DamagedError(_DAMAGED)
        kept.append(body[end - size : end])
    found = torch.from_numpy(codes).to(data.device)
    values = padded(dequantize(found, layout, parts.levels.long(), seed), BLOCK)
    if bool(raw.any()):
        stored = torch.from_numpy(np.concatenate(kept)).to(data.device)
        values[raw] = padded(stored.view(layout.dtype), BLOCK)
    out.copy_(values.view(-1)[: layout.n])


def _span(k: int) -> slice:
    return slice(k * SPAN, (k + 1) * SPAN)


def _bins(layout: DitheredLayout, seed: int, device: torch.device) -> Bytes:
    v = dither_rows(layout, seed, device).view(-1)[: layout.n]
    found: Bytes = ((v + 0.5) * BINS).to(torch.uint8).cpu().numpy()
    return found


def _tables(contexts: Contexts) -> Ints:
    return np.array([c.frequencies() for c in contexts.each], dtype=np.int64)


def _look(codes: Tensor, bins: Bytes, layout: DitheredLayout) -> Choice:
    """Contexts for what some of the chunks hold, as dithered_count finds it."""
    looked = looked_at(layout)
    here = np.zeros(layout.chunks, dtype=bool)
    here[looked.numpy()] = True
    there = np.repeat(here, CHUNK)[: layout.n]
    found = codes.cpu().numpy()[there]
    flat = bins[there].astype(np.int64) * COUNTED + np.minimum(found, COUNTED - 1)
    counts = np.bincount(flat, minlength=BINS * COUNTED).reshape(BINS, COUNTED)
    every = np.bincount(np.minimum(found, ESCAPE), minlength=ESCAPE + 1)
    return choose(counts, every, layout.n)


@dataclass(frozen=True, eq=False)
class Groups:
    """Which elements form which symbol: by span, then by context, `group` of them each."""

    order: Ints  #: elements by span and context
    group: Ints  #: of each of these, the number of its symbol
    place: Ints  #: and its place there
    context: Ints  #: of each symbol
    span: Ints  #: of each symbol
    at: Ints  #: the number of each symbol among those of its span and context

    @property
    def total(self) -> int:
        return len(self.context)

    @staticmethod
    def of(bins: Bytes, contexts: Contexts, n: int) -> Groups:
        count = len(contexts.each)
        segments = -(-n // SPAN) * count
        key = np.arange(n) // SPAN * count + np.array(contexts.of_bin())[bins]
        order = np.argsort(key, kind="stable")
        sizes = np.bincount(key, minlength=segments)
        together = np.tile([c.group for c in contexts.each], segments // count)
        symbols = -(-sizes // together)
        rank = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        wide = np.repeat(together, sizes)
        begin = np.cumsum(symbols) - symbols
        segment = np.repeat(np.arange(segments), symbols)
        return Groups(
            order,
            np.repeat(begin, sizes) + rank // wide,
            rank % wide,
            segment % count,
            segment // count,
            np.arange(len(segment)) - begin[segment],
        )

    def symbols(self, codes: Ints, contexts: Contexts) -> tuple[Bytes, npt.NDArray[np.bool_]]:
        """The symbols of these codes, and which elements are escaped."""
        base = np.array([c.base for c in contexts.each])[self.context]
        mine, wide = codes[self.order], base[self.group]
        found = np.zeros(self.total, dtype=np.int64)
        np.add.at(found, self.group, np.minimum(mine, wide) * wide**self.place)
        np.maximum.at(found, self.group, np.where(mine >= wide, ESCAPE, 0))
        found = np.minimum(found, ESCAPE)
        found[_tables(contexts)[self.context, found] == 0] = ESCAPE
        escaped = np.zeros(len(codes), dtype=bool)
        escaped[self.order] = (found == ESCAPE)[self.group]
        return found.astype(np.uint8), escaped

    def codes(self, symbols: Bytes, contexts: Contexts) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """The way back; escaped codes are 0."""
        base = np.array([c.base for c in contexts.each])[self.context][self.group]
        mine = symbols.astype(np.int64)[self.group]
        lost = mine == ESCAPE
        codes = np.zeros(len(self.order), dtype=np.int64)
        codes[self.order] = np.where(lost, 0, mine // base**self.place % base)
        escaped = np.zeros(len(codes), dtype=bool)
        escaped[self.order] = lost
        return codes, escaped

    def rows(self, symbols: Bytes, chain: int) -> Rows:
        """Symbols in rows of 32, all contexts of a chain one after the other."""
        return Rows.of(symbols, self.span // chain, self.context, self.at)


def _gamma(codes: Ints) -> bytes:
    """k zeros, a one and the low k bits of code + 1, which has k + 1 bits; from a whole byte on."""
    numbers = codes + 1
    k = np.frexp(numbers.astype(np.float64))[1].astype(np.int64) - 1
    ends = np.cumsum(2 * k + 1)
    bits = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    bits[ends - k - 1] = 1
    for j in range(int(k.max()) if len(k) else 0):
        there = k > j
        bits[(ends - k + j)[there]] = (numbers >> j & 1)[there]
    return np.packbits(bits, bitorder="little").tobytes()


def _ungamma(bits: Bytes, at: int, count: int) -> tuple[Ints, int]:
    """So many codes from bit `at` on, and the whole byte after them."""
    ones = np.flatnonzero(bits)
    found = np.zeros(count, dtype=np.int64)
    for i in range(count):
        place = np.searchsorted(ones, at)
        k = int(ones[place]) - at if place < len(ones) else len(bits)
        after = at + 2 * k + 1
        if k > 31 or after > len(bits):
            raise DamagedError(_DAMAGED)
        low = bits[at + k + 1 : after].astype(np.int64)
        found[i] = (1 << k) + int((low << np.arange(k)).sum()) - 1
        at = after
    return found, -(-at // 8) * 8


def _raw_bytes(
    values: Bytes, raw: npt.NDArray[np.bool_], span: int, layout: DitheredLayout
) -> bytes:
    per_span = SPAN // BLOCK
    rows = np.flatnonzero(raw[span * per_span : (span + 1) * per_span]) + span * per_span
    joined = values[rows].tobytes()
    if len(rows) and rows[-1] == layout.blocks - 1:
        joined = joined[: len(joined) - (layout.blocks * BLOCK - layout.n) * layout.itemsize]
    return joined


def _raw_sizes(raw: Tensor, layout: DitheredLayout) -> list[int]:
    """Bytes of the raw blocks of each span."""
    lengths = torch.full((layout.blocks,), BLOCK * layout.itemsize)
    if layout.blocks:
        lengths[-1] -= (layout.blocks * BLOCK - layout.n) * layout.itemsize
    sizes: list[int] = padded(lengths * raw.cpu(), SPAN // BLOCK).sum(1).tolist()
    return sizes
