"""Kernels for tensors of a plan, which have no values: nothing is written, and nothing went wrong.

For the forms whose payloads have a size that follows from the shape, so that codecs make payloads
of the size that they would have.
"""

from __future__ import annotations

from torch import Tensor

from actzip import planning

FORMS = ("group", "dual", "mask", "index", "window")


def encode(*_: object) -> int:
    """No raw group, no third value, no index outside its window."""
    return 0


def decode(*_: object) -> int:
    return 0


def store_raw(*_: object) -> None:
    """There are no raw groups."""


def nonzero(*_: object) -> None:
    """There are no codes to read zeros from."""


def extremes(x: Tensor) -> tuple[int, int]:
    """The least and the largest index, as far as anybody knows."""
    return 0, (1 << planning.INDEX_BITS) - 1
