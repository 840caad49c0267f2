"""Error-bounded codes with the entropy stage: launches of device/bounded_entropy.py; signatures as
in reference/bounded_entropy.py.

The host reads the counts, makes the table, and reads the size of the payload. Six launches for an
encode, three for a decode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from actzip.kernels.bounded_entropy_layout import NEGATIVE, Kind, choose, head, looked_at, split
from actzip.kernels.bounded_layout import CHUNK, SCALE, BoundedLayout, worst_case
from actzip.kernels.entropy_table import SPAN, STATES
from actzip.kernels.errors import DamagedError
from actzip.kernels.triton import entropy, launch
from actzip.kernels.triton.bounded import INTS, options_of, quantize_into, sizes_of
from actzip.kernels.triton.device import bounded_entropy as device
from actzip.kernels.triton.device.entropy import ROOM
from actzip.kernels.triton.group import seed_of
from actzip.kernels.triton.spans import BLOCKS, CHUNKS, kept_of, maps_of, raw_of, repeated, within

_EXTRA_ROOM = 2 * SPAN  #: bytes of extra bits that a span may have


def encode(
    x: Tensor, layout: BoundedLayout, seed: int, allocate: Callable[[int], Tensor]
) -> Tensor | None:
    on = x.device
    symbols = torch.empty(layout.chunks * CHUNK, dtype=torch.int32, device=on)
    raw = torch.empty(layout.blocks, dtype=torch.uint8, device=on)
    levels, packed, bits = torch.empty(3, layout.chunks, dtype=torch.int64, device=on)
    quantize_into(x, layout, seed, symbols, raw, levels, packed)
    counts = torch.zeros(NEGATIVE + 2, dtype=torch.int64, device=on)
    count_into(layout, symbols, packed, counts)
    found = counts.tolist()
    choice = choose(found[:-1], found[-1], layout)
    if choice is None:
        return None
    codes = torch.empty(layout.n, dtype=torch.uint8, device=on)
    code_into(layout, symbols, choice.kind, entropy.tables_of(choice.table, on)[0], codes, bits)
    spans = -(-layout.n // SPAN)
    room = torch.empty(spans * ROOM.value, dtype=torch.int16, device=on)
    chains = -(-spans // choice.table.chain)
    states = torch.empty(chains * STATES, dtype=torch.int32, device=on)
    coded = torch.empty(spans, dtype=torch.int64, device=on)
    entropy.code_into(codes, choice.table, room, states, coded)
    extra, before = within(bits, CHUNKS)
    extra = (extra + 7) // 8
    kept, among = kept_of(raw, layout)
    sizes = 4 + coded + extra + kept
    begins = sizes.cumsum(0) - sizes
    total, widest = torch.stack([sizes.sum(), extra.max()]).tolist() if spans else (0, 0)
    first = head(choice, levels.to(torch.uint8), maps_of(raw), sizes)
    start = first.numel()
    if widest > _EXTRA_ROOM or start + total > worst_case(layout):
        return None
    begins = begins + start
    words = torch.zeros((start + total) // 4 + 2, dtype=torch.int32, device=on)
    places = repeated((begins + 4 + coded) * 8, CHUNKS, layout.chunks) + before
    values = repeated(begins + 4 + coded + extra, BLOCKS, layout.blocks) + among
    write_into(x, layout, symbols, choice.kind, codes, raw, places, values, words)
    data = allocate(start + total)
    data.copy_(words.view(torch.uint8)[: data.numel()])
    data[:start] = first
    octets = torch.arange(4, device=on)
    data[begins[:, None] + octets] = (coded[:, None] >> 8 * octets & 255).to(torch.uint8)
    entropy.gather_into(room, states, coded, begins + 4, choice.table, data)
    return data


def count_into(layout: BoundedLayout, symbols: Tensor, packed: Tensor, counts: Tensor) -> None:
    """Adds what some of the chunks ask for to `counts` (as `choose` takes them, then bytes when
    packed), without the host's read."""
    looked = looked_at(layout).to(symbols.device)
    given = (symbols, packed, looked, counts, *_shape(layout))
    launch.run(device.count_chunks, looked.numel(), *given, WIDTH=layout.width > 0, warps=16)


