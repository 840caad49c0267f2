"""Contexts of the Dithered format: how codes are distributed for dither of about this size.

Both sides know the dither v of an element. With steps of several standard deviations almost every
code is zero, and only where |v| is near 1/2 anything else is likely: given v, a step of 6 sigma
takes 0.43 bits an element instead of 0.70. So the range of v is cut into a few contexts, each with
a table of its own. The elements of a context are coded together, `group` of them in one symbol.

Stored: 1 if contexts are ranges of v, 0 if ranges of |v| (one byte) | number of contexts (one byte)
| edges between them, in units of 1/256 (a byte each) | for each context: group, number of weights,
weights, weight of all other codes (a byte each; w stands for the probability 2^(-w/8), 255 for 0).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from actzip.kernels.entropy_table import CHAINS, SCALE, SPAN, SYMBOLS, normalise
from actzip.kernels.errors import DamagedError

BINS = 256  #: of v, for counting
COUNTED = 64  #: codes that are counted for each bin, the last with all above
ESCAPE = 255  #: the symbol of groups that the table does not hold
#: Codes that may be in a group of so many elements.
BASE = {8: 2, 5: 3, 4: 4, 3: 6, 2: 16, 1: 255}
_MOST = 16  #: contexts
_ABSENT = 255
#: Of 1/4096: groups that are rarer are escaped. Their product is a good guess only if neighbours
#: are independent: with 0.35 the first BatchNorm input of a ResNet-20 took 7 % more than it had to.
_RARE = 0.1
_CALM = 0.01  #: share of codes other than zero up to which eight elements form a group
_GROUP_BITS = 5  #: a group takes no more, or its table would be too coarse
#: 2^(-k/8), exact on every machine
_EIGHTHS = (
    *(1.0, 0.9170040432046712, 0.8408964152537145, 0.7711054127039704),
    *(0.7071067811865476, 0.6484197773255048, 0.5946035575013605, 0.5452538663326288),
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Context:
    group: int
    weights: bytes  #: of codes 0, 1, …
    escape: int  #: weight of all other codes

    def frequencies(self) -> tuple[int, ...]:
        """Of 255 groups, in which code k of the group counts BASE^k, and of ESCAPE."""
        return _frequencies(self)

    @property
    def base(self) -> int:
        return BASE[self.group]


@dataclass(frozen=True)
class Contexts:
    signed: bool  #: ranges of v, not of |v|
    edges: tuple[int, ...]
    each: tuple[Context, ...]

    def of_bin(self) -> list[int]:
        """The context of each of the 256 bins of v."""
        half = BINS // 2
        sizes = range(BINS) if self.signed else [max(b - half, half - 1 - b) for b in range(BINS)]
        return [sum(size >= edge for edge in self.edges) for size in sizes]

    def stored(self) -> bytes:
        parts = [bytes([self.signed, len(self.each), *self.edges])]
        for c in self.each:
            parts.append(bytes([c.group, len(c.weights), *c.weights, c.escape]))
        return b"".join(parts)

    @staticmethod
    def load(data: Tensor) -> tuple[Contexts, int]:
        """The contexts stored at the start of `data`, and how many bytes they take."""
        held = bytes(data[: 2 + _MOST * (3 + SYMBOLS)].tolist())
        place = 0

        def take(count: int) -> bytes:
            nonlocal place
            place += count
            if place > len(held):
                raise DamagedError("dithered_decode: the bytes do not hold the contexts")
            return held[place - count : place]

        signed, count = take(2)
        edges = tuple(take(max(0, count - 1)))
        sound = signed <= 1 and 1 <= count <= _MOST and list(edges) == sorted(edges)
        each = []
        for _ in range(count if sound else 0):
            group, length = take(2)
            each.append(Context(group, take(length), take(1)[0]))
            sound &= group in BASE and 1 <= length <= BASE.get(group, 0)
            sound &= min(*each[-1].weights, each[-1].escape) < _ABSENT
        if not sound:
            raise DamagedError("dithered_decode: the stored contexts are damaged")
        return Contexts(signed == 1, edges, tuple(each)), place


@functools.lru_cache(maxsize=4096)
def _frequencies(context: Context) -> tuple[int, ...]:
    """Elements of a context are independent: a group is as likely as the product of its codes."""
    weights = [_probability(w) for w in context.weights]
    total = math.fsum([*weights, _probability(context.escape)])
    one = np.zeros(context.base)
    one[: len(weights)] = weights
    one /= total
    found = one
    for _ in range(context.group - 1):
        found = np.multiply.outer(one, found).reshape(-1)
    kept = np.zeros(SYMBOLS)
    kept[: min(ESCAPE, len(found))] = found[:ESCAPE]
    kept[kept * SCALE < _RARE] = 0
    kept[ESCAPE] = max(2.0**-40, 1 - math.fsum(kept.tolist()))
    return tuple(normalise([int(p) for p in (kept * 2.0**40).tolist()]))


def _probability(weight: int) -> float:
    return 0.0 if weight == _ABSENT else math.ldexp(_EIGHTHS[weight % 8], -(weight // 8))


@dataclass(frozen=True)
class Choice:
    contexts: Contexts
    chain: int  #: spans that share their states
    bits: float  #: expected, of all elements; without tables and states
    escaped: float  #: share of codes that no table can hold


def choose(counts: Ints, every: Ints, n: int) -> Choice:
    """Contexts for n elements of which some were counted: how often each of COUNTED codes is in
    each bin (the last for all above), and how often each of 256 codes is (the last likewise)."""
    share = max(1.0, n / max(1, int(every.sum())))
    folded = counts[BINS // 2 :] + counts[: BINS // 2][::-1]
    best = math.inf
    found: tuple[bool, tuple[int, ...], Floats] = (False, (), every[None].astype(np.float64))
    for signed, bins in ((False, folded), (True, counts)):
        plans = _plans(signed)
        below = np.concatenate([np.zeros((1, COUNTED)), np.cumsum(bins, axis=0)])
        parts = below[plans.ends] - below[plans.begins]
        price = share * _bits(parts) + _side_bits(parts, share)
        costs = np.add.reduceat(price, plans.first)
        k = int(np.argmin(costs))
        if costs[k] < best:
            mine = slice(plans.first[k], plans.first[k] + len(plans.edges[k]) + 1)
            best, found = float(costs[k]), (signed, plans.edges[k], parts[mine])
    signed, edges, parts = _merged(*found, share)
    whole = _with_tail(parts, every)
    contexts = Contexts(signed, edges, tuple(_context(row) for row in whole))
    bits = share * float(_bits(whole).sum())
    enough = (c for c in CHAINS if c * bits * SPAN >= 8 * 10_000 * n)
    escaped = int(every[ESCAPE]) / max(1, int(every.sum()))
    return Choice(contexts, next(enough, CHAINS[-1]), bits, escaped)


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
    signed: bool, edges: tuple[int, ...], parts: Floats, share: float
) -> tuple[bool, tuple[int, ...], Floats]:
    """Neighbours become one where that saves more table than it takes bits."""
    price = share * _bits(parts) + _side_bits(parts, share)
    while len(parts) > 1:
        both = parts[:-1] + parts[1:]
        joint = share * _bits(both) + _side_bits(both, share)
        gain = price[:-1] + price[1:] - joint
        k = int(np.argmax(gain))
        if gain[k] <= 0:
            break
        parts = np.concatenate([parts[:k], both[k : k + 1], parts[k + 2 :]])
        price = np.concatenate([price[:k], joint[k : k + 1], price[k + 2 :]])
        edges = (*edges[:k], *edges[k + 1 :])
    return signed, edges, parts


def _bits(parts: Floats) -> Floats:
    """Entropy of each row of counts, times its sum."""
    total = parts.sum(axis=1)
    logs = np.log2(np.maximum(parts, 1))
    found: Floats = total * np.log2(np.maximum(total, 1)) - (parts * logs).sum(axis=1)
    return found


def _side_bits(parts: Floats, share: float) -> Floats:
    """What a table takes, and what entropy is too low because few elements were counted."""
    there = parts > 0
    last = parts.shape[1] - np.argmax(there[:, ::-1], axis=1)
    found: Floats = 8.0 * (last + 4) + (share - 1) * 0.72 * there.sum(axis=1)
    return found


def _with_tail(parts: Floats, every: Ints) -> Floats:
    """Counts of 256 codes: those above COUNTED as they are in the whole tensor."""
    tail = every[COUNTED - 1 :].astype(np.float64)
    spread = tail / max(1.0, float(tail.sum()))
    if parts.shape[1] == len(every):
        return parts
    return np.concatenate([parts[:, :-1], parts[:, -1:] * spread], axis=1)


def _context(counts: Sequence[float] | Floats) -> Context:
    counts = np.asarray(counts, dtype=np.float64)
    total = float(counts.sum()) + 0.5
    group = _group(counts / max(1.0, float(counts.sum())))
    used = counts[: BASE[group]]
    there = np.flatnonzero(used > 0)
    used = used[: int(there[-1]) + 1] if len(there) else np.array([1.0])
    other = float(counts[len(used) :].sum()) + 0.5
    weights = [_weight(float(c), total) for c in used]
    return Context(group, bytes(weights), _weight(other, total))


def _group(p: Floats) -> int:
    """The most elements of which a hundredth at most of the groups that are not zero escape."""
    there = p[p > 0]
    bits = float(-(there * np.log2(there)).sum())
    above = 1 - np.cumsum(p)
    for group, base in BASE.items():
        fits = group * bits <= _GROUP_BITS and (group < 8 or above[0] <= _CALM)
        if fits and above[base - 1] <= 0.01 * above[0] + 1e-5:
            return group
    return 1


def _weight(count: float, total: float) -> int:
    return min(_ABSENT - 1, round(8 * math.log2(total / count))) if count > 0 else _ABSENT
