"""Group codes: bits, roundings, zeros, dtypes, odd sizes, raw groups, bits per sample, seeds."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from agreement import as_bits, assert_same
from kernel_cases import FLOATS, ROUNDING, floats

from actzip import kernels
from actzip.codecs import Group
from actzip.kernels.reference.dither import dither
from actzip.kernels.triton import group

SIZES = (1, 31, 33, 255, 256, 257, 1000, 3001)
GROUPS = (1, 7, 32, 33, 64, 96, 100, 256, 1024, 5000)


@pytest.mark.parametrize("bits", range(1, 9))
def test_every_rounding_with_and_without_zeros(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(bits)
    for rounding, zero in itertools.product(ROUNDING, (False, True)):
        x = floats(rng, (rng.choice(SIZES),), rng.choice(FLOATS))
        codec = Group(bits, rng.choice(GROUPS), rounding, zero)
        assert_same(codec, x, rng.getrandbits(64), monkeypatch)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bits_per_sample(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(str(dtype))
    for n in (32, 77, 300):  # rows that start at a word, and that do not
        bits = tuple(rng.randint(1, 8) for _ in range(4))
        codec = Group(bits, rng.choice(GROUPS), rng.choice(ROUNDING), rng.random() < 0.5)
        assert_same(codec, floats(rng, (4, n), dtype), rng.getrandbits(64), monkeypatch)


@pytest.mark.parametrize("size", [64, 100, 20000])
def test_raw_groups(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 1001, dtype=torch.float32)
    x[0, 5], x[1, 500], x[2, 1000] = float("nan"), float("inf"), 3e38
    assert_same(Group((2, 5, 8), size), x, 3, monkeypatch)
    assert_same(Group(4, size, "nearest", True), x.bfloat16(), 3, monkeypatch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_raw_groups_beyond_the_room_for_them(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(3, 5000).to(dtype)
    x[0, 4990], x[1, ::500] = float("nan"), float("inf")
    x[2, 4999] = float("inf")  # in a short group
    for codec, most in ((Group(2, 32), 100), (Group(4, 32, zero=True), 0), (Group(3, 32), 9999)):
        layout = codec._layout(x.view(-1))
        size = layout.offsets[-1]
        data = torch.full((size + most * x.element_size(),), 170, dtype=torch.uint8)
        found = []
        for backend in ("triton", "reference"):
            monkeypatch.setattr(kernels, "FORCED", backend)
            kernel, mine, out = kernels.of(x, "group"), data.clone(), torch.zeros_like(x).view(-1)
            kernel.encode(x.view(-1), layout, 7, mine[:size])
            kernel.store_raw(x.view(-1), layout, mine)
            kernel.decode(mine, layout, 7, out, trusted=True)
            found.append((mine, as_bits(out.nan_to_num(7.0))))  # of NaN the bits may be any
        assert torch.equal(found[0][0], found[1][0])
        assert torch.equal(found[0][1], found[1][1])


def test_channels_last_is_read_as_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 6, 5, 7).to(memory_format=torch.channels_last)
    assert_same(Group(3), x, 1, monkeypatch)


def test_groups_of_more_than_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same(Group(2, 40_000), torch.randn(70_001), 7, monkeypatch)
    assert_same(Group(2, 4096), torch.randn(70_001).half(), 7, monkeypatch)


def test_payload_in_bytes_that_are_not_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    x, codec = torch.randn(500), Group(4, 64)
    layout, expected = codec._layout(x), codec.encode(x, seed=2).data
    room = torch.zeros(expected.numel() + 1, dtype=torch.uint8)
    assert group.encode(x, layout, 2, room[1:]) == 0
    assert torch.equal(room[1:], expected)
    out = torch.empty_like(x)
    group.decode(room[1:], layout, 2, out)
    monkeypatch.setattr(kernels, "FORCED", "reference")
    assert torch.equal(out, codec.decode(codec.encode(x, seed=2)))


def test_a_seed_on_the_device_gives_the_bytes_of_its_number() -> None:
    x, codec = torch.randn(500), Group(2)
    layout, expected = codec._layout(x), codec.encode(x, seed=-5).data
    raw = torch.zeros(1, dtype=torch.int64)
    data = torch.empty_like(expected)
    group.encode_into(x, layout, torch.tensor([-5]), data, raw)
    assert torch.equal(data, expected)
    one, two = torch.empty_like(x), torch.empty_like(x)
    group.decode_from(data, layout, torch.tensor([-5]), one)
    group.decode(data, layout, -5, two)
    assert torch.equal(as_bits(one), as_bits(two))
    assert int(raw) == 0


def test_the_dither_of_elements_beyond_two_to_the_33() -> None:
    import triton.language as tl
    from far_dither import far_dither

    base = (1 << 33) * 3 - 64  # the keys change in the middle of these elements
    out = torch.empty(128)
    far_dither[(1,)](out, 77, base, REAL=tl.float32)
    assert torch.equal(out, dither(77, base, 128, torch.device("cpu")))
