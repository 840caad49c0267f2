"""Per-channel fixed point in plain PyTorch; the format is that of csrc/fixedpoint/chunk.hpp.

The host reads one number of an encode, the size of its payload (`encode_within` leaves it on the
device), and one of a decode, whether bytes from outside are damaged. A few chunks are worked on at
a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from actzip.kernels.bounded_layout import BLOCK, BLOCKS_PER_CHUNK, CHUNK
from actzip.kernels.errors import DamagedError
from actzip.kernels.fixedpoint_layout import DITHER, NEAREST, FixedPointLayout
from actzip.kernels.reference.dither import dither
from actzip.kernels.reference.scattered import put, put_codes, take, take_codes
from actzip.kernels.reference.slabs import elements, spans
from actzip.kernels.reference.tables import table

_WIDEST = 16


class _Part(NamedTuple):
    """Some chunks of a tensor, and the widths of their codes: (chunks, blocks, 64), 0 outside."""

    first: int  #: chunk
    last: int
    channel: Tensor  #: of each element
    inside: Tensor  #: bool
    widths: Tensor

    @property
    def begin(self) -> int:
        """The first element."""
        return self.first * CHUNK


def largest(x: Tensor, layout: FixedPointLayout) -> Tensor:
    """The largest finite magnitude of each channel."""
    found = torch.zeros(len(layout.bits), dtype=layout.real, device=x.device)
    for span in spans(layout.n, x.element_size()):
        size = x[span].to(layout.real).abs()
        size = torch.where(size < torch.inf, size, torch.zeros_like(size))
        place = torch.arange(span.start, span.stop, device=x.device)
        found.scatter_reduce_(0, place // layout.inner % len(layout.bits), size, "amax")
    return found


def encode(
    x: Tensor, layout: FixedPointLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor:
    steps, limits, begins, total = _measure(x, layout, seed)
    body = torch.zeros(int(total) + 1, dtype=torch.uint8, device=x.device)
    _fill(body, x, layout, seed, steps, limits, begins)
    start = layout.steps_size + 8 * layout.chunks
    data = allocate(start + body.numel() - 1)
    _head(data, layout, steps, begins)
    data[start:] = body[:-1]
    return data


def encode_within(x: Tensor, layout: FixedPointLayout, seed: int, data: Tensor) -> Tensor:
    steps, limits, begins, total = _measure(x, layout, seed)
    start = layout.steps_size + 8 * layout.chunks
    _head(data, layout, steps, begins)
    body = data[start:]
    body.zero_()
    _fill(body, x, layout, seed, steps, limits, begins)
    return total + start


def _measure(
    x: Tensor, layout: FixedPointLayout, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Steps and limits of channels, where chunks begin, and where the last one ends."""
    most = largest(x, layout)
    steps, limits = layout.steps(most), layout.limits(most)
    found = [
        _sizes(p, *_codes(x, p, layout, steps, limits, seed), layout) for p in _parts(x, layout)
    ]
    sizes = torch.cat(found) if found else torch.zeros(0, dtype=torch.int64, device=x.device)
    ends = sizes.cumsum(0)
    return steps, limits, ends - sizes, sizes.sum()


def _head(data: Tensor, layout: FixedPointLayout, steps: Tensor, begins: Tensor) -> None:
    start = layout.steps_size + 8 * layout.chunks
    data[: layout.steps_size] = steps.view(torch.uint8)
    data[layout.steps_size : start] = begins.view(torch.uint8)


def _fill(
    body: Tensor, x: Tensor, layout: FixedPointLayout, seed: int, steps: Tensor, limits: Tensor,
    begins: Tensor,
) -> None:  # fmt: skip
    """All chunks into zeros, of which the last is nobody's."""
    for part in _parts(x, layout):
        codes, values, present = _codes(x, part, layout, steps, limits, seed)
        _write(body, begins[part.first : part.last], part, codes, values, present, layout)


def decode(
    data: Tensor, layout: FixedPointLayout, seed: int, out: Tensor, trusted: bool = False
) -> None:
    start = layout.steps_size + 8 * layout.chunks
    if data.numel() < start:
        raise DamagedError(f"fixedpoint_decode: {data.numel()} bytes are too few")
    if layout.n == 0:
        return
    steps = data[: layout.steps_size].clone().view(layout.real)
    body = torch.nn.functional.pad(data[start:], (0, 1))  # what lies beyond the end is read there
    begins = data[layout.steps_size : start].clone().view(torch.int64)
    ends = torch.cat([begins[1:], torch.full_like(begins[:1], body.numel() - 1)])
    damaged = ((begins < 0) | (begins > ends) | (ends >= body.numel())).any()
    for part in _parts(out, layout):
        here = begins[part.first : part.last]
        end, values = _read(body, here, part, layout, steps, seed)
        damaged |= (end > ends[part.first : part.last]).any()
        flat = values.view(-1)[: layout.n - part.begin]
        out[part.begin : part.begin + flat.numel()] = flat
    if not trusted and bool(damaged):
        raise DamagedError("fixedpoint_decode: the stored bytes are damaged")


