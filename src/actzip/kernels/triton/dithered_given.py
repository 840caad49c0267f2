"""Dithered codes with given tables: launches of device/dithered_given.py. Three for an encode and
three for a decode, without a read by the host and without other ops."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import CAP, ROUNDOFF
from actzip.kernels.dithered_layout import EXTRA_ROOM, DitheredLayout
from actzip.kernels.dithered_tables import Given
from actzip.kernels.entropy_table import SPAN, STATES
from actzip.kernels.triton import launch
from actzip.kernels.triton.bounded import INTS
from actzip.kernels.triton.device import dithered as partition
from actzip.kernels.triton.device import dithered_chains as chains_device
from actzip.kernels.triton.device import dithered_given as device
from actzip.kernels.triton.dithered_tables import Parts, Tables, options, sizes
from actzip.kernels.triton.group import seed_of

_WORDS: int = chains_device.WORDS.value
_SIZES: int = device.SIZES.value
#: Elements of a span that its program looks at together.
TILE = 4096 if launch.INTERPRETED else 1024
#: The same of a program of one warp.
_NARROW = 4096 if launch.INTERPRETED else 256


class Coded(NamedTuple):
    """What is known of spans and chains before their places are."""

    codes: Tensor
    raw: Tensor  #: of each block
    levels: Tensor
    extra: Tensor  #: room for extra bits of each span
    sizes: Tensor  #: SIZES of each span
    room: Tensor  #: for the words of each chain
    states: Tensor
    coded: Tensor  #: bytes of the coded symbols of each chain

    @staticmethod
    def of(layout: DitheredLayout, chain: int, on: torch.device) -> Coded:
        def room(count: int, dtype: torch.dtype) -> Tensor:
            return torch.empty(count, dtype=dtype, device=on)

        chains = -(-layout.spans // chain)
        return Coded(
            room(layout.n, torch.int32),
            room(layout.blocks, torch.uint8),
            room(layout.chunks, torch.uint8),
            room(layout.spans * extra_words(layout), torch.int32),
            room(layout.spans * _SIZES, torch.int64),
            room(chains * chain * _WORDS, torch.int16),
            room(chains * STATES, torch.int32),
            room(chains, torch.int64),
        )


def extra_words(layout: DitheredLayout) -> int:
    """Words of extra bits for which each span has room."""
    return min(layout.n, SPAN) * (EXTRA_ROOM // SPAN) // 4 + 64


def encode_within(
    x: Tensor, layout: DitheredLayout, seed: int | Tensor, data: Tensor, given: Given, first: int
) -> Tensor:
    tables, on = Tables.of(given, x.device), x.device
    parts, made = Parts.of(layout, on), Coded.of(layout, given.chain, on)
    total = torch.empty(1, dtype=torch.int64, device=on)
    code_into(x, layout, seed, tables, parts, made)
    words_into(layout, given.chain, tables, parts, made)
    write_into(x, layout, given.chain, first, tables, made, data, total)
    return total


def code_into(
    x: Tensor, layout: DitheredLayout, seed: int | Tensor, tables: Tables, parts: Parts, made: Coded
) -> None:
    given = (launch.elements(x), layout.grid(), made.codes, made.raw, made.levels, parts.sums)
    into = (parts.places, parts.counts, made.extra, made.sizes)
    known = (tables.context, tables.info, tables.frequency, seed_of(seed), *sizes(layout))
    roundoff, cap = ROUNDOFF[layout.dtype], CAP.get(layout.dtype, 2.0**20)
    launch.run(device.code_spans, layout.spans, *given, *into, *known, tables.many,
               extra_words(layout), warps=16, ROUNDOFF=roundoff, CAP=cap, SIZE=TILE,
               **options(layout))  # fmt: skip


def words_into(
    layout: DitheredLayout, chain: int, tables: Tables, parts: Parts, made: Coded
) -> None:
    given = (parts.sums, parts.counts, tables.info, tables.frequency, tables.start)
    launch.run(chains_device.encode_chains, made.coded.numel(), *given, made.room, made.states,
               made.coded, layout.spans, tables.many, CHAIN=chain, warps=1)  # fmt: skip


def write_into(
    x: Tensor, layout: DitheredLayout, chain: int, first: int, tables: Tables, made: Coded,
    data: Tensor, total: Tensor,
) -> None:  # fmt: skip
    given = (launch.elements(x), made.raw, made.levels, made.room.view(torch.uint8), made.states)
    more = (made.coded, made.extra.view(torch.uint8), made.sizes, tables.stored, data, total)
    shape = (layout.n, layout.spans, made.coded.numel(), tables.stored.numel(), first)
    launch.run(device.write_spans, layout.spans, *given, *more, *shape, extra_words(layout),
               CHAIN=chain, WORDS=_WORDS, SIZE=1024, warps=8)  # fmt: skip


def decode(
    data: Tensor, layout: DitheredLayout, seed: int | Tensor, out: Tensor, known: Given
) -> None:
    """Of bytes that this process made with these tables."""
    tables, on = Tables.of(known, data.device), data.device
    parts = Parts.of(layout, on)
    codes = torch.empty(layout.n, dtype=torch.int32, device=on)
    ends = torch.empty(-(-layout.spans // known.chain), dtype=torch.int64, device=on)
    given = (parts.sums, parts.sums, parts.places, parts.counts, tables.context, tables.info)
    launch.run(partition.part_spans, layout.spans, *given, seed_of(seed), layout.n, tables.many,
               ADD=False, LONG=layout.n >= 1 << 33, SIZE=TILE)  # fmt: skip
    chains_from(data, layout, known.chain, tables, parts, codes, ends)
    values_from(data, layout, seed, known.chain, tables, parts, codes, ends, out)


def chains_from(
    data: Tensor, layout: DitheredLayout, chain: int, tables: Tables, parts: Parts, codes: Tensor,
    ends: Tensor,
) -> None:  # fmt: skip
    found = torch.empty(_NARROW * ends.numel(), dtype=torch.int32, device=data.device)
    given = (data, parts.sums, parts.counts, parts.places, codes, found, ends, tables.info)
    slots = (tables.frequency, tables.start, tables.symbol, layout.n, layout.spans, ends.numel())
    launch.run(device.read_chains, ends.numel(), *given, *slots, tables.many,
               tables.stored.numel(), CHAIN=chain, SIZE=_NARROW, warps=1)  # fmt: skip


def values_from(
    data: Tensor, layout: DitheredLayout, seed: int | Tensor, chain: int, tables: Tables,
    parts: Parts, codes: Tensor, ends: Tensor, out: Tensor,
) -> None:  # fmt: skip
    given = (data, codes, parts.sums, parts.places, ends, layout.grid(), tables.context)
    target = (tables.info, launch.elements(out), out.view(INTS[out.element_size()]), seed_of(seed))
    launch.run(device.read_values, layout.chunks, *given, *target, *sizes(layout),
               tables.stored.numel(), CHAIN=chain, warps=8, **options(layout))  # fmt: skip
