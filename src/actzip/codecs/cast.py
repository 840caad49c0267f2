"""Cast: the same numbers in a shorter floating type."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from actzip import checks, kernels
from actzip.codecs.base import Codec
from actzip.codecs.payload import Allocate, Payload, PayloadError
from actzip.codecs.registry import register

_SHORT = (torch.bfloat16, torch.float16)


@register
@dataclass(frozen=True)
class Cast(Codec):
    """Each value rounded to the nearest bfloat16 or float16, as `tensor.to(dtype)` does.

    |x - decode(encode(x))| <= |x| / 2^8 for bfloat16, |x| / 2^11 for float16, in their normal
    range. Finite values beyond the range of the short type come back as its largest value, not as
    infinity.
    """

    dtype: torch.dtype = torch.bfloat16

    def __post_init__(self) -> None:
        checks.one_of(self, "dtype", _SHORT)

    def max_error(self, x: Tensor) -> Tensor:
        """Half a unit in the last place of the short type, or what lies beyond its range."""
        info = torch.finfo(self.dtype)
        size = x.double().abs()
        # 1 + 2^-10: float64 is rounded twice, through float32
        half_unit = size * (info.eps / 2 * (1 + 2.0**-10)) + info.smallest_normal * info.eps / 2
        top = min(info.max, torch.finfo(x.dtype).max)
        return torch.maximum(half_unit, size - top)

    def variance(self, x: Tensor) -> float:
        """Predicted mean squared error: a twelfth of the squared unit in the last place."""
        if x.dtype == self.dtype or x.numel() == 0:
            return 0.0
        unit = (
            torch.exp2(torch.frexp(x.double()).exponent.double() - 1) * torch.finfo(self.dtype).eps
        )
        return float((unit.square() / 12).masked_fill(x == 0, 0.0).mean())

    def least_bytes(self, x: Tensor) -> int:
        return 2 * x.numel()

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Tensor:
        data = allocate(2 * x.numel(), x.device)
        kernels.of(x, "cast").convert(x.view(-1), data.view(self.dtype))
        return data

    def _decode(self, payload: Payload, out: Tensor) -> None:
        if payload.data.numel() != 2 * out.numel():
            raise PayloadError(
                f"Cast holds {payload.data.numel()} bytes for {out.numel()} elements of two bytes"
            )
        data = payload.data
        if data.storage_offset() % 2:  # a view of two-byte numbers must begin with a whole one
            data = data.clone()
        kernels.of(out, "cast").convert(data.view(self.dtype), out.view(-1))
