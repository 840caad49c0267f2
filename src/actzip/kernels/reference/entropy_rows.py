"""Range ANS in numpy, with a table for each row of 32 symbols, all chains side by side.

32 states of 31 bits per chain, words of 16 bits; the symbols of a row belong to one state each.
Coding runs backwards, decoding forwards: the bytes of a chain are its 32 final states (uint32) and
its words as they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from actzip.kernels.entropy_table import SCALE, STATES, SYMBOLS
from actzip.kernels.errors import DamagedError

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

LOWEST = 1 << 15
_LANES = np.arange(STATES)


class Rows(NamedTuple):
    symbols: Bytes  #: (chains, rows, 32)
    held: Bytes  #: (chains, rows): symbols that are there, from the first on
    table: Bytes  #: (chains, rows)

    @staticmethod
    def of(chains: Sequence[Sequence[tuple[int, int]]]) -> Rows:
        """Rows of zeros for the pieces of each chain: which table, how many symbols."""
        most = max((sum(-(-size // STATES) for _, size in chain) for chain in chains), default=0)
        shape = (len(chains), most)
        count, table = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
        for k, chain in enumerate(chains):
            row = 0
            for number, size in chain:
                end = row + -(-size // STATES)
                table[k, row:end], count[k, row:end] = number, STATES
                if size % STATES:
                    count[k, end - 1] = size % STATES
                row = end
        return Rows(np.zeros((*shape, STATES), np.uint8), count, table)


class Coded(NamedTuple):
    states: Ints  #: (chains, 32), the final ones
    words: npt.NDArray[np.uint16]  #: (chains, rows, 32)
    given: npt.NDArray[np.bool_]  #: which of them are part of the bytes

    def chain(self, k: int) -> bytes:
        return self.first(k) + self.rows(k, slice(None))

    def first(self, k: int) -> bytes:
        """The bytes with which a chain begins."""
        found: bytes = self.states[k].astype("<u4").tobytes()
        return found

    def rows(self, k: int, rows: slice) -> bytes:
        """The words of some rows; the order of reading is row by row, state by state."""
        found: bytes = self.words[k, rows][self.given[k, rows]].astype("<u2").tobytes()
        return found


def encode_rows(rows: Rows, frequencies: Ints) -> Coded:
    """Of the symbols in these rows; `frequencies` has a row for each table."""
    frequency, start = frequencies.reshape(-1), _starts(frequencies).reshape(-1)
    chains, count, _ = rows.symbols.shape
    x = np.full((chains, STATES), LOWEST, dtype=np.int64)
    words = np.zeros(rows.symbols.shape, dtype=np.uint16)
    given = np.zeros(rows.symbols.shape, dtype=bool)
    for row in range(count - 1, -1, -1):
        here = rows.held[:, row, None] > _LANES
        s = rows.symbols[:, row] + SYMBOLS * rows.table[:, row, None].astype(np.int64)
        f = np.where(here, frequency[s], 1)
        given[:, row] = here & (x >= f << 19)
        words[:, row] = x & 0xFFFF
        x = np.where(given[:, row], x >> 16, x)
        x = np.where(here, (x // f << 12) + x % f + start[s], x)
    return Coded(x, words, given)


def decode_rows(
    rows: Rows, states: Ints, words: npt.NDArray[np.uint16], frequencies: Ints
) -> tuple[npt.NDArray[np.int32], bool]:
    """Puts the symbols into `rows`.

    words: (chains, words), with one more than any chain has. Gives how many words of a chain were
    used up to the end of each row, and whether all states are at last what they were at first.
    """
    frequency, start = frequencies.reshape(-1), _starts(frequencies).reshape(-1)
    symbol_at = np.stack([np.repeat(np.arange(SYMBOLS), f) for f in frequencies]).reshape(-1)
    x, used = states, np.zeros(len(states), dtype=np.int64)
    ends = np.zeros(rows.table.shape, dtype=np.int32)
    for row in range(rows.table.shape[1]):
        here, table = rows.held[:, row, None] > _LANES, rows.table[:, row, None].astype(np.int64)
        slot = x & (SCALE - 1)
        s = symbol_at[slot + SCALE * table]
        place = s + SYMBOLS * table
        grown = frequency[place] * (x >> 12) + slot - start[place]
        low = here & (grown < LOWEST)
        at = used[:, None] + np.cumsum(low, axis=1) - 1
        taken = np.take_along_axis(words, np.clip(at, 0, words.shape[1] - 1), axis=1)
        grown = np.where(low, grown << 16 | taken, grown)
        x = np.where(here, grown, x)
        rows.symbols[:, row] = np.where(here, s, 0)
        used = used + low.sum(axis=1)
        ends[:, row] = used
    return ends, bool((x == LOWEST).all())


def load_chains(coded: Sequence[Bytes], damaged: str) -> tuple[Ints, npt.NDArray[np.uint16], Ints]:
    """First states of each chain; its words, padded to equal length; how many there are."""
    if any(len(c) < 4 * STATES or len(c) % 2 for c in coded):
        raise DamagedError(damaged)
    states = [np.frombuffer(c[: 4 * STATES].tobytes(), dtype="<u4") for c in coded]
    x = np.array(states, dtype=np.int64).reshape(len(coded), STATES)
    if (x < LOWEST).any() or (x >> 31).any():
        raise DamagedError(damaged)
    limit = np.array([len(c) // 2 - 2 * STATES for c in coded], dtype=np.int64)
    words = np.zeros((len(coded), int(limit.max()) + 1 if len(coded) else 1), dtype=np.uint16)
    for k, c in enumerate(coded):
        words[k, : limit[k]] = np.frombuffer(c[4 * STATES :].tobytes(), dtype="<u2")
    return x, words, limit


def _starts(frequencies: Ints) -> Ints:
    found: Ints = np.cumsum(frequencies, axis=1) - frequencies
    return found
