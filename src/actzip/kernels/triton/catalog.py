"""One call of every kernel on tensors of a usual size: what tests compile ahead of time and what
benchmarks/gpu_model.py reckons with. The tensors are on the "meta" device: nothing is run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from actzip.kernels.bounded_entropy_layout import Kind, look_every
from actzip.kernels.bounded_layout import CHUNK, BoundedLayout, real_of, worst_case
from actzip.kernels.dithered_layout import DitheredLayout, Sides
from actzip.kernels.dual_layout import Axis, DualLayout
from actzip.kernels.entropy_table import SCALE, SPAN, SYMBOLS, Table
from actzip.kernels.fixedpoint_layout import FixedPointLayout
from actzip.kernels.group_layout import ROUNDING, GroupLayout
from actzip.kernels.triton import (
    bounded,
    bounded_entropy,
    cast,
    dithered,
    dithered_given,
    dual,
    entropy,
    fixedpoint,
    group,
    index,
    mask,
    norm,
    planes,
    window,
)
from actzip.kernels.triton.dithered_tables import Parts, Tables

N = 1 << 22


@dataclass(frozen=True)
class Call:
    """A launch: `elements` is how many it codes, `moved` how many bytes it reads and writes."""

    name: str
    call: Callable[[], None]
    elements: int
    moved: int
    itemsize: int  #: of an element as it lay in memory before
    wide: bool = True  #: whether elements go 16 bytes at a time; not where blocks start anywhere

    @property
    def loops_on_data(self) -> bool:
        """True where memory says how often a loop runs, which nobody knows before."""
        ends = ("symbols", "gather", "symbols decode", "extra decode")
        chains = self.name.startswith("dithered") and self.name.endswith(ends)
        named = ("group bits per sample", "group raw", "entropy gather")
        return chains or self.name.startswith(named)

    @property
    def serial(self) -> bool:
        """True where a program waits for each step's result: latency bounds it, not rates."""
        return (
            self.name in ("entropy encode", "entropy decode")
            or (self.name.startswith("bounded") and self.name.endswith("decode"))
            or (self.name.startswith("fixedpoint") and self.name.endswith("decode"))
        )

    @property
    def reads_elements(self) -> bool:
        """True for encoders: they read what decoders write."""
        return not self.name.endswith(("decode", "mask", "unpack"))


