"""Max-pool indices as places in their windows, in plain PyTorch: the twin of csrc/exact/window.cpp.

`geometry` is six times three numbers: pooled size, kernel, stride, padding, dilation, map size;
then how many maps lie side by side in memory.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _rows(geometry: list[int]) -> list[list[int]]:
    return [geometry[at : at + 3] for at in range(0, 18, 3)]


def _corners(geometry: list[int], device: torch.device) -> list[Tensor]:
    """The first coordinate of each window, per dimension, shaped to broadcast."""
    pooled, _, stride, padding, _, _ = _rows(geometry)
    return [
        (torch.arange(pooled[d], device=device) * stride[d] - padding[d]).view(
            [-1 if d == e else 1 for e in range(4)]
        )
        for d in range(3)
    ]


def encode(indices: Tensor, geometry: list[int], places: Tensor) -> bool:
    """Places into `places` (uint8); False when an index lies outside its window."""
    pooled, kernel, _, _, dilation, size = _rows(geometry)
    flat = indices.reshape(-1, *pooled, geometry[18])
    at = [flat // (size[1] * size[2]), flat // size[2] % size[1], flat % size[2]]
    place = torch.zeros_like(flat)
    good = (flat >= 0) & (flat < size[0] * size[1] * size[2])
    for d, corner in enumerate(_corners(geometry, indices.device)):
        offset = at[d] - corner
        step = offset // dilation[d]
        good &= (offset >= 0) & (step * dilation[d] == offset) & (step < kernel[d])
        place = place * kernel[d] + step
    places.copy_(place.view(-1))
    return bool(good.all())


def decode(places: Tensor, geometry: list[int], indices: Tensor) -> bool:
    """Indices from places; False when one is outside its window or the map."""
    pooled, kernel, _, _, dilation, size = _rows(geometry)
    place = places.to(torch.int64).view(-1, *pooled, geometry[18])
    good = place < kernel[0] * kernel[1] * kernel[2]
    steps = [
        place // (kernel[1] * kernel[2]),
        place // kernel[2] % kernel[1],
        place % kernel[2],
    ]
    flat = torch.zeros_like(place)
    for d, corner in enumerate(_corners(geometry, places.device)):
        at = steps[d] * dilation[d] + corner
        good &= (at >= 0) & (at < size[d])
        flat = flat * size[d] + at
    if bool(good.all()):
        indices.copy_(flat.view(indices.shape))
        return True
    return False
