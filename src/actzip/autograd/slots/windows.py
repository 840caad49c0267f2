"""Max-pool indices: how to store them as places in their windows."""

from __future__ import annotations

from torch import Tensor

from actzip.autograd.slots.lookup import op
from actzip.autograd.slots.rule import Node
from actzip.codecs.base import Codec
from actzip.codecs.index import Index
from actzip.codecs.window import Window


def integers(node: Node) -> Codec:
    """A max-pool's indices are places in windows; all others take the bits of their range."""
    pooled = getattr(node, "_raw_saved_self", None)
    saved = None if pooled is None else pooled.data
    if isinstance(saved, Tensor):
        return window_of(node, tuple(saved.shape)) or Index()
    return Index()


def window_of(node: Node, map_size: tuple[int, ...]) -> Window | None:
    """The codec of a max-pool's indices into maps of this size; None for any other node."""
    count = op(type(node).__name__).window
    if not count:
        return None

    def each(name: str) -> tuple[int, ...]:
        """A saved option, one entry per dimension as PyTorch reads it."""
        found = tuple(getattr(node, f"_saved_{name}"))
        return found * count if len(found) == 1 else found

    kernel = each("kernel_size")
    stride = each("stride") or kernel  # empty means: that of the kernel
    try:
        return Window(kernel, stride, each("padding"), each("dilation"), map_size[-count:])
    except ValueError:  # more places than a byte holds
        return None
