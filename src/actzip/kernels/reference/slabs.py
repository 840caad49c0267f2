"""Work in parts, so that a kernel's temporaries stay small beside the tensor that it codes.

A chain of elementwise operations holds some 50 bytes for each element that it is at. A part is at
most a 64th of the tensor's bytes in elements: less than one time the tensor, in 16 parts for
float32 and 32 for 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

#: Elements below which a tensor is not cut: launches would cost more than memory.
LEAST = 1 << 13
_SHARE = 64


class Slab(NamedTuple):
    """Whole rows `top` to `bottom` - 1, or the elements `first` to `last` - 1 of a single one."""

    top: int
    bottom: int
    first: int
    last: int


def elements(n: int, itemsize: int) -> int:
    """How many elements of a tensor of n are worked on at once."""
    return max(LEAST, n * itemsize // _SHARE)


def slabs(rows: int, n: int, itemsize: int) -> Iterator[Slab]:
    """Parts of `rows` rows of n elements; a cut within a row is at a multiple of 32."""
    most = elements(rows * n, itemsize)
    if n > most:
        step = most // 32 * 32
        for top in range(rows):
            for first in range(0, n, step):
                yield Slab(top, top + 1, first, min(n, first + step))
        return
    step = max(1, most // max(1, n))
    for top in range(0, rows, step):
        yield Slab(top, min(rows, top + step), 0, n)


def spans(n: int, itemsize: int) -> Iterator[slice]:
    """Parts of n elements in a row, cut at multiples of 32."""
    return (slice(slab.first, slab.last) for slab in slabs(1, n, itemsize))
