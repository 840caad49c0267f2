"""Contexts of the Dithered format: how codes are distributed for dither of about this size.

Both sides know the dither v of an element. With steps of several standard deviations almost every
code is zero, and only where |v| is near 1/2 anything else is likely: given v, a step of 6 sigma
takes 0.43 bits an element instead of 0.70. So the range of v is cut into a few contexts, each with
a table of its own. The elements of a context are coded together, `group` of them in one symbol.

csrc/dithered/tables.cpp does the same. So that both choose alike, logarithms are those of a table,
sums are of integers, and what is left are single operations of float64.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from actzip.kernels.dithered_tables import (
    ABSENT,
    BASE,
    BINS,
    COUNTED,
    ESCAPE,
    Context,
    Contexts,
    Given,
)
from actzip.kernels.entropy_table import CHAINS, SPAN

_CALM = 0.01  #: share of codes other than zero up to which eight elements form a group
_GROUP_BITS = 5  #: a group takes no more, or its table would be too coarse
_UNIT = 1024  #: of bits

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def _log2_table() -> Floats:
    """log2 of 1 to 2 in 4096 steps, by a series."""
    y = 1 + np.arange(4097) / 4096
    s = (y - 1) / (y + 1)
    square = s * s
    series = np.zeros(4097)
    for k in range(19, 0, -2):
        series = series * square + 1.0 / k
    return s * series * 2.8853900817779268


_LOG2 = _log2_table()


def _log2(x: npt.ArrayLike) -> Floats:
    """log2 of numbers above 0, straight lines between those of the table."""
    mantissa, exponent = np.frexp(np.asarray(x, dtype=np.float64))
    t = (2 * mantissa - 1) * 4096
    i = t.astype(np.int64)
    found: Floats = (exponent - 1) + (_LOG2[i] + (t - i) * (_LOG2[i + 1] - _LOG2[i]))
    return found


def _surprise(counts: Ints) -> Ints:
    """c log2 c, in units of bits."""
    c = counts.astype(np.float64)
    found = np.floor(c * _log2(np.maximum(c, 1)) * _UNIT + 0.5)
    return found.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Choice(Given):
    bits: float  #: expected, of all elements; without tables and states
    escaped: float  #: share of codes that no table can hold


def choose(counts: Ints, every: Ints, n: int) -> Choice:
    """Contexts for n elements of which some were counted: how often each of COUNTED codes is in
    each bin (the last for all above), and how often each of 256 codes is (the last likewise)."""
    counts, every = counts.astype(np.int64), every.astype(np.int64)
    looked = max(1, int(every.sum()))
    share = max(1.0, n / looked)
    folded = counts[BINS // 2 :] + counts[: BINS // 2][::-1]
    best = math.inf
    found: tuple[bool, tuple[int, ...], Ints] = (False, (), folded[:0])
    for signed, bins in ((False, folded), (True, counts)):
        plans = _plans(signed)
        below = np.concatenate([np.zeros((1, COUNTED), dtype=np.int64), np.cumsum(bins, axis=0)])
        parts = below[plans.ends] - below[plans.begins]
        sums = (np.add.reduceat(a, plans.first) for a in (_bits(parts), *_table(parts)))
        costs = _price(share, *sums)
        k = int(np.argmin(costs))
        if costs[k] < best:
            mine = slice(plans.first[k], plans.first[k] + len(plans.edges[k]) + 1)
            best, found = float(costs[k]), (signed, plans.edges[k], parts[mine])
    signed, edges, parts = _merged(*found, share)
    tail = every[COUNTED - 1 :]
    contexts = Contexts(signed, edges, tuple(_context(row, tail) for row in parts))
    units = int(_bits(parts).sum()) + int(_bits(tail[None])[0])
    bits = share * (units / _UNIT)
    enough = (c for c in CHAINS if c * bits * SPAN >= 8 * 10_000 * n)
    return Choice(contexts, next(enough, CHAINS[-1]), bits, int(every[ESCAPE]) / looked)


@dataclass(frozen=True, eq=False)
class _Plans:
    """Edges to choose from, and all their ranges one after the other."""

    edges: list[tuple[int, ...]]
    begins: Ints
    ends: Ints
    first: Ints  #: the first range of each plan


@functools.cache
def _plans(signed: bool) -> _Plans:
    """No edges; equal ranges, or equal ones next to |v| = 1/2 and one for all else."""
    half = BINS // 2
    found: list[tuple[int, ...]] = [(half,) if signed else ()]
    for zoom in (1, 2, 4, 8):
        for count in (2, 4, 8):
            far = [j * half // (zoom * count) for j in range(1, count)]  # from |v| = 1/2
            upper = tuple(half - d for d in reversed(far))
            found.append((*far, half, *(half + d for d in upper)) if signed else upper)
    last = BINS if signed else half
    return _Plans(
        found,
        np.array([b for edges in found for b in (0, *edges)]),
        np.array([b for edges in found for b in (*edges, last)]),
        np.cumsum([0] + [len(edges) + 1 for edges in found])[:-1],
    )


def _merged(
    signed: bool, edges: tuple[int, ...], parts: Ints, share: float
) -> tuple[bool, tuple[int, ...], Ints]:
    """Neighbours become one where that saves more table than it takes bits."""
    price = _price(share, _bits(parts), *_table(parts))
    while len(parts) > 1:
        both = parts[:-1] + parts[1:]
        joint = _price(share, _bits(both), *_table(both))
        gain = price[:-1] + price[1:] - joint
        k = int(np.argmax(gain))
        if gain[k] <= 0:
            break
        parts = np.concatenate([parts[:k], both[k : k + 1], parts[k + 2 :]])
        price = np.concatenate([price[:k], joint[k : k + 1], price[k + 2 :]])
        edges = (*edges[:k], *edges[k + 1 :])
    return signed, edges, parts


def _bits(parts: Ints) -> Ints:
    """Entropy of each row of counts, times its sum, in units."""
    found: Ints = _surprise(parts.sum(axis=1)) - _surprise(parts).sum(axis=1)
    return found


def _table(parts: Ints) -> tuple[Ints, Ints]:
    """Bytes of a table for each row of counts, and how many codes there are in it."""
    there = parts > 0
    last = np.where(there, np.arange(1, parts.shape[1] + 1), 0).max(axis=1)
    return last + 4, there.sum(axis=1)


def _price(share: float, units: Ints, table: Ints, codes: Ints) -> Floats:
    """Bits, with the table and what entropy is too low because few elements were counted."""
    found: Floats = share * (units / _UNIT) + (8.0 * table + (share - 1) * 0.72 * codes)
    return found


def _context(counts: Ints, tail: Ints) -> Context:
    """For codes that occur so often; those from COUNTED - 1 on as often as in the whole tensor."""
    total, whole = int(counts.sum()), max(1, int(tail.sum()))
    group = _group(counts, total)
    used = counts.astype(np.float64)[: BASE[group]]
    if group == 1:
        used = np.concatenate([used[:-1], float(counts[-1]) * tail[:-1] / whole])
    there = np.flatnonzero(used)
    used = used[: int(there[-1]) + 1] if len(there) else np.ones(1)
    other = float(total - int(counts[: len(used)].sum()))
    if len(used) >= COUNTED:
        other = float(counts[-1]) * float(tail[-1]) / whole
    weights = [_weight(c, total + 0.5) for c in used.tolist()]
    return Context(group, bytes(weights), _weight(max(0.0, other) + 0.5, total + 0.5))


def _group(counts: Ints, total: int) -> int:
    """The most elements of which a hundredth at most of the groups that are not zero escape."""
    units = int(_bits(counts[None])[0])
    above = (total - np.cumsum(counts)).tolist()
    for group, base in BASE.items():
        fits = group * units <= _GROUP_BITS * _UNIT * total and (
            group < 8 or above[0] <= _CALM * total
        )
        if group > 1 and fits and 100_000 * above[base - 1] <= 1000 * above[0] + total:
            return group
    return 1


def _weight(count: float, total: float) -> int:
    if count <= 0:
        return ABSENT
    bits = float(_log2(total)) - float(_log2(count))
    return min(ABSENT - 1, max(0, math.floor(8 * bits + 0.5)))
