"""Dithered without the C++ library, second half: codes to bytes (dithered_layout.py), and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from actzip.kernels.bounded_layout import CHUNK
from actzip.kernels.dithered_contexts import Choice, choose
from actzip.kernels.dithered_layout import (
    EXTRA_ROOM,
    DitheredLayout,
    Sections,
    end_of,
    head,
    looked_at,
    split,
    too_fine,
)
from actzip.kernels.dithered_tables import BINS, COUNTED, ESCAPE, Context, Contexts, Given
from actzip.kernels.entropy_table import SPAN, STATES, as_tensor
from actzip.kernels.errors import DamagedError
from actzip.kernels.reference import raw_blocks
from actzip.kernels.reference.dithered_grid import dequantize, dither_rows, quantize
from actzip.kernels.reference.entropy_rows import (
    Bytes,
    Ints,
    Rows,
    decode_rows,
    encode_rows,
    load_chains,
)
from actzip.kernels.reference.parts import (
    blocks_of,
    chains_at_once,
    chunks_of,
    part_of,
    parts,
    span_of,
    span_parts,
)

_DAMAGED = "dithered_decode: the stored bytes are damaged"


def choose_for(x: Tensor, layout: DitheredLayout, seed: int) -> Given | None:
    """What `encode` takes for x; None when steps are too fine for this format."""
    choice = _look(x, layout, seed)
    return None if too_fine(choice, layout) else choice


def encode_within(
    x: Tensor, layout: DitheredLayout, seed: int, data: Tensor, given: Given, first: int
) -> Tensor:
    data[:1] = first
    found = encode(x, layout, seed, lambda nbytes: data[1 : 1 + nbytes], given)
    assert found is not None, "given tables always do"
    return torch.tensor(1 + found.numel(), device=x.device)


def encode(
    x: Tensor,
    layout: DitheredLayout,
    seed: int,
    allocate: Callable[[int], Tensor],
    given: Given | None = None,
) -> Tensor | None:
    """The payload, or None when steps are too fine for this format."""
    choice = choose_for(x, layout, seed) if given is None else given
    if choice is None:
        return None
    tables = _tables(choice.contexts)
    bodies: list[bytes] = []
    sizes: list[int] = []
    levels = torch.zeros(layout.chunks, dtype=torch.uint8, device=x.device)
    raw = torch.zeros(layout.blocks, dtype=torch.bool, device=x.device)
    for batch in chains_at_once(layout.spans, choice.chain):
        coded, after = [], []
        for chain in _chains(batch, choice.chain):
            pieces, extras, kept = [], b"", b""
            for span in chain:
                whole = span_of(layout, span)
                held = torch.zeros(whole.n, dtype=torch.int32, device=x.device)
                for part in span_parts(layout, span):
                    found, is_raw, level = quantize(part_of(x, part), part, seed, given is not None)
                    held[part.first - whole.first :][: part.n] = found
                    chunks_of(levels, part).copy_(level)
                    blocks_of(raw, part).copy_(is_raw)
                codes = held.cpu().numpy()
                kept += raw_blocks.values_of(part_of(x, whole), blocks_of(raw, whole))
                contexts = _contexts(layout, span, choice.contexts, seed, x.device)
                escaped = np.zeros(len(codes), dtype=bool)
                for k, context in enumerate(choice.contexts.each):
                    mine = contexts == k
                    piece, escaped[mine] = _symbols(codes[mine], context, tables[k])
                    pieces.append((k, piece))
                extra = _gamma(codes[escaped].astype(np.int64))
                if len(extra) > EXTRA_ROOM:
                    return None
                extras += extra
            coded.append(pieces)
            after.append(extras + kept)
        words = encode_rows(_rows(coded), tables)
        for k, rest in enumerate(after):
            sizes.append(len(first := words.chain(k)))
            bodies.append(first + rest)
    start = head(
        choice,
        levels,
        raw_blocks.bitmap(raw),
        torch.tensor([len(b) for b in bodies], device=x.device),
        torch.tensor(sizes, device=x.device),
    )
    body = as_tensor(b"".join(bodies), x.device)
    data = allocate(start.numel() + body.numel())
    torch.cat([start, body], out=data)
    return data


def decode(
    data: Tensor, layout: DitheredLayout, seed: int, out: Tensor, known: Given | None = None
) -> None:
    if known is not None:
        data = data[: end_of(data, layout)]
    cut = split(data, layout)
    raw = raw_blocks.from_bitmap(cut.raw, layout, "dithered_decode")
    sizes, levels = raw_blocks.sizes(raw, layout), cut.levels.long()
    places = cut.offsets.tolist()
    for span, codes in _read(cut, places, layout, sizes, seed):
        chain = span // cut.chain
        kept = places[chain + 1] - sum(sizes[span : (chain + 1) * cut.chain])
        for part in span_parts(layout, span):
            here = torch.from_numpy(codes[part.first - span * SPAN :][: part.n].astype(np.int64))
            values = dequantize(here.to(data.device), part, chunks_of(levels, part), seed)
            part_of(out, part).copy_(raw_blocks.put_back(values, raw, part, cut.body, kept))


def _read(
    cut: Sections, places: Sequence[int], layout: DitheredLayout, sizes: Sequence[int], seed: int
) -> Iterator[tuple[int, npt.NDArray[np.uint32]]]:
    """The codes of each span; `sizes` are bytes of its raw blocks."""
    tables, body = _tables(cut.contexts), cut.body.cpu().numpy()
    device, each, coded = cut.body.device, cut.contexts.each, cut.coded.tolist()
    for batch in chains_at_once(layout.spans, cut.chain):
        chains = list(_chains(batch, cut.chain))
        first = batch.start // cut.chain
        words = [body[places[k] :][: coded[k]] for k in range(first, first + len(chains))]
        states, loaded, limit = load_chains(words, _DAMAGED)
        counts = {
            s: np.bincount(_contexts(layout, s, cut.contexts, seed, device), minlength=len(each))
            for s in batch
        }
        pieces = [
            [
                (k, -(-int(counts[s][k]) // context.group))
                for s in chain
                for k, context in enumerate(each)
            ]
            for chain in chains
        ]
        rows = Rows.of(pieces)
        used, sound = decode_rows(rows, states, loaded, tables)
        if not sound or (used[:, -1] != limit).any():
            raise DamagedError(_DAMAGED)
        for k, chain in enumerate(chains):
            begin, row = places[first + k] + coded[first + k], 0
            end = places[first + k + 1] - sum(sizes[s] for s in chain)
            if begin > end:
                raise DamagedError(_DAMAGED)
            at, extra = 0, np.unpackbits(body[begin:end], bitorder="little")
            for span in chain:
                contexts = _contexts(layout, span, cut.contexts, seed, device)
                codes = np.zeros(len(contexts), dtype=np.uint32)
                escaped = np.zeros(len(contexts), dtype=bool)
                for c, context in enumerate(each):
                    count = -(-int(counts[span][c]) // context.group)
                    symbols = rows.symbols[k, row:].reshape(-1)[:count]
                    row += -(-count // STATES)
                    mine = contexts == c
                    codes[mine], escaped[mine] = _codes(symbols, context, counts[span][c])
                here = np.flatnonzero(escaped)
                codes[here], at = _ungamma(extra, at, len(here))
                yield span, codes
            if at != len(extra):
                raise DamagedError(_DAMAGED)


def _chains(spans: range, chain: int) -> Iterator[range]:
    return (spans[k : k + chain] for k in range(0, len(spans), chain))


def _rows(chains: Sequence[Sequence[tuple[int, Bytes]]]) -> Rows:
    """Symbols of each chain, piece by piece, in rows; a piece has one context and its own rows."""
    rows = Rows.of([[(k, len(piece)) for k, piece in chain] for chain in chains])
    for held, chain in zip(rows.symbols, chains, strict=True):
        row = 0
        for _, piece in chain:
            held[row:].reshape(-1)[: len(piece)] = piece
            row += -(-len(piece) // STATES)
    return rows


def _bins(layout: DitheredLayout, seed: int, device: torch.device) -> Tensor:
    """The bin of v of each element of a part."""
    v = dither_rows(layout, seed, device).view(-1)[: layout.n]
    return ((v + 0.5) * BINS).to(torch.uint8)


def _contexts(
    layout: DitheredLayout, span: int, contexts: Contexts, seed: int, device: torch.device
) -> Bytes:
    """The context of each element of a span."""
    bins = torch.cat([_bins(part, seed, device) for part in span_parts(layout, span)])
    found: Bytes = np.array(contexts.of_bin(), dtype=np.uint8)[bins.cpu().numpy()]
    return found


def _tables(contexts: Contexts) -> Ints:
    return np.array([c.frequencies() for c in contexts.each], dtype=np.int64)


def _look(x: Tensor, layout: DitheredLayout, seed: int) -> Choice:
    """Contexts for what some of the chunks hold, as dithered_count finds it."""
    looked = np.zeros(layout.chunks, dtype=bool)
    looked[looked_at(layout).numpy()] = True
    counts = torch.zeros(BINS * COUNTED, dtype=torch.int64, device=x.device)
    every = torch.zeros(ESCAPE + 1, dtype=torch.int64, device=x.device)
    for part in parts(layout):
        mine = looked[part.first // CHUNK :][: part.chunks]
        if not mine.any():
            continue
        there = torch.from_numpy(mine).to(x.device)
        here = there.repeat_interleave(CHUNK, output_size=len(mine) * CHUNK)[: part.n].long()
        found = quantize(part_of(x, part), part, seed)[0]
        flat = _bins(part, seed, x.device).long() * COUNTED + found.clamp(max=COUNTED - 1)
        counts.scatter_add_(0, flat, here)
        every.scatter_add_(0, found.clamp(max=ESCAPE), here)
    both = torch.cat([counts, every]).cpu().numpy()
    return choose(both[: BINS * COUNTED].reshape(BINS, COUNTED), both[BINS * COUNTED :], layout.n)


def _symbols(
    codes: npt.NDArray[np.int32], context: Context, frequencies: Ints
) -> tuple[Bytes, npt.NDArray[np.bool_]]:
    """Symbols of a context's codes, `group` of them each, and which codes are escaped."""
    group, base = context.group, context.base
    rows = np.zeros((-(-len(codes) // group), group), dtype=np.uint16)
    np.minimum(codes, base, out=rows.reshape(-1)[: len(codes)], casting="unsafe")
    found = np.minimum(rows @ base ** np.arange(group, dtype=np.uint16), ESCAPE)
    found[(rows == base).any(1)] = ESCAPE
    found = np.where((frequencies > 0)[found], found, ESCAPE).astype(np.uint8)
    return found, np.repeat(found == ESCAPE, group)[: len(codes)]


def _codes(symbols: Bytes, context: Context, count: int) -> tuple[Bytes, npt.NDArray[np.bool_]]:
    """The way back; escaped codes are 0."""
    group, base = context.group, context.base
    found = symbols[:, None] // base ** np.arange(group, dtype=np.uint8) % base
    found[symbols == ESCAPE] = 0
    return found.reshape(-1)[:count], np.repeat(symbols == ESCAPE, group)[:count]


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
