"""Memory that is free but that malloc keeps: given back to the system when that is worth it."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """glibc's malloc_trim; None where there is another C library."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return found


def give_back() -> None:
    """Return whole free pages between blocks in use; takes milliseconds, and does no harm."""
    trim = _trim()
    if trim is not None:
        trim(0)
