"""Every entry of the library is told how long each buffer is, and refuses one that is too short."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from actzip import kernels
from actzip.codecs import (
    BitMask,
    Bounded,
    Codec,
    Dithered,
    Dual,
    FixedPoint,
    Group,
    Index,
    Window,
)
from actzip.kernels.native import library

ENTRY = re.compile(r"^ACTZIP_ENTRY\((\w+)\)$", re.MULTILINE)
FORMS = (
    *("bounded", "bounded_entropy", "dithered", "dual", "entropy", "fixedpoint"),
    *("group", "index", "mask", "planes", "window"),
)
#: Where the workspace is, counted from the end. Finished chunks wait in it, and those that find no
#: room are made twice: it may have any size.
WORKSPACE = {
    **dict.fromkeys(
        ("bounded_encode", "bounded_squeeze", "entropy_encode", "fixedpoint_encode"), 2
    ),
    **dict.fromkeys(("bounded_gather", "bounded_squeeze_gather", "entropy_gather"), 4),
    "fixedpoint_gather": 4,
    "dithered_encode": 3,
    "dithered_gather": 4,
}
#: Memory from which a kernel takes piece by piece, counted from the end as well. There is some to
#: spare, since pieces begin on cache lines: the least that is accepted must be enough.
ROOM = {
    "dithered_count": (3, 2),
    "dithered_chosen": (2, 1),
    "dithered_given": (1,),
    "dithered_encode": (4, 2),
    "dithered_gather": (5, 3),
    "dithered_decode": (2,),
}
GUARD = 4096
MARK = 0xA5

MAPS = torch.randn(2, 32, 8, 8)
CASES: list[tuple[Codec, Tensor]] = [
    (Group(3, zero=True), torch.randn(5000)),
    (Group((2, 4), group_size=20), torch.randn(2, 100) / torch.tensor([[1.0], [0.0]])),
    (Group(2, entropy=True), torch.ones(40, 100)),
    (Dual(zero=True), MAPS),
    (Dual(block=3), MAPS.to(memory_format=torch.channels_last)),
    (Bounded(0.1), torch.randn(5000)),
    (Bounded((0.1,) * 32, predict="lorenzo"), MAPS),
    (Bounded(0.1, entropy=True), torch.randn(70_000)),
    (Dithered(1.5, origin=(0.1,) * 32), torch.randn(5, 32, 40)),
    (Dithered(0.5).tabled(torch.randn(5000)), torch.randn(5000)),
    (FixedPoint(4), MAPS),
    (Index(), torch.arange(1000)),
    (BitMask(), torch.randn(1000)),
    (Window(), torch.tensor([[[0]]])),
]


class Recorder:
    """Calls an entry as it is; before that, once with each buffer cut short."""

    def __init__(self) -> None:
        self.tried: set[str] = set()

    def __call__(self, name: str, *args: int | Tensor) -> int:
        self.tried.add(name)
        for i, given in enumerate(args):
            if not isinstance(given, Tensor) or given.numel() == 0:
                continue
            if i == len(args) - WORKSPACE.get(name, 0):
                continue
            if len(args) - i in ROOM.get(name, ()):
                _least_room_is_enough(name, args, i)
                continue
            flat = given.as_strided((given.numel(),), (1,))
            less = [*args[:i], flat[:-1], *args[i + 1 :]]
            with pytest.raises(ValueError, match=name):
                library.call(name, *less)
        return library.call(name, *args)


def _least_room_is_enough(name: str, args: tuple[int | Tensor, ...], i: int) -> None:
    """The least length that is accepted gives the same result, and no byte behind it is touched."""
    given = args[i]
    assert isinstance(given, Tensor)

    def result(length: int) -> int | None:
        again = [a.clone() if isinstance(a, Tensor) else a for a in args]  # states are used up
        room = torch.full((length + GUARD,), MARK, dtype=torch.uint8)
        room[:length] = given[:length]
        again[i] = room[:length]
        try:
            return library.call(name, *again)
        except ValueError:
            return None
        finally:
            assert bool((room[length:] == MARK).all()), (name, i, length)

    enough, too_few = given.numel(), 0
    expected = result(enough)
    assert expected is not None
    assert result(too_few) is None, (name, i)
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if result(middle) is None:
            too_few = middle
        else:
            enough = middle
    assert result(enough) == expected


def test_a_buffer_that_is_too_short_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if not library.available():
        pytest.skip("needs the native library")
    monkeypatch.setattr("actzip.kernels.FORCED", "native")
    call = Recorder()
    for form in FORMS:
        monkeypatch.setattr(importlib.import_module(f"actzip.kernels.native.{form}"), "call", call)
    for codec, x in CASES:
        if isinstance(codec, Dithered):
            codec.tabled(x)
        payload = codec.encode(x)
        codec.decode(payload)
        if codec.keeps_mask:
            codec.mask(payload)
    sources = Path(kernels.__file__).parent.glob("csrc/*/*.cpp")
    entries = {name for path in sources for name in re.findall(ENTRY, path.read_text())}
    norms = {"norm_channels", "norm_rows"}  # no codec's: test_norm.py cuts their buffers
    assert call.tried == entries - norms


def test_an_entry_counts_its_parameters() -> None:
    out, data = torch.zeros(8), torch.zeros(1, dtype=torch.uint8)
    assert library.call("mask_decode", data, out, 0, 8, 0, 1) == library.OK
    for args in ((data, out, 0, 8, 0), (data, out, 0, 8, 0, 1, 1), ()):
        with pytest.raises(TypeError, match="takes 6 parameters"):
            library.call("mask_decode", *args)
    entry, _, _ = library._entry("mask_decode")
    for count in (0, 7, 9):
        assert entry(bytes(8 * 9), count) == library.BAD_ARGUMENT


def test_sizes_that_cannot_be_counted_are_refused() -> None:
    out, data = torch.zeros(8), torch.zeros(1, dtype=torch.uint8)
    for n in (-1, 1 << 62, (1 << 63) - 1):
        with pytest.raises(ValueError, match="bad arguments"):
            library.call("mask_decode", data, out, 0, n, 0, 1)