def _empty(n: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.empty(n, dtype=dtype, device="meta")


def group_calls(dtype: torch.dtype) -> Iterator[Call]:
    for bits, rounding, zero in (
        (1, "dither", False),
        (2, "dither", False),
        (2, "stochastic", False),
        (2, "dither", True),
        (3, "nearest", False),
        (4, "dither", False),
        (8, "dither", False),
    ):
        layout = GroupLayout(1, N, 256, (bits,), ROUNDING[rounding], zero, dtype)
        named = f"group {bits} bits {rounding}{' zero' if zero else ''}"
        yield from _group(named, layout, N)
    mixed = GroupLayout(8, N // 8, 256, (1, 2, 3, 4, 2, 2, 1, 8), ROUNDING["dither"], False, dtype)
    yield from _group("group bits per sample", mixed, N)
    odd = GroupLayout(1, N, 100, (2,), ROUNDING["dither"], False, dtype)
    yield from _group("group of 100", odd, N)
    plain = GroupLayout(1, N, 256, (2,), ROUNDING["dither"], False, dtype)
    yield from _raw_groups(plain, _empty(N, dtype))


def _raw_groups(layout: GroupLayout, x: Tensor) -> Iterator[Call]:
    """Of which there are none: steps are read, and the room for them is cleared."""
    steps, room = layout.offsets[0] // 2, x.nbytes // 512
    data = _empty(layout.offsets[-1] + room)
    for name, store in (("group raw store", True), ("group raw decode", False)):
        call = functools.partial(group.with_filled, x, layout, data, store=store)
        moved = steps + (room if store else 0)
        yield Call(name, call, layout.groups, moved, layout.meta_item, wide=False)


def _group(name: str, layout: GroupLayout, n: int) -> Iterator[Call]:
    x, data = _empty(n, layout.dtype), _empty(layout.offsets[-1])
    raw, item = _empty(1, torch.int64), x.element_size()
    moved = n * item + data.numel()
    yield Call(f"{name} encode", lambda: group.encode_into(x, layout, 5, data, raw), n, moved, item)
    yield Call(f"{name} decode", lambda: group.decode_from(data, layout, 5, x), n, moved, item)
    if layout.zero:
        yield Call(f"{name} mask", lambda: group.nonzero(data, layout, x), n, moved, item)


def dual_calls(dtype: torch.dtype) -> Iterator[Call]:
    for side, zero, channels in ((32, False, 0), (56, True, 0), (14, False, 256)):
        maps = N // side**2 // 256 * 256
        axes = Axis(1, 8, False), Axis(side, 8, False), Axis(side, 8, False)
        samples = maps // channels if channels else 1
        n = maps * side**2 // samples
        rest = GroupLayout(samples, n, side**2, (2,) * samples, ROUNDING["dither"], zero, dtype)
        named = f"dual {side}x{side}{' zero' if zero else ''}{' channels last' if channels else ''}"
        yield from _dual(named, DualLayout(maps, axes, rest, channels), maps * side**2)


def _dual(name: str, layout: DualLayout, n: int) -> Iterator[Call]:
    x, raw = _empty(n, layout.rest.dtype), _empty(1, torch.int64)
    data = _empty(layout.averages_size + layout.rest.offsets[-1])
    item = x.element_size()
    moved = n * item + data.numel()
    yield Call(f"{name} encode", lambda: dual.encode_into(x, layout, 5, data, raw), n, moved, item)
    yield Call(f"{name} decode", lambda: dual.decode_from(data, layout, 5, x), n, moved, item)


def fixedpoint_calls(dtype: torch.dtype) -> Iterator[Call]:
    for skip in (False, True):
        layout = FixedPointLayout(N, dtype, (6,) * 64, 1024, ROUNDING["dither"], skip)
        yield from _fixedpoint("fixedpoint skipping zeros" if skip else "fixedpoint", layout)


def _fixedpoint(name: str, layout: FixedPointLayout) -> Iterator[Call]:
    x, each, sizes = _empty(N, layout.dtype), _empty(64, layout.real), _empty(1024, torch.int64)
    coded = layout.steps_size + 8 * layout.chunks + N * 6 // 8
    words, item = _empty(coded // 4 + 2, torch.int32), x.element_size()
    given = (x, layout, 5, each, each, sizes)
    yield Call(f"{name} largest", lambda: _ignore(fixedpoint.largest(x, layout)), N, N * item, item)
    yield Call(f"{name} sizes", lambda: fixedpoint.measure_into(*given), N, N * item, item)
    moved = N * item + coded
    yield Call(f"{name} encode", lambda: fixedpoint.write_into(*given, words), N, moved, item)
    data = _empty(coded)
    decode = f"{name} decode", lambda: fixedpoint.decode_from(data, layout, 5, x)
    yield Call(*decode, N, moved, item, wide=False)


def bounded_calls(dtype: torch.dtype) -> Iterator[Call]:
    for width in (0, 64):
        layout = BoundedLayout(N, dtype, _empty(1, real_of(dtype)), 1, True, width, 64)
        yield from _bounded("bounded lorenzo" if width else "bounded", layout)


def _bounded(name: str, layout: BoundedLayout) -> Iterator[Call]:
    """With codes of six bits."""
    x, symbols, sizes = _empty(N, layout.dtype), _empty(N, torch.int32), _empty(1024, torch.int64)
    headers, item = _empty(layout.blocks), x.element_size()
    coded = 8 * layout.chunks + layout.blocks + N * 6 // 8
    words, data = _empty(worst_case(layout) // 4, torch.int32), _empty(coded)
    found = (symbols, headers, sizes, sizes, words, 8 * layout.chunks + layout.blocks)
    moved = N * (item + 4 + item)  # memory for the worst case is cleared
    quantize = f"{name} quantize", lambda: bounded.quantize_into(x, layout, 5, *found)
    yield Call(*quantize, N, moved, item)
    numbers = (sizes, sizes, sizes, sizes, sizes[:1], coded)
    place = f"{name} place", lambda: bounded.place_into(*numbers)
    yield Call(*place, layout.chunks, 32 * layout.chunks, 8)
    pack = f"{name} pack", lambda: bounded.pack_into(x, layout, symbols, headers, sizes, words)
    yield Call(*pack, N, N * 4 + coded, item)
    unpack = f"{name} decode", lambda: bounded.decode_from(data, layout, 5, x)
    moved = N * item + coded + (8 * N if layout.width else 0)  # symbols there and back
    yield Call(*unpack, N, moved, item, wide=False)


def bounded_entropy_calls(dtype: torch.dtype) -> Iterator[Call]:
    """What comes beside the entropy stage: symbols of four bits, no extra bits counted."""
    for width, kind in ((0, Kind.SIGNED), (64, Kind.DIFFERENCES)):
        layout = BoundedLayout(N, dtype, _empty(1, real_of(dtype)), 1, True, width, 64)
        yield from _bounded_entropy(f"bounded entropy{' lorenzo' if width else ''}", layout, kind)


def _bounded_entropy(name: str, layout: BoundedLayout, kind: Kind) -> Iterator[Call]:
    x, symbols, codes = _empty(N, layout.dtype), _empty(N, torch.int32), _empty(N)
    each, item = _empty(layout.chunks, torch.int64), x.element_size()
    raw, values = _empty(layout.blocks), _empty(layout.blocks, torch.int64)
    counts, frequency = _empty(770, torch.int64), _empty(SYMBOLS, torch.int32)
    words, body, levels = _empty(N // 8, torch.int32), _empty(N // 2), _empty(layout.chunks)
    found = (symbols, raw, each, each)
    looked = -(-layout.chunks // look_every(layout)) * CHUNK
    in_maps = 8 * N if layout.width else 0  # symbols there and back
    coded = (layout, symbols, kind, frequency, codes, each)
    for step, call, elements, moved, wide in (
        ("quantize", lambda: bounded.quantize_into(x, layout, 5, *found),
         N, N * (item + 4), True),
        ("count", lambda: bounded_entropy.count_into(layout, symbols, each, counts),
         looked, 4 * looked, True),
        ("symbols", lambda: bounded_entropy.code_into(*coded), N, 5 * N, True),
        ("extra", lambda: bounded_entropy.write_into(
            x, layout, symbols, kind, codes, raw, each, values, words), N, 5 * N, True),
        ("extra sizes", lambda: bounded_entropy.measure_into(codes, each), N, N, True),
        ("values decode", lambda: bounded_entropy.read_from(
            body, codes, levels, raw, each, values, layout, kind, 5, x),
         N, N * (item + 1) + in_maps, False),
    ):  # fmt: skip
        yield Call(f"{name} {step}", call, elements, moved, item, wide=wide)


def dithered_calls(dtype: torch.dtype) -> Iterator[Call]:
    """Eight contexts; symbols of four bits for one element each, no extra bits counted."""
    one = _empty(1, real_of(dtype))
    yield from _dithered("dithered", DitheredLayout(N, dtype, one, 1))
    yield from _dithered("dithered sides", DitheredLayout(N, dtype, one, 1, Sides(one, one, one)))


def _dithered(name: str, layout: DitheredLayout) -> Iterator[Call]:
    x, codes, item = _empty(N, layout.dtype), _empty(N, torch.int32), layout.itemsize
    small, each = _empty(8 * 4096, torch.int32), _empty(layout.chunks, torch.int64)
    tables = Tables(8, small, small, small, small, _empty(8 * 4096), _empty(200))
    parts = Parts.of(layout, torch.device("meta"))
    raw, values = _empty(layout.blocks), _empty(layout.blocks, torch.int64)
    counts, words, body = _empty(16640, torch.int64), _empty(N // 8, torch.int32), _empty(N // 2)
    room, states = _empty(layout.spans * 49664, torch.int16), _empty(N // 2048, torch.int32)
    coded = _empty(layout.spans, torch.int64)
    made = dithered_given.Coded.of(layout, 2, torch.device("meta"))
    for step, call, moved, wide in (
        ("quantize", lambda: dithered.quantize_into(x, layout, 5, codes, raw, each, counts),
         N * (item + 4), True),
        ("contexts", lambda: dithered.part_into(codes, layout, 5, tables, parts), 16 * N, True),
        ("symbols", lambda: dithered.code_into(
            parts, tables, layout.spans, 1, room, states, coded), 8 * N + N // 2, False),
        ("extra sizes", lambda: dithered.measure_into(codes, parts, each), 12 * N, True),
        ("extra", lambda: dithered.write_into(x, codes, parts, raw, each, values, words),
         12 * N, True),
        ("gather", lambda: dithered.gather_into(room, states, coded, coded, 1, body), N, False),
        ("contexts decode", lambda: dithered.part_into(None, layout, 5, tables, parts),
         4 * N, False),
        ("symbols decode", lambda: dithered.read_symbols(
            body, coded, coded, parts, tables, layout, 1, words), 4 * N + N // 2, False),
        ("extra decode", lambda: dithered.read_escaped(
            body, coded, coded, parts, layout, 1, codes, words), 8 * N, False),
        ("values decode", lambda: dithered.read_from(
            body, codes, parts, raw, raw, values, tables, layout, 5, x), N * (item + 8), False),
        ("given codes", lambda: dithered_given.code_into(x, layout, 5, tables, parts, made),
         N * (item + 28), False),
        ("given symbols", lambda: dithered_given.words_into(layout, 2, tables, parts, made),
         8 * N + N // 2, False),
        ("given bytes", lambda: dithered_given.write_into(
            x, layout, 2, 2, tables, made, body, each), N, False),
        ("known symbols", lambda: dithered_given.chains_from(
            body, layout, 2, tables, parts, codes, coded), 12 * N + N // 2, False),
        ("known values", lambda: dithered_given.values_from(
            body, layout, 5, 2, tables, parts, codes, coded, x), N * (item + 8), False),
    ):  # fmt: skip
        yield Call(f"{name} {step}", call, N, moved, item, wide=wide)


def entropy_calls() -> Iterator[Call]:
    """Symbols of four bits."""
    codes, counts = _empty(N), _empty(256, torch.int64)
    table = Table([SCALE // 16] * 16 + [0] * (SYMBOLS - 16), 1)
    spans, data = N // SPAN, _empty(N // 2)
    room, states = _empty(spans * 50176, torch.int16), _empty(spans * 32, torch.int32)
    sizes, begins = _empty(spans, torch.int64), _empty(spans, torch.int64)
    flag, both = _empty(1, torch.int32), N + N // 2
    found = (room, states, sizes)
    for name, call, moved in (
        ("count", lambda: entropy.count_into(codes, counts), N),
        ("encode", lambda: entropy.code_into(codes, table, *found), both),
        ("gather", lambda: entropy.gather_into(*found, begins, table, data), N),
        ("decode", lambda: entropy.decode_from(data, begins, begins, table, codes, flag), both),
    ):
        yield Call(f"entropy {name}", call, N, moved, 1, wide=False)


def _ignore(result: object) -> None:
    pass


def exact_calls(dtype: torch.dtype) -> Iterator[Call]:
    x, bits, flag = _empty(N, dtype), _empty(N // 8), _empty(1, torch.int32)
    item = x.element_size()
    moved = N * item + N // 8
    yield Call("mask encode", lambda: mask.encode_into(x, None, bits, flag), N, moved, item)
    yield Call("noise encode", lambda: mask.encode_into(x, 2.0, bits, flag), N, moved, item)
    yield Call("mask decode", lambda: mask.decode(bits, None, x), N, moved, item)
    if item == 4:
        short, moved = _empty(N, torch.bfloat16), N * 6
        yield Call("cast encode", lambda: cast.convert(x, short), N, moved, item)
        yield Call("cast decode", lambda: cast.convert(short, x), N, moved, item)


def norm_calls(dtype: torch.dtype) -> Iterator[Call]:
    x, out, each = _empty(N, dtype), _empty(N, dtype), _empty(1024, real_of(dtype))
    item = x.element_size()
    for name, inner, relu in (
        ("", 4096, False),
        (" relu", 4096, True),
        (" channels last", 1, True),
    ):
        call = partial(norm.channels_into, x, [each] * 4, inner, relu, out)
        yield Call(f"norm channels{name}", call, N, 2 * N * item, item)
    given: dict[str, list[Tensor | None]] = {
        "layer": [each, each, each, each],
        "rms": [None, each, each, None],
    }
    for name, tables in given.items():
        call = partial(norm.rows_into, x, tables, N // 1024, out)
        yield Call(f"norm {name}", call, N, 2 * N * item, item)


def integer_calls() -> Iterator[Call]:
    x, data, moved = _empty(N, torch.int64), _empty(N // 8 * 14), N * 8 + N // 8 * 14
    yield Call("index encode", lambda: index.encode(x, 0, 14, data), N, moved, 8)
    yield Call("index decode", lambda: index.decode(data, 0, 14, x), N, moved, 8)
    yield Call("index extremes", lambda: index.extremes_into(x, x[:2]), N, N * 8, 8)
    places, flag = _empty(N), _empty(1, torch.int32)
    of = [1, 32, 32, 1, 3, 3, 1, 2, 2, 0, 1, 1, 1, 1, 1, 1, 64, 64, 1]
    yield Call("window encode", lambda: window.encode_into(x, of, places, flag), N, N * 9, 8)
    yield Call("window decode", lambda: window.decode_into(places, of, x, flag), N, N * 9, 8)
    packed = _empty(N // 2)
    yield Call(
        "planes pack", lambda: planes.pack_into(places, 4, packed), N, N * 3 // 2, 1, wide=False
    )
    yield Call(
        "planes unpack", lambda: planes.unpack_into(packed, 4, places), N, N * 3 // 2, 1, wide=False
    )


def calls(dtype: torch.dtype) -> Iterator[Call]:
    """Every kernel, for elements of this type; those of integers come with float32."""
    yield from group_calls(dtype)
    yield from dual_calls(dtype)
    yield from fixedpoint_calls(dtype)
    yield from bounded_calls(dtype)
    yield from bounded_entropy_calls(dtype)
    yield from dithered_calls(dtype)
    yield from exact_calls(dtype)
    yield from norm_calls(dtype)
    if dtype == torch.float32:
        yield from integer_calls()
        yield from entropy_calls()
