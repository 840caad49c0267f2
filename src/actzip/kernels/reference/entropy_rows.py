"""The coder of entropy.py for symbols of several tables: rows of 32, each with its own table.

All chains side by side; the bytes of a chain are its 32 final states (uint32) and its words as they
are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from actzip.kernels.entropy_table import SCALE, STATES
from actzip.kernels.errors import DamagedError
from actzip.kernels.reference.entropy import LOWEST, Bytes, Ints

_DAMAGED = "entropy_decode: the stored bytes are damaged"


@dataclass(frozen=True, eq=False)
class Rows:
    symbols: Bytes  #: (chains, rows, 32)
    there: npt.NDArray[np.bool_]  #: which of them are
    table: Ints  #: (chains, rows)
    place: Ints  #: of each symbol among all these

    @staticmethod
    def of(symbols: Bytes, chain: Ints, table: Ints, at: Ints) -> Rows:
        """Symbols with their chain and table; a row begins where `at`, which counts up from 0
        wherever chain or table change, is a multiple of 32."""
        row = np.cumsum(at % STATES == 0) - 1
        chains = int(chain[-1]) + 1 if len(chain) else 0
        count = np.bincount(chain[at % STATES == 0], minlength=chains)
        row -= (np.cumsum(count) - count)[chain]
        rows = int(count.max()) if chains else 0
        place = (chain * rows + row) * STATES + at % STATES
        held = np.zeros(chains * rows * STATES, dtype=np.uint8)
        there = np.zeros(held.shape, dtype=bool)
        tables = np.zeros(chains * rows, dtype=np.int64)
        held[place], there[place], tables[place // STATES] = symbols, True, table
        shape = (chains, rows, STATES)
        return Rows(held.reshape(shape), there.reshape(shape), tables.reshape(chains, rows), place)


def encode_rows(rows: Rows, frequencies: Ints) -> list[bytes]:
    """The bytes of each chain."""
    start = np.cumsum(frequencies, axis=1) - frequencies
    chains, count, _ = rows.symbols.shape
    x = np.full((chains, STATES), LOWEST, dtype=np.int64)
    words = np.zeros(rows.symbols.shape, dtype=np.uint16)
    given = np.zeros(rows.symbols.shape, dtype=bool)
    for row in range(count - 1, -1, -1):
        here, s, table = rows.there[:, row], rows.symbols[:, row], rows.table[:, row, None]
        f = np.where(here, frequencies[table, s], 1)
        given[:, row] = here & (x >= f << 19)
        words[:, row] = x & 0xFFFF
        x = np.where(given[:, row], x >> 16, x)
        x = np.where(here, (x // f << 12) + x % f + start[table, s], x)
    return [
        x[k].astype("<u4").tobytes() + words[k][given[k]].astype("<u2").tobytes()
        for k in range(chains)
    ]


def decode_rows(rows: Rows, coded: Sequence[Bytes], frequencies: Ints) -> Bytes:
    """The symbols that these rows had, from the bytes of each chain."""
    start = np.cumsum(frequencies, axis=1) - frequencies
    symbol_at = np.stack([np.repeat(np.arange(len(f)), f) for f in frequencies])
    x, words, limit = _split(coded)
    found = np.zeros(rows.symbols.shape, dtype=np.uint8)
    used = np.zeros(len(x), dtype=np.int64)
    for row in range(rows.table.shape[1]):
        here, table = rows.there[:, row], rows.table[:, row, None]
        slot = x & (SCALE - 1)
        s = symbol_at[table, slot]
        grown = frequencies[table, s] * (x >> 12) + slot - start[table, s]
        low = here & (grown < LOWEST)
        at = used[:, None] + np.cumsum(low, axis=1) - 1
        taken = np.take_along_axis(words, np.clip(at, 0, words.shape[1] - 1), axis=1)
        grown = np.where(low, grown << 16 | taken, grown)
        x = np.where(here, grown, x)
        found[:, row] = np.where(here, s, 0)
        used += low.sum(axis=1)
    if (used != limit).any() or (x != LOWEST).any():
        raise DamagedError(_DAMAGED)
    return found.reshape(-1)[rows.place]


def _split(coded: Sequence[Bytes]) -> tuple[Ints, Ints, Ints]:
    """First states of each chain; its 16-bit words, padded to equal length; how many there are."""
    if any(len(c) < 4 * STATES or len(c) % 2 for c in coded):
        raise DamagedError(_DAMAGED)
    states = [np.frombuffer(c[: 4 * STATES].tobytes(), dtype="<u4") for c in coded]
    x = np.array(states, dtype=np.int64).reshape(len(coded), STATES)
    if (x < LOWEST).any() or (x >> 31).any():
        raise DamagedError(_DAMAGED)
    limit = np.array([len(c) // 2 - 2 * STATES for c in coded], dtype=np.int64)
    words = np.zeros((len(coded), int(limit.max()) + 1 if len(coded) else 1), dtype=np.int64)
    for k, c in enumerate(coded):
        words[k, : limit[k]] = np.frombuffer(c[4 * STATES :].tobytes(), dtype="<u2")
    return x, words, limit
