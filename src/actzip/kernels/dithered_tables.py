"""Tables of the Dithered format: how codes of each context are distributed, and how that is stored.

Stored: 1 if contexts are ranges of v, 0 if ranges of |v| (one byte) | number of contexts (one byte)
| edges between them, in units of 1/256 (a byte each) | for each context: group, number of weights,
weights, weight of all other codes (a byte each; w stands for the probability 2^(-w/8), 255 for 0).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from actzip.kernels.entropy_table import CHAINS, SCALE, SYMBOLS, normalise
from actzip.kernels.errors import DamagedError

BINS = 256  #: of v, for counting
COUNTED = 64  #: codes that are counted for each bin, the last with all above
ESCAPE = 255  #: the symbol of groups that the table does not hold
#: Codes that may be in a group of so many elements.
BASE = {8: 2, 5: 3, 4: 4, 3: 6, 2: 16, 1: 255}
MOST_CONTEXTS = 16  #: contexts
ABSENT = 255
#: Of 1/4096: groups that are rarer are escaped. Their product is a good guess only if neighbours
#: are independent: with 0.35 the first BatchNorm input of a ResNet-20 took 7 % more than it had to.
_RARE = 0.1
_ONE = 1 << 40  #: of probabilities
#: 2^(-k/8) of them
_EIGHTHS = (
    *(1099511627776, 1008256608221, 924575386327, 847839367509),
    *(777472127994, 712945084849, 653773525390, 599512966123),
)


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
        held = bytes(data[: 2 + MOST_CONTEXTS * (3 + SYMBOLS)].tolist())
        place = 0

        def take(count: int) -> bytes:
            nonlocal place
            place += count
            if place > len(held):
                raise DamagedError("dithered_decode: the bytes do not hold the contexts")
            return held[place - count : place]

        signed, count = take(2)
        edges = tuple(take(max(0, count - 1)))
        sound = signed <= 1 and 1 <= count <= MOST_CONTEXTS and list(edges) == sorted(edges)
        each = []
        for _ in range(count if sound else 0):
            group, length = take(2)
            each.append(Context(group, take(length), take(1)[0]))
            sound &= group in BASE and 1 <= length <= BASE.get(group, 0)
            sound &= min(*each[-1].weights, each[-1].escape) < ABSENT
        if not sound:
            raise DamagedError("dithered_decode: the stored contexts are damaged")
        return Contexts(signed == 1, edges, tuple(each)), place


@functools.lru_cache(maxsize=4096)
def _frequencies(context: Context) -> tuple[int, ...]:
    """Elements of a context are independent: a group is as likely as the product of its codes."""
    weights = [_probability(w) for w in context.weights]
    total = sum(weights) + _probability(context.escape)
    one = np.zeros(context.base)
    one[: len(weights)] = [w / total for w in weights]
    found = one
    for _ in range(context.group - 1):
        found = np.multiply.outer(one, found).reshape(-1)
    kept = np.zeros(SYMBOLS, dtype=np.int64)
    likely = np.where(found[:ESCAPE] * SCALE < _RARE, 0.0, found[:ESCAPE])
    kept[: len(likely)] = (likely * _ONE).astype(np.int64)
    kept[ESCAPE] = max(1, _ONE - int(kept.sum()))
    return tuple(normalise(kept.tolist()))


def _probability(weight: int) -> int:
    return 0 if weight == ABSENT else _EIGHTHS[weight % 8] >> weight // 8


@dataclass(frozen=True, eq=False)
class Given:
    """What codes are coded with, beside the values: any will do for any values, as what the tables
    do not hold is escaped."""

    contexts: Contexts
    chain: int  #: spans that share their states

    def stored(self) -> bytes:
        """The chain (one byte) | contexts, as an option of a codec; `given` reads it."""
        return bytes([self.chain]) + self.contexts.stored()


@functools.lru_cache(maxsize=256)
def given(stored: bytes) -> Given:
    """What `Given.stored` wrote; DamagedError for other bytes. The same object for the same bytes:
    with it go its tables on devices."""
    contexts, size = Contexts.load(
        torch.frombuffer(bytearray(stored[1:] or b"\0"), dtype=torch.uint8)
    )
    if size + 1 != len(stored) or stored[0] not in CHAINS:
        raise DamagedError("the stored table is damaged")
    return Given(contexts, stored[0])
