"""What per-channel fixed point needs to know about a tensor: shared by codec and backends.

Payload: the step of each channel | a uint64 offset per chunk of 4096 values | the chunks, see
csrc/fixedpoint/chunk.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import BLOCK, CHUNK, real_of
from actzip.kernels.reference.tables import table

NEAREST, STOCHASTIC, DITHER = 0, 1, 2
ROUNDING = {"nearest": NEAREST, "stochastic": STOCHASTIC, "dither": DITHER}

#: What the rounding of the arithmetic and of the result may add to the error, over max |x|.
ROUNDOFF = {
    torch.float32: 2.0**-20,
    torch.bfloat16: 2.0**-7,
    torch.float16: 2.0**-10,
    torch.float64: 2.0**-49,
}


@dataclass(frozen=True)
class FixedPointLayout:
    n: int
    dtype: torch.dtype
    bits: tuple[int, ...]  #: per channel
    inner: int  #: elements of a channel that follow each other
    rounding: int
    skip_zeros: bool

    @property
    def chunks(self) -> int:
        return -(-self.n // CHUNK)

    @property
    def real(self) -> torch.dtype:
        return real_of(self.dtype)

    @property
    def steps_size(self) -> int:
        """Bytes of the stored steps."""
        return len(self.bits) * self.real.itemsize

    @property
    def worst_case(self) -> int:
        """The most bytes a payload can take: of every value a code, and the value."""
        blocks = -(-self.n // BLOCK)
        maps = 8 * blocks if self.skip_zeros else 0
        codes = blocks + -(-self.n * max(self.bits, default=0) // 8)
        return self.steps_size + 8 * self.chunks + maps + codes + self.n * self.dtype.itemsize

    def steps(self, largest: Tensor) -> Tensor:
        """Per channel max |x| / (2^(bits - 1) - 1)."""
        top = tuple(2 ** (b - 1) - 1 for b in self.bits)
        return largest / table(top, self.real, largest.device)

    def limits(self, largest: Tensor) -> Tensor:
        """Per channel the largest error of a code; values that would miss it are kept raw."""
        part = 1.0 if self.rounding == STOCHASTIC else 0.5
        return self.steps(largest) * part + largest * ROUNDOFF[self.dtype]
