"""One bit per element, in plain PyTorch: the twin of csrc/exact/mask.cpp."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.errors import DamagedError
from actzip.kernels.reference import planes

_SAME_SIZE_INT = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def encode(x: Tensor, on: float | None, data: Tensor) -> bool:
    """Bits of a 1-D tensor into `data`; False when `on` is given and a third value was met.

    bool: the values. Floating: not (x <= 0), or with `on`: x == on, all else being +0.
    """
    fits = True
    if x.dtype == torch.bool:
        bits = x
    elif on is None:
        bits = ~(x <= 0)
    else:
        whole = _SAME_SIZE_INT[x.element_size()]
        value = torch.tensor(float(on), dtype=x.dtype, device=x.device).view(whole)
        bits = x.view(whole) == value
        fits = bool((bits | (x.view(whole) == 0)).all())
    data.copy_(planes.pack(bits.to(torch.uint8), 1))
    return fits


def decode(data: Tensor, on: float | None, out: Tensor) -> None:
    """The bits as bool, or as 0 and `on` (1 when None) for a floating `out`."""
    if data.numel() != planes.packed_size(out.numel(), 1):
        raise DamagedError(f"a mask of {out.numel()} bits cannot have {data.numel()} bytes")
    bits = planes.unpack(data, out.numel(), 1)
    if out.dtype == torch.bool:
        out.copy_(bits)
    else:
        value = torch.tensor(1.0 if on is None else float(on), dtype=out.dtype, device=out.device)
        out.copy_(torch.where(bits > 0, value, torch.zeros_like(value)))
