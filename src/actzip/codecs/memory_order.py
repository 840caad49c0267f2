"""The order in which a tensor's elements lie in memory, and views that have them in it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from torch import Tensor


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = [max(1, size) for size in shape]
    return tuple(math.prod(sizes[d + 1 :]) for d in range(len(sizes)))


def overlaps(x: Tensor) -> bool:
    """True when elements share memory other than by expansion (unfold, as_strided).

    Such elements are encoded one by one and cannot be written back into shared memory.
    """
    return not x.is_contiguous() and _overlap(x.shape, x.stride())


def spaced(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """False when elements of a tensor with these strides share memory other than by expansion."""
    return 0 in shape or not _overlap(shape, strides)


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last in memory."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))


@functools.lru_cache(maxsize=1024)
def _overlap(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride > 0:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def unexpand(x: Tensor) -> Tensor:
    """x with its expanded (stride 0) dimensions cut to one element: each value once."""
    if 0 not in x.stride():
        return x
    for dim, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        if stride == 0 and size > 1:
            x = x.narrow(dim, 0, 1)
    return x


def dense_view(x: Tensor, *, logical: bool, leading: int = 0) -> Tensor | None:
    """A contiguous view of x's elements, or None when x is not dense in memory.

    In logical order the shape is kept; otherwise dimensions go from the largest stride to
    the smallest, so that every permutation of a contiguous tensor is a view.
    """
    if x.is_contiguous():
        return x
    if logical:
        return None
    order = _memory_order(x.shape, x.stride(), leading)
    return None if order is None else x.permute(order)


def as_it_lies(x: Tensor) -> Tensor | None:
    """x itself, for a kernel that reads memory from end to end, or None when x is not dense."""
    return x if x.is_contiguous() or _memory_order(x.shape, x.stride(), 0) is not None else None


@functools.lru_cache(maxsize=1024)
def _memory_order(
    shape: tuple[int, ...], strides: tuple[int, ...], leading: int
) -> tuple[int, ...] | None:
    """Dimensions from the largest stride to the smallest, behind the leading ones; None when the
    elements do not fill their memory in this order."""
    kept = range(min(leading, len(shape)))
    rest = range(len(kept), len(shape))
    order = (*kept, *sorted(rest, key=lambda d: (strides[d], shape[d]), reverse=True))
    expected = 1
    for d in reversed(order):
        if shape[d] != 1 and strides[d] != expected:
            return None
        expected *= shape[d]
    return order


def dense(x: Tensor, *, logical: bool, leading: int = 0) -> Tensor:
    """`dense_view`, of a copy where x has none; each element of an expanded x once."""
    x = unexpand(x.detach().resolve_conj().resolve_neg())
    view = dense_view(x, logical=logical, leading=leading)
    return x.contiguous() if view is None else view


def by_sample(x: Tensor) -> Tensor:
    """x's elements, a row per sample (first dimension), in memory order where it has them so."""
    rows = dense(x, logical=False, leading=1)
    return rows.reshape(rows.shape[0] if rows.dim() > 1 else 1, -1)
