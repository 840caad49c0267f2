"""Raw groups: their elements as they are, in order, behind the codes.

How many there are is known on the device alone; the room for them is what the host gave. Nothing
here reads the device: the groups that find no room become NaN, and whoever made the payload is
told by the count that `encode` returns.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from actzip.kernels.group_layout import GroupLayout
from actzip.kernels.reference.metadata import REAL, real_type
from actzip.kernels.reference.slabs import elements


def sizes(layout: GroupLayout, device: torch.device) -> Tensor:
    """(samples * groups) elements of each group; the last of a row may be short."""
    size = torch.full((layout.samples, layout.groups), layout.group, device=device)
    size[:, -1:] = layout.n - (layout.groups - 1) * layout.group
    return size.view(-1)


def count(raw: Tensor, layout: GroupLayout) -> Tensor:
    """Elements in raw groups, a number on the device."""
    return (raw.view(-1) * sizes(layout, raw.device)).sum()


def store(x: Tensor, raw: Tensor, layout: GroupLayout, data: Tensor, channels: int = 0) -> None:
    """The raw groups of a 1-D tensor behind the codes of `data`, as far as there is room; the
    others get a step that makes them NaN. channels: so many groups lie side by side."""
    room = _room(data, layout, x.dtype)
    kept = torch.zeros(room + 1, dtype=x.dtype, device=x.device)  # one more: for the others
    for source, place, there in _moves(raw, layout, room, channels):
        kept[torch.where(there, place, room)] = x[source]
    data[layout.offsets[-1] :] = kept[:room].view(torch.uint8)
    spoil(raw, layout, data, x.dtype)


def restore(x: Tensor, raw: Tensor, layout: GroupLayout, data: Tensor, channels: int = 0) -> None:
    """What `store` kept, to where it was."""
    room = _room(data, layout, x.dtype)
    kept = data[layout.offsets[-1] :].clone().view(x.dtype)
    for source, place, there in _moves(raw, layout, room, channels):
        x[source] = torch.where(there, kept[place.clamp(max=room - 1)], x[source])


def _room(data: Tensor, layout: GroupLayout, dtype: torch.dtype) -> int:
    return (data.numel() - layout.offsets[-1]) // dtype.itemsize


def _moves(
    raw: Tensor, layout: GroupLayout, room: int, channels: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(numbers of elements, their places among the kept ones, whether they have one).

    Goes through as many groups as the room could hold, raw ones first. An element may be named
    twice, and then has the same value both times.
    """
    if not room:
        return
    short = layout.n - (layout.groups - 1) * layout.group
    most = min(raw.numel(), -(-room // short))
    flags, size = raw.view(-1), sizes(layout, raw.device)
    begin = (flags * size).cumsum(0) - flags * size
    first = torch.argsort((~flags).to(torch.uint8), stable=True)[:most]
    step = max(1, elements(layout.samples * layout.n, 4) // layout.group)
    inner = torch.arange(layout.group, device=raw.device)
    for at in range(0, most, step):
        group = first[at : at + step]
        offset = torch.minimum(inner, (size[group] - 1).unsqueeze(1))
        fits = flags[group] & (begin[group] + size[group] <= room)
        start, inside = group // layout.groups * layout.n, group % layout.groups
        if channels:
            source = (start + inside).unsqueeze(1) + offset * channels
        else:
            source = (start + inside * layout.group).unsqueeze(1) + offset
        yield source, begin[group].unsqueeze(1) + offset, fits.unsqueeze(1)


def spoil(raw: Tensor, layout: GroupLayout, data: Tensor, dtype: torch.dtype) -> None:
    """A NaN for the step of each raw group that found no room."""
    room = _room(data, layout, dtype)
    flags, size = raw.view(-1), sizes(layout, data.device)
    lost = flags & ((flags * size).cumsum(0) > room)
    real = REAL[real_type(layout.dtype)]
    half = layout.offsets[0] // 2
    steps = data[half : layout.offsets[0]].clone().view(real.half)
    # the bits of a NaN that is not the mark of a raw group
    nan = 0x7FC0 if real.shift == 16 else 0x7FF80000
    data[half : layout.offsets[0]] = torch.where(lost, nan, steps).to(real.half).view(torch.uint8)