def _parts(x: Tensor, layout: FixedPointLayout) -> Iterator[_Part]:
    step = max(1, elements(layout.n, x.element_size()) // 2 // CHUNK)
    each = table(layout.bits, torch.int64, x.device)
    for first in range(0, layout.chunks, step):
        last = min(layout.chunks, first + step)
        place = torch.arange(first * CHUNK, last * CHUNK, device=x.device)
        place = place.view(-1, BLOCKS_PER_CHUNK, BLOCK)
        channel, inside = place // layout.inner % len(layout.bits), place < layout.n
        yield _Part(first, last, channel, inside, each[channel] * inside)


def _codes(
    x: Tensor, part: _Part, layout: FixedPointLayout, steps: Tensor, limits: Tensor, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes q + 2^(bits - 1), 0 for values to be kept as they are; values; which are coded."""
    values = x[part.begin : part.last * CHUNK]
    missing = (part.last - part.first) * CHUNK - values.numel()
    values = torch.nn.functional.pad(values, (0, missing)).view(part.widths.shape)
    v = dither(seed, part.begin, values.numel(), x.device).to(layout.real).view(values.shape)
    inverse = torch.where(steps > 0, 1.0 / steps, torch.zeros_like(steps))[part.channel]
    top = _top(part, layout)
    wide = values.to(layout.real)
    q = torch.round(wide * inverse + v * (layout.rounding != NEAREST))
    q = torch.where(q < top, q, top)
    q = torch.where(q > -top, q, -top)
    back = (q - v * (layout.rounding == DITHER)) * steps[part.channel]
    error = (wide - back.to(layout.dtype).to(layout.real)).abs()
    codes = (q + top + 1).long() * (error <= limits[part.channel])
    present = part.inside & (values != 0) if layout.skip_zeros else part.inside
    return codes, values, present


def _top(part: _Part, layout: FixedPointLayout) -> Tensor:
    """The largest code of each element's channel, counted from that of zero."""
    each = tuple(2 ** (b - 1) - 1 for b in layout.bits)
    return table(each, layout.real, part.channel.device)[part.channel]


def _block_sizes(part: _Part, present: Tensor, layout: FixedPointLayout) -> tuple[Tensor, Tensor]:
    """(chunks, blocks) bytes of the bitmaps, and of the codes that are there."""
    maps = (part.inside.sum(2) + 7) // 8 * layout.skip_zeros
    return maps, ((part.widths * present).sum(2) + 7) // 8


def _sizes(
    part: _Part, codes: Tensor, values: Tensor, present: Tensor, layout: FixedPointLayout
) -> Tensor:
    """Bytes of each chunk."""
    maps, coded = _block_sizes(part, present, layout)
    kept = ((codes == 0) & present).flatten(1).sum(1)
    return (maps + coded).sum(1) + kept * layout.dtype.itemsize


def _write(
    body: Tensor, begins: Tensor, part: _Part, codes: Tensor, values: Tensor, present: Tensor,
    layout: FixedPointLayout,
) -> None:  # fmt: skip
    """The chunks of a part to their places; bytes that a block does not have go to the last."""
    maps, coded = _block_sizes(part, present, layout)
    ends = (maps + coded).cumsum(1)
    starts = begins.unsqueeze(1) + ends - maps - coded
    weights = 1 << torch.arange(8, device=body.device)
    octets = (present.unflatten(2, (8, 8)) * weights).sum(3).to(torch.uint8)
    put(body, starts, octets, maps)
    widths = part.widths * present
    position = widths.cumsum(2) - widths
    octets = put_codes(codes * present, position, 2 * BLOCK, _WIDEST)
    put(body, starts + maps, octets, coded)
    kept = ((codes == 0) & present).flatten(1)
    item = layout.dtype.itemsize
    place = (begins + ends[:, -1]).unsqueeze(1) + (kept.cumsum(1) - 1) * item
    put(body, place, values.view(torch.uint8).view(*kept.shape, item), kept * item)


def _read(
    body: Tensor, begins: Tensor, part: _Part, layout: FixedPointLayout, steps: Tensor, seed: int
) -> tuple[Tensor, Tensor]:
    """Where each chunk of a part ends, and its values."""
    present = _present(body, begins, part, layout)
    maps, coded = _block_sizes(part, present, layout)
    ends = (maps + coded).cumsum(1)
    starts = begins.unsqueeze(1) + ends - coded
    widths = part.widths * present
    position = widths.cumsum(2) - widths
    u = take_codes(body, starts, position, widths, _WIDEST)
    v = dither(seed, part.begin, u.numel(), u.device).to(layout.real).view(u.shape)
    back = (u.to(layout.real) - _top(part, layout) - 1) - v * (layout.rounding == DITHER)
    back = back * steps[part.channel]
    values = torch.where(present, back, torch.zeros_like(back)).to(layout.dtype)
    kept = (present & (u == 0)).flatten(1)
    item = layout.dtype.itemsize
    place = (begins + ends[:, -1]).unsqueeze(1) + (kept.cumsum(1) - 1) * item
    whole = take(body, place, item).view(layout.dtype).view(values.shape)
    end = begins + ends[:, -1] + kept.sum(1) * item
    return end, torch.where(kept.view(values.shape), whole, values)


def _present(body: Tensor, begins: Tensor, part: _Part, layout: FixedPointLayout) -> Tensor:
    """Which values have codes: all, or those of the bitmaps, block after block."""
    if not layout.skip_zeros:
        return part.inside
    present, at = part.inside.clone(), begins
    sizes = (part.inside.sum(2) + 7) // 8
    place = torch.arange(8, device=body.device)
    for block in range(BLOCKS_PER_CHUNK):  # the chunks side by side
        bits = take(body, at, 8).unsqueeze(2) >> place & 1
        present[:, block] &= bits.flatten(1).bool()
        coded = ((part.widths[:, block] * present[:, block]).sum(1) + 7) // 8
        at = at + sizes[:, block] + coded
    return present
