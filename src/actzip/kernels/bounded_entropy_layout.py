"""The payload of Bounded with the entropy stage, and the choice between it and plain packing.

Payload: what is coded (`Kind`), plus 8 when there are levels, plus 16 when there are raw blocks
(one byte) | table (entropy_table.py) | level of each chunk (one byte; 0 for all when not there) |
raw blocks of each chunk (a uint64, a bit per block; none when not there) | size of each span
(uint32) | spans. A span of 65536 values: length of the coded symbols (uint32) | coded symbols |
extra bits | the values of raw blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import BoundedLayout
from actzip.kernels.entropy_table import (
    SPAN,
    SYMBOLS,
    Table,
    as_tensor,
    coded_bits,
    entropy_bits,
    load_offsets,
    store_sizes,
)
from actzip.kernels.errors import DamagedError

DIRECT = 64  #: codes below are their own symbol
ESCAPE = 255  #: the symbol of codes that the table does not hold
_LEVELS, _RAW = 8, 16


class Kind(IntEnum):
    """What is coded."""

    UNSIGNED = 0  #: symbols, of which none is negative
    SIGNED = 1  #: zigzag of symbols
    DIFFERENCES = 2  #: zigzag of what the Lorenzo prediction leaves of them


#: Where the counts of each kind begin (csrc/bounded/histogram.hpp), and that of negative symbols.
COUNTS_OF = {
    Kind.SIGNED: 0,
    Kind.UNSIGNED: SYMBOLS,
    Kind.DIFFERENCES: 2 * SYMBOLS,
}
NEGATIVE = 3 * SYMBOLS


@dataclass(frozen=True)
class Choice:
    kind: Kind
    table: Table


@dataclass(frozen=True, eq=False)
class Sections:
    """The parts of a payload."""

    choice: Choice
    levels: Tensor  #: uint8, one per chunk
    raw: Tensor  #: uint8, eight per chunk
    offsets: Tensor  #: where each span begins in the body
    body: Tensor


def look_every(layout: BoundedLayout) -> int:
    """The table is made from one of so many chunks: from all of them in a small tensor.

    Against looking at all, this cost at most 0.2 % on channels of very different scales.
    """
    return max(1, min(16, layout.chunks // 32), min(64, layout.chunks // 256))


def looked_at(layout: BoundedLayout) -> Tensor:
    """Numbers of these chunks; see csrc/bounded/histogram.hpp."""
    every = look_every(layout)
    k = torch.arange(-(-layout.chunks // every))
    aside = ((k * 0x9E3779B1 & 0xFFFFFFFF) >> 8) * every >> 24
    return torch.where(k * every + aside < layout.chunks, k * every + aside, k * every)


def extra_bits(symbol: int) -> int:
    if symbol < DIRECT:
        return 0
    return 32 if symbol == ESCAPE else (symbol - DIRECT) // 8 + 3


def choose(counts: Sequence[int], packed: int, layout: BoundedLayout) -> Choice | None:
    """The shortest kind for these counts (see bounded_count), None when plain packing is shorter.

    Ties go to the kind that decodes faster.
    """
    whole = Kind.SIGNED if counts[NEGATIVE] > 0 else Kind.UNSIGNED
    kinds = {kind: _counts_of(kind, counts) for kind in (whole, Kind.DIFFERENCES)}
    kind = min(kinds, key=lambda k: entropy_bits(kinds[k]) + _extra(kinds[k]))
    found = kinds[kind]
    table = Table.of(found)
    # of what all chunks share, those that were looked at have their part
    looked = -(-layout.chunks // look_every(layout)) / max(1, layout.chunks)
    fixed = 1 + table.overhead(layout.n) + 4 * -(-layout.n // SPAN)
    coded = (coded_bits(found, table.frequencies) + _extra(found)) / 8 + fixed * looked
    plain = packed + (8 * layout.chunks + layout.blocks) * looked
    return Choice(kind, table) if coded < plain else None


def _counts_of(kind: Kind, counts: Sequence[int]) -> list[int]:
    begin = COUNTS_OF[kind]
    found = list(counts[begin : begin + SYMBOLS])
    found[ESCAPE] += 1  # always there: later chunks may hold what was not seen
    return found


def _extra(found: Sequence[int]) -> int:
    """Extra bits of all counted symbols."""
    bits = sum(c * extra_bits(s) for s, c in enumerate(found) if c)
    return bits - extra_bits(ESCAPE)  # the one that was added


def head(choice: Choice, levels: Tensor, raw: Tensor, sizes: Tensor) -> Tensor:
    """All that comes before the spans."""
    parts = [levels] if (has_levels := bool(levels.any())) else []
    parts += [raw] if (has_raw := bool(raw.any())) else []
    flags = choice.kind + _LEVELS * has_levels + _RAW * has_raw
    first = as_tensor(bytes([flags]) + choice.table.stored(), levels.device)
    return torch.cat([first, *parts, store_sizes(sizes)])


def split(data: Tensor, layout: BoundedLayout) -> Sections:
    """The parts of a payload; DamagedError when they do not fit together."""
    table, size = Table.load(data[1:])
    flags = int(data[0])
    if flags & 7 > max(Kind) or flags >= 32:
        raise DamagedError("bounded_decode: the first byte does not say what is coded")
    start, parts = 1 + size, []
    lengths = (layout.chunks * (flags & _LEVELS > 0), 8 * layout.chunks * (flags & _RAW > 0))
    for length in (*lengths, 4 * -(-layout.n // SPAN)):
        parts.append(data[start : start + length])
        start += length
    if data.numel() < start:
        raise DamagedError(f"bounded_decode: {data.numel()} bytes do not hold {layout.n} values")
    body = data[start:]
    levels = parts[0] if flags & _LEVELS else data.new_zeros(layout.chunks)
    raw = parts[1] if flags & _RAW else data.new_zeros(8 * layout.chunks)
    offsets = load_offsets(parts[2], body.numel())
    return Sections(Choice(Kind(flags & 7), table), levels, raw, offsets, body)
