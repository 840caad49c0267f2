"""An option that is one number for a tensor, or a tuple with one for each sample or channel."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, TypeVar

_N = TypeVar("_N", int, float)


def mapped(value: _N | tuple[_N, ...], change: Callable[[_N], _N]) -> _N | tuple[_N, ...]:
    """Each number changed; what was one stays one."""
    return tuple(change(v) for v in value) if isinstance(value, tuple) else change(value)


def mean(value: float | tuple[float, ...]) -> float:
    return statistics.fmean(value) if isinstance(value, tuple) else float(value)


def every(value: float | tuple[float, ...] | None) -> tuple[Any, ...]:
    """The numbers that an option has: one for all, or one for each channel."""
    return value if isinstance(value, tuple) else (value,)
