"""Split: parts decode alone, to the very values that the whole gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from actzip.codecs import (
    BitMask,
    Bounded,
    Codec,
    Dual,
    FixedPoint,
    Group,
    Index,
    Keep,
    PayloadError,
    Split,
)
from actzip.codecs.serial import from_bytes, to_bytes
from actzip.testing import conformance

FIXTURE = Path(__file__).parent / "fixtures" / "split.bin"
INNER: list[Codec] = [
    Group(bits=3, zero=True),
    Group(bits=(1, 2, 3, 4, 5, 6, 7)),
    Group(bits=2, entropy=True),
    Bounded(error=1e-2, entropy=True),
    FixedPoint(bits=5, skip_zeros=True),
    Dual(block=2),
    Keep(),
]


def maps() -> Tensor:
    return torch.randn(7, 4, 6, 5).relu()


@pytest.mark.parametrize(
    "codec",
    [
        Split(Keep(), 3),
        Split(Group(bits=2)),
        Split(Group(bits=(1, 4, 8), zero=True)),
        Split(Bounded(error=1e-2), 4),
        Split(Index(), 2),
    ],
    ids=repr,
)
def test_the_kit_passes_it(codec: Codec) -> None:
    conformance(codec)


def test_the_kit_passes_it_on_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actzip.kernels.FORCED", "reference")
    conformance(Split(Group(bits=2, zero=True), 3))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("inner", INNER, ids=repr)
def test_parts_are_what_the_whole_has(inner: Codec, layout: torch.memory_format) -> None:
    x = maps().to(memory_format=layout)
    codec = Split(inner, 3)
    payload = codec.encode(x, seed=5)
    whole = codec.decode(payload)
    pieces = codec.pieces(payload)
    assert [(first, last) for first, last, _ in pieces] == [(0, 2), (2, 4), (4, 7)]
    for first, last, piece in pieces:
        part = piece.codec.decode(piece)
        assert torch.equal(part, whole[first:last])
        assert part.stride() == whole[first:last].stride()
        room = torch.empty_like(part)
        assert torch.equal(piece.codec.decode(piece, out=room), part)


def test_a_part_is_what_its_codec_makes_of_these_samples_alone() -> None:
    x = maps()
    payload = Split(Group(bits=(1, 2, 3, 4, 5, 6, 7)), 3).encode(x, seed=5)
    alone = Group(bits=(3, 4)).encode(x[2:4], seed=6)
    piece = payload.codec.pieces(payload)[1].payload  # type: ignore[attr-defined]
    assert (piece.codec, piece.shape, piece.seed) == (alone.codec, alone.shape, alone.seed)
    assert torch.equal(piece.data, alone.data)


def test_the_mask_passes_through() -> None:
    x = maps()
    codec = Split(Group(bits=2, zero=True), 3)
    assert codec.keeps_mask
    assert torch.equal(codec.mask(codec.encode(x)), (x > 0).float())
    assert not Split(Group(bits=2)).keeps_mask
    assert Split(Keep()).keeps_zeros
    bits = Split(BitMask(), 3)
    assert torch.equal(bits.decode(bits.encode(x > 0)), x > 0)


def test_parts_round_independently() -> None:
    x = torch.randn(1, 4096).expand(2, 4096).contiguous()
    codec = Split(Group(bits=2), 2)
    first, second = (codec.decode(codec.encode(x, seed=1)) - x).unbind()
    assert not torch.equal(first, second)
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 5 / 64


@pytest.mark.parametrize(
    ("x", "parts"),
    [
        (torch.randn(2, 300), 2),
        (torch.randn(1, 300), 1),
        (torch.randn(0, 300), 1),
        (torch.randn(1, 300).expand(4, 300), 1),
        (torch.randn(9, 300), 5),
    ],
    ids=["two samples", "one", "none", "one, expanded", "nine"],
)
def test_there_are_no_more_parts_than_samples(x: Tensor, parts: int) -> None:
    codec = Split(Group(bits=2), 5)
    payload = codec.encode(x)
    pieces = [each.payload for each in codec.pieces(payload)]
    assert len(pieces) == parts
    assert torch.equal(
        torch.cat([each.codec.decode(each) for each in pieces]), codec.decode(payload)
    )


def test_parts_cost_their_lengths_and_at_most_15_bytes_each_more() -> None:
    x = maps()
    payload = Split(Group(bits=2), 3).encode(x)
    alone = [Group(bits=2).encode(part).data.numel() for part in (x[:2], x[2:4], x[4:])]
    assert sum(alone) + 24 <= payload.data.numel() <= sum(alone) + 24 + 4 * 15


def test_bounds_and_variance_are_those_of_the_parts() -> None:
    x = maps()
    x[2:4] *= 100
    codec, inner = Split(Group(bits=2), 3), Group(bits=2)
    bound, variance = codec.max_error(x), codec.variance(x)
    assert bound is not None
    assert torch.equal(bound[2:4], inner.max_error(x[2:4]))
    each = [inner.variance(x[a:b]) * (b - a) / 7 for a, b in ((0, 2), (2, 4), (4, 7))]
    assert variance == pytest.approx(sum(each))
    assert Split(Keep()).variance(x) == 0


def test_bytes_are_those_of_the_fixture(backend: str) -> None:
    i = torch.arange(300)
    x = ((i * i * 37 + i * 11) % 257 - 90).clamp(min=0).view(3, 100).float() / 64
    payload = Split(Group(bits=(1, 2, 5), group_size=32), 2).encode(x, seed=2026)
    assert to_bytes(payload) == FIXTURE.read_bytes()
    again = from_bytes(FIXTURE.read_bytes())
    assert again.codec == payload.codec
    assert torch.equal(again.codec.decode(again), payload.codec.decode(payload))


def test_lengths_that_no_encoder_writes_are_refused() -> None:
    codec = Split(Group(bits=2), 3)
    payload = replace(codec.encode(maps()))  # from outside: its bytes say the lengths
    payload.data[4] = 255
    with pytest.raises(PayloadError, match="part 0 is said to have"):
        codec.decode(payload)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Split(Split(Keep())), "takes a codec that is no Split"),
        (lambda: Split(2), "takes a codec"),
        (lambda: Split(Keep(), 0), "at least 1, got 0"),
        (lambda: Split(Keep(), True), "whole number"),
    ],
)
def test_wrong_options_are_refused(make: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()  # type: ignore[operator]


def test_tensors_without_a_first_dimension_are_refused() -> None:
    with pytest.raises(ValueError, match="cuts along the first dimension"):
        Split(Keep()).encode(torch.tensor(1.0))
    with pytest.raises(TypeError, match="Group needs a floating tensor"):
        Split(Group()).encode(torch.arange(4))
