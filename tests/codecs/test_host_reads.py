"""On a device that is not the CPU, coding does not make the host wait.

The reference kernels run on CPU tensors here, and `reading_is_free` says that reading is not: what
they do is then what they would do on a GPU.
"""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from actzip.codecs import (
    BitMask,
    Bounded,
    Cast,
    Centred,
    Codec,
    Dithered,
    Dual,
    FixedPoint,
    Group,
    Index,
    Keep,
    Payload,
    Rectified,
    Split,
    Window,
    registered,
    unsettled,
)
from actzip.codecs.serial import from_bytes, to_bytes
from actzip.kernels import transfers
from host_reads import counted

NAN = float("nan")


@pytest.fixture(autouse=True)
def _like_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actzip.kernels.FORCED", "reference")
    monkeypatch.setattr(unsettled, "reading_is_free", lambda device: False)


def maps(dtype: torch.dtype = torch.float32, nans: int = 0) -> Tensor:
    x = torch.randn(8, 16, 12, 12, generator=torch.Generator().manual_seed(1)).relu().to(dtype)
    x.view(-1)[:: x.numel() // nans if nans else x.numel()] = NAN if nans else 0.0
    return x


def indices() -> Tensor:
    return F.max_pool2d(maps(), 2, return_indices=True)[1]


def noise() -> Tensor:
    return (maps() > 0.5).to(torch.float32) * 2.0


POOL = Window((2, 2), (2, 2), (0, 0), (1, 1), (12, 12))
WITHOUT: list[tuple[Codec, Tensor]] = [
    (Group(2), maps()),
    (Group(2), maps(nans=1)),
    (Group(4, 100, "stochastic", zero=True), maps(torch.bfloat16)),
    (Group((1, 2, 3, 4, 5, 6, 7, 8), 64), maps()),
    (Group((1, 2, 3, 4, 5, 6, 7, 8), 64, zero=True), maps(torch.float16, nans=1)),
    (Dual(), maps()),
    (Dual(5, 3, "original", "nearest", True), maps(torch.float64)),
    (Dual(), maps().to(memory_format=torch.channels_last)),
    (BitMask(), maps() > 0),
    (BitMask(), maps()),
    (BitMask(on=2.0), noise()),
    (POOL, indices()),
    (POOL, indices().contiguous(memory_format=torch.channels_last)),
    (Cast(), maps()),
    (Cast(torch.float16), maps() * 1e6),
    (Keep(), maps()),
    (Split(Group(2), 4), maps()),
    *(
        SIZED := [
            (Bounded(0.01), maps()),
            (Bounded(0.01, "nearest"), maps(torch.bfloat16)),
            (FixedPoint(6), maps()),
            (FixedPoint(6, skip_zeros=True), maps(nans=1)),
            (Split(Bounded(0.01), 3), maps()),
        ]
    ),
]


@pytest.mark.parametrize(("codec", "x"), WITHOUT, ids=lambda v: repr(v)[:40])
def test_neither_encode_nor_decode_reads_the_device(codec: Codec, x: Tensor) -> None:
    with counted() as found:
        payload = codec.encode(x, seed=3)
    assert not found
    unsettled.settle()  # the look at all payloads of a pass
    with counted() as found:
        y = codec.decode(payload)
        if codec.keeps_mask and not codec.exact:
            codec.mask(payload)
    assert not found
    assert payload.made_by is None
    assert torch.equal(y, _plainly(codec, x, y)) or y.isnan().any()


def _plainly(codec: Codec, x: Tensor, y: Tensor) -> Tensor:
    """What the same bytes give when they come from outside."""
    again = from_bytes(to_bytes(codec.encode(x, seed=3)))
    decoded = codec.decode(again)
    assert torch.equal(decoded.nan_to_num(7.0), y.nan_to_num(7.0))
    return decoded


@pytest.mark.parametrize(("codec", "x"), WITHOUT, ids=lambda v: repr(v)[:40])
def test_bytes_are_those_of_a_cpu(codec: Codec, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    here = to_bytes(codec.encode(x, seed=3))
    monkeypatch.undo()
    assert here == to_bytes(codec.encode(x, seed=3))


#: Reads of an encode and of a decode. Sizes that follow from the values must come to the host; the
#: entropy coder of the reference is numpy.
WITH: list[tuple[Codec, Tensor, int, int]] = [
    (Index(), indices(), 1, 0),
    (Bounded(0.01, predict="lorenzo"), maps(), 0, 2),  # a word, and whether there is a difference
    (Bounded(0.01, entropy=True), maps(), 8, 12),
    (Dithered(0.4), maps(), 12, 16),
    (Centred((0.5,) * 16, 0.4), maps(), 12, 16),
    (Rectified(0.4), maps(), 12, 16),
    (Group(2, entropy=True), maps(), 5, 10),
]


@pytest.mark.parametrize(("codec", "x", "encode", "decode"), WITH, ids=lambda v: repr(v)[:40])
def test_reads_where_the_size_follows_from_the_values(
    codec: Codec, x: Tensor, encode: int, decode: int
) -> None:
    with counted() as written:
        payload = codec.encode(x, seed=3)
    with counted() as read:
        codec.decode(payload)
    assert (written.total(), read.total()) == (encode, decode), (written, read)


@pytest.mark.parametrize(("codec", "x"), SIZED, ids=lambda v: repr(v)[:40])
def test_memory_of_the_worst_case_is_given_back_when_the_size_is_known(
    codec: Codec, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers.Transfer, "arrived", lambda self: False)
    payload = codec.encode(x, seed=3)
    expected = codec.decode(payload)  # from where it is; its length is on the way
    assert payload.nbytes > x.nbytes
    unsettled.settle()
    assert payload.nbytes < x.nbytes / 1.5
    assert payload.lengths == ()
    assert payload.data.untyped_storage().nbytes() == payload.data.numel()
    assert torch.equal(payload.data, from_bytes(to_bytes(codec.encode(x, seed=3))).data)
    assert torch.equal(codec.decode(payload).nan_to_num(7.0), expected.nan_to_num(7.0))


def test_lengths_wait_no_longer_than_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    x = maps()
    monkeypatch.setattr(unsettled, "HELD", 4 * x.nbytes)
    monkeypatch.setattr(transfers.Transfer, "arrived", lambda self: False)
    payloads = []
    for _ in range(12):
        payloads.append(Bounded(0.01).encode(x))
        assert sum(bool(payload.lengths) for payload in payloads) <= 4
    assert sum(bool(payload.lengths) for payload in payloads) >= 1


def test_a_length_outlives_its_payload_and_holds_none_of_its_memory() -> None:
    used = Bounded(0.01).encode(maps(), seed=3).used().numel()
    payload = Bounded(0.01).encode(maps(), seed=3)
    (length,), there = payload.lengths, weakref.ref(payload.data.untyped_storage())
    del payload
    gc.collect()
    assert there() is None
    unsettled.settle()
    assert length.value == used


def test_every_codec_is_here() -> None:
    seen = {type(row[0]).__name__ for row in (*WITHOUT, *WITH)}
    assert seen >= set(registered())


@pytest.mark.parametrize("codec", [Group(2), Group(4, zero=True), Dual(), Split(Group(2), 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_more_raw_groups_than_there_is_room_for_are_kept_exactly(
    codec: Codec, dtype: torch.dtype
) -> None:
    x = maps(dtype)
    x[2:5] = -float("inf")
    payload = codec.encode(x)
    y = codec.decode(payload)
    assert torch.equal(y, x)
    assert payload.made_by == codec
    assert payload.codec.exact or isinstance(payload.codec, Split)
    if codec.keeps_mask and not codec.keeps_zeros:
        assert torch.equal(codec.mask(payload), (x != 0).to(dtype))
    assert torch.equal(from_bytes(to_bytes(payload)).codec.decode(payload), x)


def test_groups_without_room_are_nan_until_then() -> None:
    x = maps()
    x[2:5] = float("inf")
    codec = Group(2)
    payload = codec.encode(x)
    object.__setattr__(payload, "doubt", None)  # nobody ever looks
    y = codec.decode(payload)
    assert y[3].isnan().all()
    assert not y[6:].isnan().any()


def test_a_third_value_is_kept_exactly() -> None:
    x = noise()
    x[3, 3, 3, 3] = 0.5
    payload = BitMask(on=2.0).encode(x)
    assert torch.equal(payload.codec.decode(payload), x)


def test_an_index_outside_its_window_is_kept_exactly() -> None:
    x = indices()
    x[0, 0, 0, 0] = 143
    payload = POOL.encode(x)
    assert torch.equal(POOL.decode(payload), x)


LOST: list[tuple[Codec, Tensor]] = [
    (Group(2), maps()),
    (Dual(), maps()),
    (Split(Group(2), 4), maps()),
    (BitMask(on=2.0), noise()),
    (POOL, indices()),
]


@pytest.mark.parametrize("told", [False, True], ids=["not told yet", "told"])
@pytest.mark.parametrize(("codec", "x"), LOST, ids=lambda v: repr(v)[:40])
def test_what_did_not_fit_and_was_edited_is_refused(codec: Codec, x: Tensor, told: bool) -> None:
    x = x.clone()
    x[2:5] = float("inf") if x.is_floating_point() else 143
    payload = codec.encode(x)
    x.zero_()
    if told:
        unsettled.settle()
    for _ in range(2):
        with pytest.raises(unsettled.EditedError, match="version 2 and was saved at version 1"):
            codec.decode(payload)
    with pytest.raises(unsettled.EditedError, match="modified by an inplace operation"):
        to_bytes(payload)


@pytest.mark.parametrize("told", [False, True], ids=["not told yet", "told"])
@pytest.mark.parametrize(("codec", "x"), LOST, ids=lambda v: repr(v)[:40])
def test_what_fitted_may_be_edited(codec: Codec, x: Tensor, told: bool) -> None:
    expected = codec.decode(codec.encode(x))
    x = x.clone()
    payload = codec.encode(x)
    x.zero_()
    if told:
        unsettled.settle()
    assert torch.equal(codec.decode(payload), expected)


def test_one_read_serves_all_payloads_of_a_pass() -> None:
    payloads = [Group(2).encode(maps(), seed=seed) for seed in range(20)]
    with counted() as found:
        for payload in payloads:
            payload.codec.decode(payload)
    assert found.total() == 1


def test_tensors_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    x = maps()
    monkeypatch.setattr(unsettled, "HELD", 3 * x.nbytes)
    payloads: list[Payload] = []
    for _ in range(10):
        payloads.append(Group(2).encode(x))
        assert sum(payload.doubt is not None for payload in payloads) <= 3


def test_a_dropped_payload_drops_its_tensor() -> None:
    x = maps()
    there = weakref.ref(x.untyped_storage())
    payload = Group(2).encode(x)
    del x
    gc.collect()
    assert payload.doubt is not None
    gone = weakref.ref(payload)
    del payload
    gc.collect()
    assert gone() is None
    assert there() is None
