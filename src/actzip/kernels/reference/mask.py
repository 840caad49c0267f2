"""One bit per element, in plain PyTorch: the twin of csrc/exact/mask.cpp."""

from __future__ import annotations

import torch
from torch import Tensor

from actzip.kernels.errors import DamagedError
from actzip.kernels.reference import planes
from actzip.kernels.reference.slabs import spans

_SAME_SIZE_INT = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def encode(x: Tensor, on: float | None, data: Tensor) -> int | Tensor:
    """Bits of a 1-D tensor into `data`; returns how many elements are a third value: none but when
    `on` is given, and then a number that is on the device.

    bool: the values. Floating: not (x <= 0), or with `on`: x == on, all else being +0.
    """
    third: int | Tensor = 0
    for span in spans(x.numel(), x.element_size()):
        part = x[span]
        if x.dtype == torch.bool:
            bits = part
        elif on is None:
            bits = ~(part <= 0)
        else:
            whole = part.view(_SAME_SIZE_INT[x.element_size()])
            value = torch.full((), float(on), dtype=x.dtype, device=x.device)
            bits = whole == value.view(whole.dtype)
            third = third + (~(bits | (whole == 0))).sum()
        packed = planes.pack(bits.to(torch.uint8), 1)
        data[span.start // 8 : span.start // 8 + packed.numel()] = packed
    return third


def decode(data: Tensor, on: float | None, out: Tensor) -> None:
    """The bits as bool, or as 0 and `on` (1 when None) for a floating `out`."""
    if data.numel() != planes.packed_size(out.numel(), 1):
        raise DamagedError(f"a mask of {out.numel()} bits cannot have {data.numel()} bytes")
    value = torch.full((), 1.0 if on is None else float(on), dtype=out.dtype, device=out.device)
    for span in spans(out.numel(), out.element_size()):
        count = span.stop - span.start
        here = data[span.start // 8 : span.start // 8 + planes.packed_size(count, 1)]
        out[span] = torch.where(planes.unpack(here, count, 1) > 0, value, torch.zeros_like(value))