def code_into(
    layout: BoundedLayout, symbols: Tensor, kind: Kind, frequency: Tensor, codes: Tensor,
    bits: Tensor,
) -> None:  # fmt: skip
    given = (symbols, frequency, codes, bits, *_shape(layout))
    launch.run(device.code_chunks, layout.chunks, *given, **_what(layout, kind), warps=16)


def write_into(
    x: Tensor, layout: BoundedLayout, symbols: Tensor, kind: Kind, codes: Tensor, raw: Tensor,
    places: Tensor, values: Tensor, words: Tensor,
) -> None:  # fmt: skip
    """Extra bits and the values of raw blocks into `words` (int32, zeros)."""
    given = (launch.elements(x), symbols, codes, raw, places, values, words, *_shape(layout))
    launch.run(device.write_chunks, layout.chunks, *given, **_what(layout, kind), warps=16)


def decode(data: Tensor, layout: BoundedLayout, seed: int, out: Tensor) -> None:
    parts = split(data, layout)
    body, begins, size = parts.body, parts.offsets, parts.body.numel()
    octets = torch.arange(4, device=data.device)
    raw, beyond = raw_of(parts.raw, layout)
    held = body[(begins[:, None] + octets).clamp(max=max(0, size - 1))] if size else octets[:0]
    coded = (held.long() << 8 * octets).sum(-1) if size else begins
    kept, among = kept_of(raw, layout)
    ends = torch.cat([begins[1:], begins.new_full((min(1, begins.numel()),), size)])
    extra = begins + 4 + coded
    damaged = torch.zeros(1, dtype=torch.int32, device=data.device)
    codes = torch.empty(layout.n, dtype=torch.uint8, device=data.device)
    entropy.decode_from(body, begins + 4, extra, parts.choice.table, codes, damaged)
    bits = torch.empty(layout.chunks, dtype=torch.int64, device=data.device)
    measure_into(codes, bits)
    used, before = within(bits, CHUNKS)
    wrong = (parts.levels >= len(SCALE)).any() | beyond
    wrong |= (extra + (used + 7) // 8 + kept > ends).any() | (damaged > 0).any()
    if bool(wrong):
        raise DamagedError("bounded_decode: the stored bytes are damaged")
    places = repeated(extra * 8, CHUNKS, layout.chunks) + before
    values = repeated(ends - kept, BLOCKS, layout.blocks) + among
    given = (body, codes, parts.levels.contiguous(), raw, places, values)
    read_from(*given, layout, parts.choice.kind, seed, out)


def measure_into(codes: Tensor, bits: Tensor) -> None:
    """The extra bits of each chunk."""
    launch.run(device.measure_chunks, bits.numel(), codes, bits, codes.numel(), warps=4)


def read_from(
    body: Tensor, codes: Tensor, levels: Tensor, raw: Tensor, places: Tensor, values: Tensor,
    layout: BoundedLayout, kind: Kind, seed: int | Tensor, out: Tensor,
) -> None:  # fmt: skip
    """Values of symbols whose extra bits and raw blocks are at these places."""
    in_maps = layout.width > 0 and kind == Kind.DIFFERENCES
    room = layout.chunks * CHUNK if in_maps else 0
    symbols = torch.empty(room, dtype=torch.int32, device=out.device)
    _, width, height = _shape(layout)
    given = (body, codes, levels, raw, places, values, layout.bounds, symbols)
    target = (launch.elements(out), out.view(INTS[out.element_size()]), seed_of(seed))
    launch.run(device.read_chunks, layout.chunks, *given, *target, *sizes_of(layout), body.numel(),
               width, height, warps=16, **_what(layout, kind), **options_of(layout))  # fmt: skip


def _shape(layout: BoundedLayout) -> tuple[int, int, int]:
    return layout.n, max(1, layout.width), layout.height


def _what(layout: BoundedLayout, kind: Kind) -> dict[str, Any]:
    return {"WHAT": int(kind), "WIDTH": layout.width > 0}
