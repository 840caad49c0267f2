"""Dithered codes: launches of device/dithered.py and dithered_chains.py; signatures as in
reference/dithered.py.

Without given tables the host reads the counts, chooses the contexts, and reads the size of the
payload: six launches for an encode, four for a decode. With tables: dithered_given.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import CAP, ROUNDOFF
from actzip.kernels.dithered_contexts import choose
from actzip.kernels.dithered_layout import (
    EXTRA_ROOM,
    DitheredLayout,
    head,
    looked_at,
    split,
    too_fine,
    worst_case,
)
from actzip.kernels.dithered_tables import BINS, COUNTED, ESCAPE, Given
from actzip.kernels.entropy_table import STATES
from actzip.kernels.errors import DamagedError
from actzip.kernels.triton import launch
from actzip.kernels.triton.bounded import INTS
from actzip.kernels.triton.device import dithered as device
from actzip.kernels.triton.device import dithered_chains as chains_device
from actzip.kernels.triton.device.entropy import gather_spans
from actzip.kernels.triton.dithered_given import decode as decode_known
from actzip.kernels.triton.dithered_given import encode_within
from actzip.kernels.triton.dithered_tables import Parts, Tables, options, sizes
from actzip.kernels.triton.group import seed_of
from actzip.kernels.triton.spans import BLOCKS, CHUNKS, kept_of, maps_of, raw_of, repeated, within

_COUNTS = BINS * COUNTED + ESCAPE + 1
_WORDS: int = chains_device.WORDS.value
#: Elements that a program which walks through a span looks at together.
_TILE = 4096 if launch.INTERPRETED else 1024


def choose_for(x: Tensor, layout: DitheredLayout, seed: int) -> Given | None:
    """What `encode` takes for x; None when steps are too fine for this format."""
    codes = torch.empty(layout.n, dtype=torch.int32, device=x.device)
    raw = torch.empty(layout.blocks, dtype=torch.uint8, device=x.device)
    levels = torch.empty(layout.chunks, dtype=torch.int64, device=x.device)
    return _quantized(x, layout, seed, codes, raw, levels)


def _quantized(
    x: Tensor, layout: DitheredLayout, seed: int, codes: Tensor, raw: Tensor, levels: Tensor
) -> Given | None:
    """Fills these in; what is to be taken for them."""
    counts = torch.zeros(_COUNTS, dtype=torch.int64, device=x.device)
    quantize_into(x, layout, seed, codes, raw, levels, counts)
    found = counts.cpu().numpy()
    cut = BINS * COUNTED
    choice = choose(found[:cut].reshape(BINS, COUNTED), found[cut:], layout.n)
    return None if too_fine(choice, layout) else choice


def encode(
    x: Tensor,
    layout: DitheredLayout,
    seed: int,
    allocate: Callable[[int], Tensor],
    given: Given | None = None,
) -> Tensor | None:
    """The payload, or None when steps are too fine for this format."""
    on = x.device
    if given is not None:
        room = torch.empty(1 + worst_case(layout, given), dtype=torch.uint8, device=on)
        size = int(encode_within(x, layout, seed, room, given, 0))
        return allocate(size - 1).copy_(room[1:size])
    codes = torch.empty(layout.n, dtype=torch.int32, device=on)
    raw = torch.empty(layout.blocks, dtype=torch.uint8, device=on)
    levels, bits = torch.empty(2, layout.chunks, dtype=torch.int64, device=on)
    choice = _quantized(x, layout, seed, codes, raw, levels)
    if choice is None:
        return None
    tables, parts = Tables.of(choice, on), Parts.of(layout, on, zeros=True)
    part_into(codes, layout, seed, tables, parts)
    chains = -(-layout.spans // choice.chain)
    room = torch.empty(chains * choice.chain * _WORDS, dtype=torch.int16, device=on)
    states = torch.empty(chains * STATES, dtype=torch.int32, device=on)
    coded = torch.empty(chains, dtype=torch.int64, device=on)
    code_into(parts, tables, layout.spans, choice.chain, room, states, coded)
    measure_into(codes, parts, bits)
    extra, before = within(bits, CHUNKS)
    extra = (extra + 7) // 8
    kept, among = kept_of(raw, layout)
    extras, extra_before = within(extra, choice.chain)
    values, kept_before = within(kept, choice.chain)
    sizes = coded + extras + values
    first = head(choice, levels.to(torch.uint8), maps_of(raw), sizes, coded)
    start = first.numel()
    total, widest = torch.stack([sizes.sum(), extra.max()]).tolist() if chains else (0, 0)
    if widest > EXTRA_ROOM:
        return None
    begins = sizes.cumsum(0) - sizes + start
    here = repeated(begins + coded, choice.chain, layout.spans) + extra_before
    after = repeated(begins + coded + extras, choice.chain, layout.spans) + kept_before
    places = repeated(here * 8, CHUNKS, layout.chunks) + before
    words = torch.zeros((start + total) // 4 + 2, dtype=torch.int32, device=on)
    write_into(x, codes, parts, raw, places, repeated(after, BLOCKS, layout.blocks) + among, words)
    data = allocate(start + total)
    data.copy_(words.view(torch.uint8)[: data.numel()])
    data[:start] = first
    gather_into(room, states, coded, begins, choice.chain, data)
    return data


def quantize_into(
    x: Tensor, layout: DitheredLayout, seed: int | Tensor, codes: Tensor, raw: Tensor,
    levels: Tensor, counts: Tensor,
) -> None:  # fmt: skip
    """Codes, raw blocks and levels, and what the contexts are chosen from; no host's read."""
    looked = torch.zeros(layout.chunks, dtype=torch.uint8)
    looked[looked_at(layout)] = 1
    given = (launch.elements(x), layout.grid(), codes, raw, levels, looked.to(x.device), counts)
    roundoff, cap = ROUNDOFF[layout.dtype], CAP.get(layout.dtype, 2.0**20)
    launch.run(device.quantize_chunks, layout.chunks, *given, seed_of(seed), *sizes(layout),
               warps=16, ROUNDOFF=roundoff, CAP=cap, **options(layout))  # fmt: skip


