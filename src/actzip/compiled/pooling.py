"""Max-pool indices of a graph, which are places in windows."""

from __future__ import annotations

import operator
from typing import Any

from torch.fx import Node

from actzip.codecs.window import Window
from actzip.compiled import names


def window_of(indices: Node) -> Window | None:
    """The codec of indices that a max-pool gave; None for any others, and for dynamic sizes."""
    pool = indices.args[0] if indices.target is operator.getitem else None
    count = names.op_of(pool.target).window if isinstance(pool, Node) else 0
    if not isinstance(pool, Node) or not count or not isinstance(pool.args[0], Node):
        return None
    options = dict(zip(names.arguments(pool.target), pool.args, strict=False)) | dict(pool.kwargs)

    def each(name: str, otherwise: Any) -> tuple[int, ...]:
        """An option, one entry per dimension."""
        found = tuple(options.get(name, otherwise)) or tuple(otherwise)
        return found * count if len(found) == 1 else found

    size = tuple(pool.args[0].meta["val"].shape[-count:])
    if not all(isinstance(n, int) for n in size):
        return None
    kernel = each("kernel_size", ())
    stride, padding = each("stride", kernel), each("padding", (0,))
    try:
        return Window(kernel, stride, padding, each("dilation", (1,)), size)
    except ValueError:  # more places than a byte holds
        return None
