"""Max-pool indices as places in their windows, in plain PyTorch: the twin of csrc/exact/window.cpp.

`geometry` is six times three numbers: pooled size, kernel, stride, padding, dilation, map size;
then how many maps lie side by side in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from actzip.kernels.reference.slabs import spans


def encode(indices: Tensor, geometry: list[int], places: Tensor) -> int | Tensor:
    """Places into `places` (uint8); returns how many indices lie outside their windows, a number
    that is on the device."""
    _, kernel, _, _, dilation, size = _rows(geometry)
    flat, wrong = indices.reshape(-1), torch.zeros((), dtype=torch.int64, device=indices.device)
    for span, corners in _parts(flat, geometry):
        index = flat[span]
        place = torch.zeros_like(index)
        good = (index >= 0) & (index < size[0] * size[1] * size[2])
        for d, corner in enumerate(corners):
            offset = _coordinate(index, size, d) - corner
            step = offset // dilation[d]
            good &= (offset >= 0) & (step * dilation[d] == offset) & (step < kernel[d])
            place = place * kernel[d] + step
        places[span] = place
        wrong += (~good).sum()
    return wrong


def decode(places: Tensor, geometry: list[int], indices: Tensor) -> int | Tensor:
    """Indices from places; returns how many places are outside the window or the map, a number
    that is on the device. The indices of these are left open."""
    _, kernel, _, _, dilation, size = _rows(geometry)
    flat, wrong = indices.view(-1), torch.zeros((), dtype=torch.int64, device=places.device)
    for span, corners in _parts(flat, geometry):
        place = places[span].to(torch.int64)
        good = place < kernel[0] * kernel[1] * kernel[2]
        index = torch.zeros_like(place)
        for d, corner in enumerate(corners):
            at = _coordinate(place, kernel, d) * dilation[d] + corner
            good &= (at >= 0) & (at < size[d])
            index = index * size[d] + at
        flat[span] = index
        wrong += (~good).sum()
    return wrong


def _rows(geometry: list[int]) -> list[list[int]]:
    return [geometry[at : at + 3] for at in range(0, 18, 3)]


def _coordinate(flat: Tensor, size: list[int], d: int) -> Tensor:
    """Of a position in a box of this size, in dimension d; not cut to the box in the first."""
    if d == 0:
        return flat // (size[1] * size[2])
    return flat // size[2] % size[1] if d == 1 else flat % size[2]


def _parts(flat: Tensor, geometry: list[int]) -> Iterator[tuple[slice, list[Tensor]]]:
    """Parts of the elements, with the first coordinates of their windows, per dimension."""
    pooled, _, stride, padding, _, _ = _rows(geometry)
    for span in spans(flat.numel(), flat.element_size()):
        number = torch.arange(span.start, span.stop, device=flat.device) // geometry[18]
        number %= pooled[0] * pooled[1] * pooled[2]
        yield span, [_coordinate(number, pooled, d) * stride[d] - padding[d] for d in range(3)]
