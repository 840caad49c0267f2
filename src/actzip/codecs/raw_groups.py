"""Room behind the codes for groups that are kept as they are."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from actzip.codecs import unsettled
from actzip.codecs.payload import Allocate, Coded


def with_raw(
    x: Tensor,
    size: int,
    group: int,
    allocate: Allocate,
    encode: Callable[[Tensor], int | Tensor],
    store_raw: Callable[[Tensor], None],
) -> Tensor | Coded:
    """What `encode` writes into `size` bytes, and the raw groups behind them.

    Where the host may read how many elements are raw, there are just so many bytes more; elsewhere
    a room that holds a few (unsettled.py).
    """
    if not unsettled.reading_is_free(x.device):
        item = x.element_size()
        most = unsettled.room(x.numel(), group)
        data = allocate(size + most * item, x.device)
        word = encode(data[:size])
        if isinstance(word, int):  # nothing to encode
            return data
        store_raw(data)
        return Coded(data, word=word, most=most, unit=item)
    data = allocate(size, x.device)
    raw = int(encode(data))
    return _larger(x, data, raw, allocate, store_raw) if raw else data


def exactly(
    x: Tensor,
    size: int,
    allocate: Allocate,
    encode: Callable[[Tensor], int | Tensor],
    store_raw: Callable[[Tensor], None],
) -> Tensor:
    """The same with no spare byte, on any device: the host reads how many elements are raw."""
    data = allocate(size, x.device)
    raw = int(encode(data))
    return _larger(x, data, raw, allocate, store_raw) if raw else data


def _larger(
    x: Tensor, data: Tensor, raw: int, allocate: Allocate, store_raw: Callable[[Tensor], None]
) -> Tensor:
    size = data.numel()
    larger = allocate(size + raw * x.element_size(), x.device)
    larger[:size] = data
    store_raw(larger)
    return larger
