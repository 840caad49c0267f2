"""Max-pool indices: how to store them as places in their windows."""

from __future__ import annotations

from actzip.autograd.slots.rule import Node
from actzip.codecs.window import Window

_DIMENSIONS = {"MaxPool2DWithIndicesBackward0": 2, "MaxPool3DWithIndicesBackward0": 3}


def window_of(node: Node, map_size: tuple[int, ...]) -> Window | None:
    """The codec of a max-pool's indices into maps of this size; None for any other node."""
    count = _DIMENSIONS.get(type(node).__name__)
    if count is None:
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
