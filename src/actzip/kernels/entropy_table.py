"""The table of the entropy stage: frequencies that sum to 4096, and how they are stored.

Stored: number of the last symbol that occurs (one byte) | a little-endian uint16 for each symbol
up to it. Shared by both backends, so that both code with the same table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from actzip.kernels.errors import DamagedError

SCALE = 4096
SYMBOLS = 256
SPAN = 65536  #: codes that are coded together
STATES = 32  #: interleaved states of a span


def normalise(counts: Sequence[int]) -> list[int]:
    """Frequencies for these counts: at least 1 for what occurs, at most 4095, sum 4096.

    Rounded down first; what is left goes, one by one, to where it saves most bits, and what is
    too much is taken from where it costs least.
    """
    total = sum(counts)
    if total == 0:
        counts, total = [1, *counts[1:]], 1
    found = [min(SCALE - 1, max(1, c * SCALE // total)) if c else 0 for c in counts]
    missing = SCALE - sum(found)
    if sum(f > 0 for f in found) == 1:  # a lone symbol may not have all 4096: its neighbour gets 1
        lone = next(s for s, f in enumerate(found) if f)
        found[lone ^ 1] = 1
        missing -= 1
        found[lone] += missing
        return found
    while missing:
        if missing > 0:
            gain = [c / (f + 0.5) if f else -1.0 for c, f in zip(counts, found, strict=True)]
            found[gain.index(max(gain))] += 1
            missing -= 1
        else:
            loss = [
                c / (f - 0.5) if f > 1 else math.inf for c, f in zip(counts, found, strict=True)
            ]
            found[loss.index(min(loss))] -= 1
            missing += 1
    return found


def coded_bits(counts: Sequence[int], frequencies: Sequence[int]) -> float:
    """Bits that coding the counted symbols with these frequencies takes."""
    pairs = zip(counts, frequencies, strict=True)
    return sum(c * math.log2(SCALE / f) for c, f in pairs if c and f)


def store(frequencies: Sequence[int]) -> bytes:
    last = max(s for s, f in enumerate(frequencies) if f)
    words = b"".join(f.to_bytes(2, "little") for f in frequencies[: last + 1])
    return bytes([last]) + words


def load(data: Tensor) -> tuple[list[int], int]:
    """The frequencies stored at the start of `data`, and how many bytes they take."""
    size = 1 + 2 * (int(data[0]) + 1) if data.numel() else 1
    if data.numel() < size:
        raise DamagedError(f"entropy_decode: {data.numel()} bytes do not hold a table")
    raw = bytes(data[1:size].tolist())
    found = [int.from_bytes(raw[i : i + 2], "little") for i in range(0, len(raw), 2)]
    found += [0] * (SYMBOLS - len(found))
    if sum(found) != SCALE or max(found) >= SCALE:
        raise DamagedError("entropy_decode: the stored table is damaged")
    return found, size


def as_tensor(data: bytes, device: torch.device) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
