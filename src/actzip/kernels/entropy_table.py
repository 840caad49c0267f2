"""The table of the entropy stage: frequencies that sum to 4096, and how they are stored.

Stored: spans of a chain (one byte) | number of words, minus one (one byte) | words, each a
little-endian uint16: the frequency of the next symbol, or above 32768 how many symbols do not
occur. Shared by both backends, so that both code with the same table.
"""

from __future__ import annotations

import heapq
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from actzip.kernels.errors import DamagedError

SCALE = 4096
SYMBOLS = 256
SPAN = 65536  #: codes that are coded together
STATES = 32  #: interleaved states of a chain
_SKIP = 1 << 15
CHAINS = (1, 2, 4, 8)  #: spans that share their states: the fewer bits, the more


@dataclass(frozen=True)
class Table:
    """What symbols are coded with.

    States cost a chain about 100 bytes more than they hold. Chains are as long as it takes to make
    that less than one per cent of the coded symbols; they are the unit of parallel work.
    """

    frequencies: list[int]
    chain: int

    @staticmethod
    def of(counts: Sequence[int]) -> Table:
        """The table for symbols that occur so often."""
        frequencies = normalise(counts)
        bits = coded_bits(counts, frequencies) / max(1, sum(counts))
        enough = (c for c in CHAINS if c * bits * SPAN >= 8 * 10_000)
        return Table(frequencies, next(enough, CHAINS[-1]))

    def overhead(self, n: int) -> int:
        """Bytes that n coded symbols take beside their bits: table, sizes and states."""
        spans = -(-n // SPAN)
        return len(self.stored()) + 4 * spans + 3 * STATES * -(-spans // self.chain)

    def stored(self) -> bytes:
        words: list[int] = []
        place = 0
        for symbol in (s for s, f in enumerate(self.frequencies) if f):
            if symbol > place:
                words.append(_SKIP + symbol - place)
            words.append(self.frequencies[symbol])
            place = symbol + 1
        return struct.pack(f"<BB{len(words)}H", self.chain, len(words) - 1, *words)

    @staticmethod
    def load(data: Tensor) -> tuple[Table, int]:
        """The table stored at the start of `data`, and how many bytes it takes."""
        size = 2 + 2 * (int(data[1]) + 1) if data.numel() > 1 else 2
        if data.numel() < size:
            raise DamagedError(f"entropy_decode: {data.numel()} bytes do not hold a table")
        chain, _, *words = struct.unpack(f"<BB{size // 2 - 1}H", bytes(data[:size].tolist()))
        found: list[int] = []
        for word in words:
            found += [0] * (word - _SKIP) if word > _SKIP else [word]
            if len(found) > SYMBOLS:
                break
        found += [0] * (SYMBOLS - len(found))
        sound = len(found) == SYMBOLS and sum(found) == SCALE and max(found) < SCALE
        if not sound or chain not in CHAINS:
            raise DamagedError("entropy_decode: the stored table is damaged")
        return Table(found, chain), size


def least_coded(n: int) -> int:
    """The fewest bytes of n coded symbols: a size for each span, and states for each chain."""
    spans = n // SPAN
    return 4 * spans + 4 * STATES * (spans // CHAINS[-1])


def normalise(counts: Sequence[int]) -> list[int]:
    """Frequencies for these counts: at least 1 for what occurs, at most 4095, sum 4096.

    Rounded down first; what is left goes, one by one, to where it saves most bits, and what is
    too much is taken from where it costs least.
    """
    total = sum(counts)
    there = [s for s, c in enumerate(counts) if c]
    found = [0] * len(counts)
    if len(there) <= 1:  # a lone symbol may not have all 4096: its neighbour gets 1
        lone = there[0] if there else 0
        found[lone], found[lone ^ 1] = SCALE - 1, 1
        return found
    for s in there:
        found[s] = max(1, counts[s] * SCALE // total)
    missing = SCALE - sum(found)
    step = 1 if missing > 0 else -1

    def price(s: int) -> tuple[float, int]:
        """What the next step costs at symbol s, as bits times a constant; negative is a gain."""
        if step < 0 and found[s] == 1:
            return math.inf, s
        return -step * counts[s] / (found[s] + 0.5 * step), s

    prices = [price(s) for s in there]
    heapq.heapify(prices)
    for _ in range(abs(missing)):
        s = prices[0][1]
        found[s] += step
        heapq.heapreplace(prices, price(s))
    return found


def entropy_bits(counts: Sequence[int]) -> float:
    """Bits that coding the counted symbols takes at least."""
    total = sum(counts)
    return sum(c * math.log2(total / c) for c in counts if c)


def coded_bits(counts: Sequence[int], frequencies: Sequence[int]) -> float:
    """Bits that coding the counted symbols with these frequencies takes."""
    pairs = zip(counts, frequencies, strict=True)
    return sum(c * math.log2(SCALE / f) for c, f in pairs if c and f)


def store_sizes(sizes: Tensor) -> Tensor:
    """The bytes of spans' sizes: a uint32 each."""
    return sizes.to(torch.int32).view(torch.uint8)


def load_offsets(data: Tensor, length: int) -> Tensor:
    """Where spans of stored sizes begin; a DamagedError when these do not add up to `length`."""
    sizes = data.clone().view(torch.int32).long()
    ends = sizes.cumsum(0)
    if bool((sizes < 0).any()) or int(sizes.sum()) != length:
        raise DamagedError(f"entropy_decode: {length} bytes are not what its spans take")
    return ends - sizes


def as_tensor(data: bytes, device: torch.device) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
