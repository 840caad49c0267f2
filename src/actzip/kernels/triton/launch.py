"""How kernels are launched: views that Triton can take, sizes of programs, options."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: Read when a kernel is defined, so it holds for the life of the process.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

#: Bytes depend on it: every operation is rounded on its own.
OPTIONS = {"enable_fp_fusion": False}

#: Elements of a program. The interpreter's time goes by programs, so they are few and wide there.
TILE = 1 << 14 if INTERPRETED else 2048


#: When a list, launches are compiled into it instead of run: see ahead.py.
collected: list[tuple[str, int, tuple[object, ...], Any]] | None = None


def run(kernel: Any, programs: int, *args: object, warps: int = 4, **constants: object) -> None:
    """Launch so many programs on the device of the first tensor among the arguments."""
    if programs == 0:
        return
    options = {**OPTIONS, "num_warps": warps}
    if collected is not None:
        built = kernel.warmup(*args, grid=(programs,), **constants, **options)
        collected.append((kernel.fn.__name__, programs, args, built))
        return
    device = next(a.device for a in args if isinstance(a, Tensor))
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        kernel[(programs,)](*args, **constants, **options)


def elements(x: Tensor) -> Tensor:
    """x as kernels take it: bfloat16 as its bits."""
    return x.view(torch.int16) if x.dtype == torch.bfloat16 else x


def octets(x: Tensor) -> Tensor:
    """The bytes of a tensor that is dense in memory, as they lie."""
    return x.as_strided((x.numel(),), (1,)).view(torch.uint8)


def signed(seed: int) -> int:
    """A seed of 64 bits as Triton takes it: an int64."""
    return (seed & 0xFFFFFFFFFFFFFFFF ^ 1 << 63) - (1 << 63)


def power_of_two(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


def with_aligned(data: Tensor, write: Callable[[Tensor], None]) -> None:
    """Have `write` fill bytes that start at a multiple of 16, those of `data` or a copy."""
    if data.data_ptr() % 16 == 0 and data.storage_offset() % 16 == 0:
        write(data)
    else:
        copy = torch.empty_like(data)
        write(copy)
        data.copy_(copy)


def aligned(data: Tensor) -> Tensor:
    """The same bytes, at a multiple of 16: views of wider types need that."""
    if data.data_ptr() % 16 == 0 and data.storage_offset() % 16 == 0:
        return data
    return data.clone()
