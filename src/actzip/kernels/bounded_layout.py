"""What the Bounded format needs to know about a tensor: shared by the codec and both backends.

Payload: a table with one little-endian uint64 per chunk of 4096 values (offset of its data in the
low 56 bits, level above) | one header byte per block of 64 values | the data of all blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

BLOCK = 64
CHUNK = 4096
BLOCKS_PER_CHUNK = CHUNK // BLOCK
RAW = 255
PLAIN, BITMAP, DELTA = 0, 2, 4  #: times 32, plus the width; + 1 for signed codes
MAX_WIDTH = 30
OFFSET_MASK = (1 << 56) - 1

#: Step of level k over twice the error: what is left is for the rounding of the result.
SCALE = (1 - 1 / 1024, 1 - 1 / 64, 1 - 1 / 16, 0.875, 0.75, 0.625, 0.5)

#: The largest |x / step| that is coded, and the roundoff between x and its re-check.
CAP = {torch.float64: 2.0**26}
ROUNDOFF = {
    torch.float32: 2.0**-21,
    torch.bfloat16: 2.0**-8,
    torch.float16: 2.0**-11,
    torch.float64: 2.0**-50,
}


@dataclass(frozen=True, eq=False)
class ChunkedLayout:
    """Elements in chunks of blocks, with a bound for each channel."""

    n: int
    dtype: torch.dtype
    bounds: Tensor  #: one per channel, from `strict_bounds`
    inner: int  #: elements of a channel that follow each other
    #: the element at which a part of a tensor begins, a multiple of CHUNK
    first: int = field(default=0, kw_only=True)

    @property
    def chunks(self) -> int:
        return -(-self.n // CHUNK)

    @property
    def blocks(self) -> int:
        return -(-self.n // BLOCK)

    @property
    def real(self) -> torch.dtype:
        return real_of(self.dtype)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class BoundedLayout(ChunkedLayout):
    dither: bool
    width: int = 0  #: of the maps that the 2-D prediction sees; 0: prediction in one dimension
    height: int = 1


def real_of(dtype: torch.dtype) -> torch.dtype:
    """The type in which elements are computed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def strict_bounds(errors: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Per channel a bound e in computing precision such that fl(|x - y|) <= e proves the promise.

    A difference above the error may round to the largest number not above it, so e is the one
    below that. Errors under 2^-100 become 0: all values are then kept raw.
    """
    if len(errors) == 1 or device.type != "cpu":
        return _kept_bounds(tuple(errors), dtype, device)
    return _bounds(errors, dtype, device)


@functools.lru_cache(maxsize=256)
def _kept_bounds(errors: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """To copy them to a device is a launch and a wait of its own."""
    with torch.inference_mode(False):  # for whoever asks next, in whatever mode
        return _bounds(errors, dtype, device)


def _bounds(errors: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    real = real_of(dtype)
    low, high = (2.0**-900, 2.0**1000) if real == torch.float64 else (2.0**-100, 2.0**120)
    exact = torch.tensor(errors, dtype=torch.float64)
    exact = torch.where(exact >= low, exact.clamp(max=high), 0.0)
    rounded = exact.to(real)
    zero = torch.zeros((), dtype=real)
    rounded = torch.where(rounded.double() > exact, torch.nextafter(rounded, zero), rounded)
    return torch.nextafter(rounded, zero).to(device)


def levels_of(ratio: Tensor, dtype: torch.dtype) -> Tensor:
    """The first level whose margin holds the rounding of a value that is `ratio` steps large, for
    each of a float64 tensor."""
    needed = (ratio + 0.5) * 2 * ROUNDOFF[dtype]
    found = torch.zeros_like(ratio, dtype=torch.int64)
    for scale in SCALE[:-1]:
        found += needed > 1 - scale
    return found


def sections(layout: BoundedLayout, data: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Views of table, headers and block data; None when bytes are too few for the first two."""
    table, headers = 8 * layout.chunks, layout.blocks
    if data.numel() < table + headers:
        return None
    return data[:table], data[table : table + headers], data[table + headers :]


#: Bytes behind the worst case that kernels may write: whole words, and what belongs nowhere.
SPARE = 16


def worst_case(layout: BoundedLayout) -> int:
    """The most bytes a payload can take: all blocks raw."""
    return 8 * layout.chunks + layout.blocks + layout.n * layout.itemsize


def workspace_size(n: int, itemsize: int) -> int:
    """Bytes in which finished chunks wait until all sizes are known.

    Seven bits per element, which holds what errors of a per cent give. Below 32 MB, above which
    malloc takes fresh pages each time; a chunk that finds no room is encoded twice, nothing else
    changes.
    """
    return min(n * min(7, 8 * itemsize) // 8 + 4096, 30 << 20) if n else 0
