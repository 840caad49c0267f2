"""The entropy stage without the C++ library: range ANS in numpy, all spans side by side.

32 states of 31 bits per span, words of 16 bits; symbol i of a span belongs to state i % 32. Coding
runs backwards, decoding forwards: the 32 final states (uint32), then the words as they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from actzip.kernels import entropy_table
from actzip.kernels.entropy_table import SCALE, SPAN, STATES, SYMBOLS
from actzip.kernels.errors import DamagedError

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

LOWEST = 1 << 15


def count(codes: Tensor) -> list[int]:
    """How often each of the 256 codes occurs."""
    found: list[int] = torch.bincount(codes.long(), minlength=SYMBOLS).tolist()
    return found


def encode(codes: Tensor, frequencies: Sequence[int], allocate: Callable[[int], Tensor]) -> Tensor:
    """Bytes of the uint8 codes: table, a uint64 offset per span, spans."""
    table = entropy_table.store(frequencies)
    spans = encode_spans(codes.cpu().numpy(), frequencies)
    sizes = np.array([len(s) for s in spans], dtype=np.int64)
    offsets = np.cumsum(sizes) - sizes
    joined = table + offsets.astype("<u8").tobytes() + b"".join(spans)
    data = allocate(len(joined))
    data.copy_(entropy_table.as_tensor(joined, data.device))
    return data


def decode(data: Tensor, out: Tensor) -> None:
    frequencies, size = entropy_table.load(data)
    spans = -(-out.numel() // SPAN)
    start = size + 8 * spans
    if data.numel() < start:
        raise DamagedError(f"entropy_decode: {data.numel()} bytes are too few")
    raw = data.cpu().numpy()
    begins = np.frombuffer(raw[size:start].tobytes(), dtype="<i8").astype(np.int64)
    ends = np.append(begins, len(raw) - start)[1:]
    if (begins < 0).any() or (begins > ends).any() or (ends > len(raw) - start).any():
        raise DamagedError("entropy_decode: the stored bytes are damaged")
    parts = [raw[start + b : start + e] for b, e in zip(begins, ends, strict=True)]
    out.copy_(torch.from_numpy(decode_spans(parts, frequencies, out.numel())))


def encode_spans(codes: Bytes, frequencies: Sequence[int]) -> list[bytes]:
    """The bytes of each span of 65536 codes."""
    spans = -(-len(codes) // SPAN)
    frequency = np.array(frequencies, dtype=np.int64)
    start = np.cumsum(frequency) - frequency
    rows = SPAN // STATES if spans > 1 else -(-len(codes) // STATES)
    padded = np.zeros(spans * rows * STATES, dtype=np.uint8)
    padded[: len(codes)] = codes
    there = (np.arange(len(padded)) < len(codes)).reshape(spans, rows, STATES)
    symbols = padded.reshape(spans, rows, STATES)
    x = np.full((spans, STATES), LOWEST, dtype=np.int64)
    words = np.zeros(symbols.shape, dtype=np.uint16)
    given = np.zeros(symbols.shape, dtype=bool)
    for row in range(rows - 1, -1, -1):
        here, s = there[:, row], symbols[:, row]
        f = np.where(here, frequency[s], 1)
        given[:, row] = here & (x >= f << 19)
        words[:, row] = x & 0xFFFF
        x = np.where(given[:, row], x >> 16, x)
        x = np.where(here, (x // f << 12) + x % f + start[s], x)
    # the order of reading is row by row, state by state
    return [
        x[k].astype("<u4").tobytes() + words[k][given[k]].astype("<u2").tobytes()
        for k in range(spans)
    ]


def decode_spans(parts: Sequence[Bytes], frequencies: Sequence[int], n: int) -> Bytes:
    """n codes from the bytes of their spans."""
    if any(len(p) < 4 * STATES for p in parts):
        raise DamagedError("entropy_decode: the stored bytes are damaged")
    frequency = np.array(frequencies, dtype=np.int64)
    symbol_at = np.repeat(np.arange(SYMBOLS), frequency)
    start = np.cumsum(frequency) - frequency
    x = np.array([np.frombuffer(p[: 4 * STATES].tobytes(), dtype="<u4") for p in parts], np.int64)
    if len(parts) and ((x < LOWEST).any() or (x >> 31).any()):
        raise DamagedError("entropy_decode: the stored bytes are damaged")
    words, limit = _words(parts)
    rows = SPAN // STATES if len(parts) > 1 else -(-n // STATES)
    codes = np.zeros((len(parts), rows, STATES), dtype=np.uint8)
    there = (np.arange(codes.size) < n).reshape(codes.shape)
    used = np.zeros(len(parts), dtype=np.int64)
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
        if (used > limit).any():
            raise DamagedError("entropy_decode: the stored bytes are damaged")
    return codes.reshape(-1)[:n]


def _words(parts: Sequence[Bytes]) -> tuple[Ints, Ints]:
    """The 16-bit words of each span, padded to equal length, and how many there are."""
    limit = np.array([(len(p) - 4 * STATES) // 2 for p in parts], dtype=np.int64)
    words = np.zeros((len(parts), int(limit.max(initial=0)) + 1), dtype=np.int64)
    for k, part in enumerate(parts):
        body = part[4 * STATES : 4 * STATES + 2 * int(limit[k])]
        words[k, : limit[k]] = np.frombuffer(body.tobytes(), dtype="<u2")
    return words, limit
