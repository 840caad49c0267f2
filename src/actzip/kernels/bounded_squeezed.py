"""The payload of Bounded with the entropy stage, and the choice between it and plain packing.

Payload: 1 when codes are signed, else 0 (one byte) | table (entropy_table.py) | level of each
chunk (one byte) | raw blocks of each chunk (a uint64, a bit per block) | offset of each span
(uint64) | spans. A span of 65536 values: length of the coded symbols (uint32) | coded symbols |
extra bits | the values of raw blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from actzip.kernels import entropy_table
from actzip.kernels.bounded_layout import BoundedLayout
from actzip.kernels.entropy_table import SPAN, STATES, SYMBOLS, coded_bits, normalise
from actzip.kernels.errors import DamagedError

DIRECT = 64  #: codes below are their own symbol
ESCAPE = 255  #: the symbol of codes that the table does not hold


@dataclass(frozen=True)
class SqueezeTable:
    is_signed: bool
    frequencies: list[int]

    def stored(self) -> bytes:
        return bytes([self.is_signed]) + entropy_table.store(self.frequencies)


@dataclass(frozen=True, eq=False)
class Sections:
    """Views of the parts of a payload."""

    table: SqueezeTable
    levels: Tensor
    raw: Tensor
    offsets: Tensor
    body: Tensor


def look_every(layout: BoundedLayout) -> int:
    """The table is made from every so manyth chunk: from all of them in a small tensor."""
    return 8 if layout.chunks >= 128 else 1


def extra_bits(symbol: int) -> int:
    if symbol < DIRECT:
        return 0
    return 32 if symbol == ESCAPE else (symbol - DIRECT) // 8 + 3


def choose_table(counts: Sequence[int], packed: int, layout: BoundedLayout) -> SqueezeTable | None:
    """The table for these counts (see bounded_count), or None when plain packing is shorter."""
    is_signed = layout.width > 0 or counts[2 * SYMBOLS] > 0
    found = list(counts[:SYMBOLS] if is_signed else counts[SYMBOLS : 2 * SYMBOLS])
    found[ESCAPE] += 1  # always there: later chunks may hold what was not seen
    table = SqueezeTable(is_signed, normalise(found))
    bits = coded_bits(found, table.frequencies)
    bits += sum(c * extra_bits(s) for s, c in enumerate(found[:ESCAPE]))
    looked = -(-layout.chunks // look_every(layout)) / max(1, layout.chunks)
    fixed = len(table.stored()) + 9 * layout.chunks
    fixed += (12 + 4 * STATES) * -(-layout.n // SPAN)
    plain = packed + (8 * layout.chunks + layout.blocks) * looked
    return table if bits / 8 + fixed * looked < plain else None


def split(data: Tensor, layout: BoundedLayout) -> Sections:
    """The parts of a payload; DamagedError when there are too few bytes."""
    frequencies, size = entropy_table.load(data[1:])
    chunks, spans = layout.chunks, -(-layout.n // SPAN)
    levels = 1 + size
    raw = levels + chunks
    offsets = raw + 8 * chunks
    body = offsets + 8 * spans
    if data.numel() < body or int(data[0]) > 1:
        raise DamagedError(f"bounded_decode: {data.numel()} bytes do not hold {layout.n} values")
    table = SqueezeTable(bool(data[0]), frequencies)
    parts = (data[levels:raw], data[raw:offsets], data[offsets:body], data[body:])
    return Sections(table, *parts)
