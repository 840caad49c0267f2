"""The payload of the Dithered format: shared by the codec and both backends.

Payload: 1 when there are levels, plus 2 when there are raw blocks (one byte) | level of all chunks
of 4096 values, unless they are stored (one byte) | spans in a chain (one byte) | contexts
(dithered_tables.py) | level of each chunk (a byte) | raw blocks of each chunk (a uint64, a bit
per block of 64 values) | bytes of each chain and of its coded symbols (two uint32) | chains.

A chain is several spans of 65536 values: coded symbols | extra bits of each span, from a whole
byte on | the values of raw blocks. In a span the elements go context by context, each in their
order, and a few of them make up one symbol; the symbols of one context after the other are coded by
range ANS (entropy.py) with 32 states that the chain shares; each context begins with state 0. The
codes of a group that its table does not hold are among the extra bits, in the order of the
elements: when code + 1 has k + 1 bits, k zeros, a one and its low k bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import (
    BLOCK,
    BLOCKS_PER_CHUNK,
    SCALE,
    ChunkedLayout,
    real_of,
)
from actzip.kernels.dithered_contexts import Choice
from actzip.kernels.dithered_tables import Contexts, Given
from actzip.kernels.entropy_table import CHAINS, SPAN, STATES, as_tensor
from actzip.kernels.errors import DamagedError

EXTRA_ROOM = 2 * SPAN  #: bytes of extra bits that a span may have
#: With given tables a block is raw when its codes might take more extra bits than this; then all
#: that a span's codes can take finds room.
MOST_EXTRA = 8 * EXTRA_ROOM * BLOCK // SPAN
_LEVELS, _RAW = 1, 2
_HEAD = 3


@dataclass(frozen=True, eq=False)
class Sides:
    """A sign-exact grid: values above its origin and all others are told apart, and come back so.

    One number per channel, in the type in which elements are computed.
    """

    origin: Tensor  #: a value of the stored type
    above: Tensor  #: what values above it are at least when they come back
    bounds: Tensor  #: of values that are not above it


@dataclass(frozen=True, eq=False)
class DitheredLayout(ChunkedLayout):
    sides: Sides | None = None

    def grid(self) -> Tensor:
        """Bounds, and with sides those below, origins and least values above, one after the other;
        made once."""
        kept: Tensor | None = self.__dict__.get("_grid")
        if kept is None:
            s = self.sides
            kept = (
                self.bounds if s is None else torch.cat([self.bounds, s.bounds, s.origin, s.above])
            )
            object.__setattr__(self, "_grid", kept)
        return kept

    @property
    def spans(self) -> int:
        return -(-self.n // SPAN)


@dataclass(frozen=True, eq=False)
class Sections:
    """The parts of a payload."""

    contexts: Contexts
    chain: int
    levels: Tensor  #: uint8, one per chunk
    raw: Tensor  #: uint8, eight per chunk
    offsets: Tensor  #: where each chain begins in the body, and where the last ends
    coded: Tensor  #: bytes of coded symbols of each chain
    body: Tensor


def least_bytes(n: int) -> int:
    """The fewest bytes of n values: sizes and states of each chain."""
    return (8 + 4 * STATES) * (n // (SPAN * CHAINS[-1]))


def worst_case(layout: DitheredLayout, given: Given) -> int:
    """Bytes that a payload with given tables may take at most."""
    n, spans = layout.n, layout.spans
    head = _HEAD + len(given.stored()) + (1 + BLOCKS_PER_CHUNK // 8) * layout.chunks + 8 * spans
    # 12 bits for each symbol, and for each element extra bits or its value and an escaped zero
    each = 12 + max(MOST_EXTRA // BLOCK, 8 * layout.itemsize + 1)
    return head + -(-n * each // 8) + (6 * STATES + 2) * spans


def look_every(layout: DitheredLayout) -> int:
    """Contexts are chosen from one of so many chunks: from all of them in a small tensor."""
    return max(1, min(16, layout.chunks // 32), min(64, layout.chunks // 256))


def looked_at(layout: DitheredLayout) -> Tensor:
    """Numbers of these chunks, a little aside of every so many: see csrc/bounded/histogram.hpp."""
    every = look_every(layout)
    k = torch.arange(-(-layout.chunks // every))
    aside = ((k * 0x9E3779B1 & 0xFFFFFFFF) >> 8) * every >> 24
    return torch.where(k * every + aside < layout.chunks, k * every + aside, k * every)


def too_fine(choice: Choice, layout: DitheredLayout) -> bool:
    """Whether codes are so large that one byte for most of them is not a good format."""
    return choice.bits > 7 * layout.n or choice.escaped > 0.01


def head(choice: Given, levels: Tensor, raw: Tensor, sizes: Tensor, coded: Tensor) -> Tensor:
    """All that comes before the chains."""
    first = int(levels[0]) if levels.numel() else 0
    parts = [levels] if (has_levels := bool((levels != first).any())) else []
    parts += [raw] if (has_raw := bool(raw.any())) else []
    begin = bytes([_LEVELS * has_levels + _RAW * has_raw, first, choice.chain])
    table = torch.stack([sizes, coded], 1).to(torch.int32).view(-1).view(torch.uint8)
    return torch.cat([as_tensor(begin + choice.contexts.stored(), levels.device), *parts, table])


def split(data: Tensor, layout: DitheredLayout) -> Sections:
    """The parts of a payload; DamagedError when they do not fit together."""
    if data.numel() < _HEAD:
        raise DamagedError(f"dithered_decode: {data.numel()} bytes do not hold {layout.n} values")
    flags, level, chain = data[:_HEAD].tolist()
    if flags > _LEVELS + _RAW or level >= len(SCALE) or chain not in CHAINS:
        raise DamagedError("dithered_decode: the first bytes do not say what is coded")
    contexts, size = Contexts.load(data[_HEAD:])
    chains = -(-layout.spans // chain)
    start, parts = _HEAD + size, []
    for length in (
        layout.chunks * (flags & _LEVELS > 0),
        BLOCKS_PER_CHUNK // 8 * layout.chunks * (flags & _RAW > 0),
        8 * chains,
    ):
        parts.append(data[start : start + length])
        start += length
    if data.numel() < start:
        raise DamagedError(f"dithered_decode: {data.numel()} bytes do not hold {layout.n} values")
    body = data[start:]
    levels = parts[0] if flags & _LEVELS else data.new_full((layout.chunks,), level)
    raw = parts[1] if flags & _RAW else data.new_zeros(8 * layout.chunks)
    offsets, coded = _chain_offsets(parts[2], body.numel())
    if bool((levels >= len(SCALE)).any()):
        raise DamagedError("dithered_decode: the stored levels are damaged")
    return Sections(contexts, chain, levels, raw, offsets, coded, body)


def end_of(data: Tensor, layout: DitheredLayout) -> int:
    """How many bytes are used of those of a sound payload, of which there may be more."""
    flags, _, chain = data[:_HEAD].tolist()
    start = _HEAD + Contexts.load(data[_HEAD:])[1] + layout.chunks * (flags & _LEVELS > 0)
    start += BLOCKS_PER_CHUNK // 8 * layout.chunks * (flags & _RAW > 0)
    table = data[start : start + 8 * -(-layout.spans // chain)]
    sizes: list[int] = table.clone().view(torch.int32)[::2].tolist()
    return int(start) + table.numel() + sum(sizes)


def _chain_offsets(table: Tensor, length: int) -> tuple[Tensor, Tensor]:
    sizes = table.clone().view(torch.int32).long().view(-1, 2)
    ends = sizes[:, 0].cumsum(0)
    total = int(sizes[:, 0].sum())
    if bool((sizes < 0).any()) or bool((sizes[:, 1] > sizes[:, 0]).any()) or total != length:
        raise DamagedError(f"dithered_decode: {length} bytes are not what its chains take")
    return torch.cat([ends.new_zeros(1), ends]), sizes[:, 1].contiguous()


def sides(origins: Sequence[float], bounds: Tensor, dtype: torch.dtype) -> Sides:
    """The sides of grids with these origins; `bounds` are those of values not above them."""
    origin = torch.tensor(origins, dtype=torch.float64).to(dtype)
    above = _next_up(origin)
    if dtype != torch.float16:  # processors may be told to take denormal numbers for zero
        least = torch.finfo(dtype).tiny
        above = torch.where(above.abs() < least, torch.full_like(above, least), above)
    real = real_of(dtype)
    return Sides(origin.to(bounds.device, real), above.to(bounds.device, real), bounds)


def _next_up(x: Tensor) -> Tensor:
    """The next larger value of x's type; torch.nextafter knows no float16."""
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    bits = (x + 0.0).view(integer)  # +0 for -0
    return torch.where(x >= 0, bits + 1, bits - 1).view(x.dtype)