def part_into(
    codes: Tensor | None, layout: DitheredLayout, seed: int | Tensor, tables: Tables, parts: Parts
) -> None:
    """Counts and places; with codes their symbols, too, into zeros."""
    add = codes is not None
    given = (codes if add else parts.sums, parts.sums, parts.places, parts.counts)
    known = (tables.context, tables.info, seed_of(seed), layout.n, tables.many)
    long = layout.n >= 1 << 33
    launch.run(device.part_spans, layout.spans, *given, *known, ADD=add, LONG=long, SIZE=_TILE)


def code_into(
    parts: Parts, tables: Tables, spans: int, chain: int, room: Tensor, states: Tensor,
    coded: Tensor,
) -> None:  # fmt: skip
    """The words of each chain at the end of its room, and how many bytes it takes."""
    given = (parts.sums, parts.counts, tables.info, tables.frequency, tables.start)
    launch.run(chains_device.encode_chains, coded.numel(), *given, room, states, coded, spans,
               tables.many, CHAIN=chain, warps=1)  # fmt: skip


def measure_into(codes: Tensor, parts: Parts, bits: Tensor) -> None:
    """The extra bits of each chunk."""
    given = (codes, parts.sums, parts.places, bits, codes.numel())
    launch.run(device.measure_chunks, bits.numel(), *given, warps=8)


def write_into(
    x: Tensor, codes: Tensor, parts: Parts, raw: Tensor, places: Tensor, values: Tensor,
    words: Tensor,
) -> None:  # fmt: skip
    """Extra bits and the values of raw blocks into `words` (int32, zeros)."""
    given = (launch.elements(x), codes, parts.sums, parts.places, raw, places, values, words)
    launch.run(device.write_chunks, places.numel(), *given, x.numel(), warps=16)


def gather_into(
    room: Tensor, states: Tensor, coded: Tensor, begins: Tensor, chain: int, data: Tensor
) -> None:
    given = (room.view(torch.uint8), states, coded, begins, data, 2 * _WORDS * chain)
    launch.run(gather_spans, coded.numel(), *given, CHAIN=1, SIZE=launch.TILE)


def decode(
    data: Tensor, layout: DitheredLayout, seed: int, out: Tensor, known: Given | None = None
) -> None:
    if known is not None:
        decode_known(data, layout, seed, out, known)
        return
    cut = split(data, layout)
    on, (begins, ends) = data.device, (cut.offsets[:-1], cut.offsets[1:])
    raw, beyond = raw_of(cut.raw, layout)
    kept, among = kept_of(raw, layout)
    values, kept_before = within(kept, cut.chain)
    after = ends - values
    tables, parts = Tables.of(Given(cut.contexts, cut.chain), on), Parts.of(layout, on)
    damaged = torch.zeros(1, dtype=torch.int32, device=on)
    part_into(None, layout, seed, tables, parts)
    read_symbols(cut.body, begins, begins + cut.coded, parts, tables, layout, cut.chain, damaged)
    codes = torch.empty(layout.n, dtype=torch.int32, device=on)
    read_escaped(cut.body, begins + cut.coded, after, parts, layout, cut.chain, codes, damaged)
    if bool(beyond | (begins + cut.coded > after).any() | (damaged > 0).any()):
        raise DamagedError("dithered_decode: the stored bytes are damaged")
    places = repeated(after, cut.chain, layout.spans) + kept_before
    places = repeated(places, BLOCKS, layout.blocks) + among
    read_from(cut.body, codes, parts, cut.levels, raw, places, tables, layout, seed, out)


def read_symbols(
    body: Tensor, begins: Tensor, ends: Tensor, parts: Parts, tables: Tables,
    layout: DitheredLayout, chain: int, damaged: Tensor,
) -> None:  # fmt: skip
    given = (body, begins.contiguous(), ends, parts.sums, parts.counts, tables.info)
    slots = (tables.frequency, tables.start, tables.symbol, damaged, layout.spans, tables.many)
    launch.run(chains_device.decode_chains, ends.numel(), *given, *slots, CHAIN=chain, warps=1)


def read_escaped(
    body: Tensor, begins: Tensor, ends: Tensor, parts: Parts, layout: DitheredLayout, chain: int,
    codes: Tensor, damaged: Tensor,
) -> None:  # fmt: skip
    """Codes of escaped elements; the others are left as they are."""
    found = torch.empty(_TILE * ends.numel(), dtype=torch.int32, device=body.device)
    given = (body, begins, ends, parts.sums, parts.places, codes, found, damaged)
    launch.run(chains_device.read_escaped, ends.numel(), *given, layout.n, layout.spans,
               CHAIN=chain, SIZE=_TILE, warps=4)  # fmt: skip


def read_from(
    body: Tensor, codes: Tensor, parts: Parts, levels: Tensor, raw: Tensor, values: Tensor,
    tables: Tables, layout: DitheredLayout, seed: int | Tensor, out: Tensor,
) -> None:  # fmt: skip
    given = (body, codes, parts.sums, parts.places, levels.contiguous(), raw, values, layout.grid())
    target = (launch.elements(out), out.view(INTS[out.element_size()]), seed_of(seed))
    launch.run(device.read_chunks, layout.chunks, *given, tables.context, tables.info, *target,
               *sizes(layout), body.numel(), warps=8, **options(layout))  # fmt: skip


__all__ = ["choose_for", "decode", "encode", "encode_within"]
