"""What malloc makes of a training's memory: fewer holes, and free pages given back."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable

#: PyTorch's own switch: tensors of 2 MiB and more begin on huge pages. It is read once, when the
#: first tensor of a process is made.
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"


def ask_for_huge_pages() -> None:
    """Have tensors begin on huge pages, unless the environment says otherwise.

    Between tensors that begin on any 64 bytes malloc leaves holes that the next one of the same
    size does not fit into, and compressed training, which makes and drops tensors all the time,
    leaves many. Huge pages have fewer holes and take fewer faults.
    """
    os.environ.setdefault(HUGE_PAGES, "1")


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
