"""The entropy stage without the C++ library: range ANS in numpy, all chains side by side.

32 states of 31 bits per chain, words of 16 bits; symbol i belongs to state i % 32. Coding runs
backwards, decoding forwards: the bytes of a span are its words as they are read, before them in the
first span of a chain the 32 final states (uint32).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from actzip.kernels.entropy_table import (
    SCALE,
    SPAN,
    STATES,
    SYMBOLS,
    Table,
    as_tensor,
    load_offsets,
)
from actzip.kernels.errors import DamagedError

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

LOWEST = 1 << 15
_ROWS = SPAN // STATES
_DAMAGED = "entropy_decode: the stored bytes are damaged"


def count(codes: Tensor) -> list[int]:
    """How often each of the 256 codes occurs."""
    found: list[int] = torch.bincount(codes.long(), minlength=SYMBOLS).tolist()
    return found


def encode(codes: Tensor, table: Table, allocate: Callable[[int], Tensor]) -> Tensor:
    """Bytes of the uint8 codes: table, a uint32 per span with its size, spans."""
    spans = encode_spans(codes.cpu().numpy(), table)
    sizes = np.array([len(s) for s in spans], dtype="<u4")
    joined = table.stored() + sizes.tobytes() + b"".join(spans)
    data = allocate(len(joined))
    data.copy_(as_tensor(joined, data.device))
    return data


def decode(data: Tensor, out: Tensor) -> None:
    table, size = Table.load(data)
    start = size + 4 * -(-out.numel() // SPAN)
    if data.numel() < start:
        raise DamagedError(f"entropy_decode: {data.numel()} bytes are too few")
    body = data[start:]
    offsets = load_offsets(data[size:start], body.numel()).tolist()
    raw = body.cpu().numpy()
    parts = [raw[a:b] for a, b in pairwise([*offsets, len(raw)])]
    out.copy_(torch.from_numpy(decode_spans(parts, table, out.numel())))


def encode_spans(codes: Bytes, table: Table) -> list[bytes]:
    """The bytes of each span of 65536 codes; chains side by side, each from its end."""
    spans = -(-len(codes) // SPAN)
    chains = -(-spans // table.chain)
    frequency = np.array(table.frequencies, dtype=np.int64)
    start = np.cumsum(frequency) - frequency
    rows = -(-min(len(codes), table.chain * SPAN) // STATES)
    padded = np.zeros(chains * rows * STATES, dtype=np.uint8)
    padded[: len(codes)] = codes
    symbols = padded.reshape(chains, rows, STATES)
    there = (np.arange(symbols.size) < len(codes)).reshape(symbols.shape)
    x = np.full((chains, STATES), LOWEST, dtype=np.int64)
    words = np.zeros(symbols.shape, dtype=np.uint16)
    given = np.zeros(symbols.shape, dtype=bool)
    for row in range(rows - 1, -1, -1):
        here, s = there[:, row], symbols[:, row]
        f = np.where(here, frequency[s], 1)
        given[:, row] = here & (x >= f << 19)
        words[:, row] = x & 0xFFFF
        x = np.where(given[:, row], x >> 16, x)
        x = np.where(here, (x // f << 12) + x % f + start[s], x)
    found = []
    for span in range(spans):
        k, at = divmod(span, table.chain)
        states = x[k].astype("<u4").tobytes() if at == 0 else b""
        # the order of reading is row by row, state by state
        mine = slice(at * _ROWS, (at + 1) * _ROWS)
        found.append(states + words[k, mine][given[k, mine]].astype("<u2").tobytes())
    return found


def decode_spans(parts: Sequence[Bytes], table: Table, n: int) -> Bytes:
    """n codes from the bytes of their spans."""
    chains = -(-len(parts) // table.chain)
    frequency = np.array(table.frequencies, dtype=np.int64)
    symbol_at = np.repeat(np.arange(SYMBOLS), frequency)
    start = np.cumsum(frequency) - frequency
    x, words, limit = _split(parts, table.chain)
    rows = -(-min(n, table.chain * SPAN) // STATES)
    codes = np.zeros((chains, rows, STATES), dtype=np.uint8)
    there = (np.arange(codes.size) < n).reshape(codes.shape)
    used = np.zeros(chains, dtype=np.int64)
    for row in range(rows):
        slot = x & (SCALE - 1)
        s = symbol_at[slot]
        grown = frequency[s] * (x >> 12) + slot - start[s]
        low = there[:, row] & (grown < LOWEST)
        at = used[:, None] + np.cumsum(low, axis=1) - 1
        taken = np.take_along_axis(words, np.clip(at, 0, words.shape[1] - 1), axis=1)
        grown = np.where(low, grown << 16 | taken, grown)
        x = np.where(there[:, row], grown, x)
        codes[:, row] = np.where(there[:, row], s, 0)
        used += low.sum(axis=1)
        if (row + 1) % _ROWS == 0 or row + 1 == rows:
            # spans end where they say, also those of shorter chains before
            ends = limit[:, row // _ROWS]
            if (used != ends).any():
                raise DamagedError(_DAMAGED)
    if (x != LOWEST).any():
        raise DamagedError(_DAMAGED)
    return codes.reshape(-1)[:n]


def _split(parts: Sequence[Bytes], chain: int) -> tuple[Ints, Ints, Ints]:
    """First states of each chain; its 16-bit words, padded to equal length; and how many words
    there are up to the end of each of its spans."""
    chains = -(-len(parts) // chain)
    states, bodies = [], []
    limit = np.zeros((chains, chain), dtype=np.int64)
    for k in range(chains):
        mine = list(parts[k * chain : (k + 1) * chain])
        if len(mine[0]) < 4 * STATES or any(len(p) % 2 for p in mine):
            raise DamagedError(_DAMAGED)
        states.append(np.frombuffer(mine[0][: 4 * STATES].tobytes(), dtype="<u4").astype(np.int64))
        mine[0] = mine[0][4 * STATES :]
        limit[k] = np.cumsum([len(p) // 2 for p in mine] + [0] * (chain - len(mine)))
        bodies.append(np.frombuffer(b"".join(p.tobytes() for p in mine), dtype="<u2"))
    x = np.array(states, np.int64).reshape(chains, STATES)
    if (x < LOWEST).any() or (x >> 31).any():
        raise DamagedError(_DAMAGED)
    words = np.zeros((chains, max((len(b) for b in bodies), default=0) + 1), dtype=np.int64)
    for k, body in enumerate(bodies):
        words[k, : len(body)] = body
    return x, words, limit
