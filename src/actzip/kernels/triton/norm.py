"""The results of norms: launches of device/norm.py; signatures as in reference/norm.py."""

from __future__ import annotations

from torch import Tensor, empty_like

from actzip.kernels.norm_layout import inner_of, is_graded
from actzip.kernels.reference import norm as reference
from actzip.kernels.reference.norm import real
from actzip.kernels.triton import launch
from actzip.kernels.triton.device import norm as device


def channels(
    x: Tensor, scale: Tensor, shift: Tensor, sides: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    inner = inner_of(x)
    if inner is None or is_graded(x) or not x.numel():
        return reference.channels(x, scale, shift, sides)
    out = empty_like(x)
    origin, flip = (scale, scale) if sides is None else sides
    tables = [t.to(real(x.dtype)).contiguous() for t in (scale, shift, origin, flip)]
    channels_into(x, tables, inner, sides is not None, out)
    return out


def channels_into(x: Tensor, tables: list[Tensor], inner: int, relu: bool, out: Tensor) -> None:
    """tables: scale, shift, origin and whether the scale is negative, in the type of computing."""
    n = x.numel()
    given = (*map(launch.elements, (x, out)), *tables, n, inner, tables[0].numel())
    launch.run(device.apply_channels, -(-n // launch.TILE), *given, RELU=relu,
               LARGE=n >= 1 << 31, SIZE=launch.TILE)  # fmt: skip


def rows(
    x: Tensor, mean: Tensor | None, rstd: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    if not x.is_contiguous() or is_graded(x) or not x.numel():
        return reference.rows(x, mean, rstd, weight, bias)
    out = empty_like(x)
    tables = [None if t is None else t.to(real(x.dtype)) for t in (mean, rstd, weight, bias)]
    rows_into(x, [None if t is None else t.contiguous() for t in tables], rstd.numel(), out)
    return out


def rows_into(x: Tensor, tables: list[Tensor | None], many: int, out: Tensor) -> None:
    """tables: mean, rstd, weight, bias in the type of computing; rstd is always there."""
    n, rstd = x.numel(), tables[1]
    assert rstd is not None
    there = {
        name: table is not None
        for name, table in zip(("MEAN", "WEIGHT", "BIAS"), (tables[0], *tables[2:]), strict=True)
    }
    given = [rstd if table is None else table for table in tables]
    launch.run(device.apply_rows, -(-n // launch.TILE), *map(launch.elements, (x, out)), *given,
               n, n // many, **there, LARGE=n >= 1 << 31, SIZE=launch.TILE)  # fmt: skip
