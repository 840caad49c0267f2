"""The third backend: Triton kernels for GPUs, with the bytes of the other two.

`device/` holds what runs on the device, a file per idea; the modules beside it have the signatures
of `reference/` and launch them. Nothing here is imported before a tensor asks for it.

`ACTZIP_KERNELS=triton` with `TRITON_INTERPRET=1` runs the kernels on CPU tensors, for tests.
"""

from __future__ import annotations

import functools
import importlib.util

#: The forms that have kernels here; `kernels.of` gives the reference for any other.
FORMS = frozenset(
    {
        "bounded",
        "bounded_entropy",
        "cast",
        "dithered",
        "dual",
        "entropy",
        "fixedpoint",
        "group",
        "index",
        "mask",
        "norm",
        "planes",
        "window",
    }
)


@functools.cache
def available() -> bool:
    """Whether Triton is installed; does not import it."""
    found = importlib.util.find_spec("triton")
    return found is not None and found.origin is not None  # a mere folder has none
