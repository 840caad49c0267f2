"""Payloads from outside are looked at before any kernel sees them; our own are not."""

from __future__ import annotations

import copy
import json
import pickle
import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest
import torch

from actzip.codecs import (
    BitMask,
    Bounded,
    Codec,
    Dual,
    FixedPoint,
    Group,
    Index,
    Keep,
    Payload,
    PayloadError,
    Split,
    Window,
)
from actzip.codecs.serial import from_bytes, to_bytes
from actzip.codecs.validate import FREE


def with_head(payload: Payload, **fields: Any) -> bytes:
    """The payload's bytes with other fields in the head, and a checksum that fits."""
    raw = to_bytes(payload)
    length = struct.unpack_from("<4sHI", raw)[2]
    head = {**json.loads(raw[10 : 10 + length]), **fields}
    text = json.dumps(head).encode()
    body = struct.pack("<4sHI", b"actz", 2, len(text)) + text + raw[10 + length : -4]
    return body + struct.pack("<I", zlib.crc32(body))


def places() -> Payload:
    return Window((2,), (2,), (0,), (1,), (8,)).encode(torch.tensor([[0, 3, 5, 6]]))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "bool", "quint8", "nonsense"])
def test_a_window_is_decoded_into_int64_only(dtype: str, backend: str) -> None:
    with pytest.raises(PayloadError):
        from_bytes(with_head(places(), dtype=dtype))
    if dtype in ("uint8", "int32"):
        with pytest.raises(PayloadError, match="int64"):
            places().codec.decode(replace(places(), dtype=getattr(torch, dtype)))


@pytest.mark.parametrize("codec", [FixedPoint(4), Group(2), Bounded(0.1), Keep()], ids=repr)
def test_data_that_is_no_row_of_bytes_is_refused(codec: Codec, backend: str) -> None:
    payload = codec.encode(torch.randn(6, 64))
    data = payload.data
    wrong = [data.view(1, -1), data.view(-1, 1), torch.cat([data, data])[::2], data.to("meta")]
    wrong += [data.float(), data.to(torch.int8), data[:1].expand(len(data)), data.to_sparse()]
    wrong += [torch.empty_strided((0,), (2,), dtype=torch.uint8)]
    for other in wrong:
        with pytest.raises(PayloadError, match="data of a payload"):
            codec.decode(replace(payload, data=other))


@pytest.mark.parametrize(
    ("codec", "x"),
    [
        (Group(2), torch.randn(4, 64)),
        (Group(1, group_size=2**40, entropy=True), torch.ones(4, 64)),
        (Dual(), torch.randn(1, 2, 8, 8)),
        (Bounded(0.1), torch.randn(4, 64)),
        (Bounded(0.1, entropy=True), torch.ones(4, 5000)),
        (FixedPoint(4), torch.randn(4, 64)),
        (BitMask(), torch.randn(4, 64)),
        (Keep(), torch.randn(4, 64)),
        (Split(Group(2), 2**40), torch.randn(4, 64)),
    ],
    ids=lambda value: repr(value) if isinstance(value, Codec) else "",
)
def test_a_head_cannot_claim_more_than_its_bytes_hold(codec: Codec, x: torch.Tensor) -> None:
    payload = codec.encode(x)
    shape = (2**40, *x.shape[1:])
    assert from_bytes(to_bytes(payload)).shape == tuple(x.shape)
    with pytest.raises(PayloadError):
        from_bytes(with_head(payload, shape=list(shape), stride=list(x.stride())))


def test_many_empty_channels_and_parts_take_no_memory() -> None:
    empty = FixedPoint(4).encode(torch.empty(0, 3))
    with pytest.raises(PayloadError, match="bytes or more"):
        from_bytes(with_head(empty, shape=[0, 2**40], stride=[2**40, 1]))
    parts = Split(Keep(), 2**40).encode(torch.empty(2, 0))
    with pytest.raises(PayloadError, match="bytes or more"):
        from_bytes(with_head(parts, shape=[2**40, 0], stride=[1, 1]))


@pytest.mark.parametrize("codec", [Index(), Window((1,), (1,), (0,), (1,), (64,))], ids=repr)
def test_what_takes_no_bytes_needs_the_callers_memory_beyond_a_bound(codec: Codec) -> None:
    x = torch.arange(64) if isinstance(codec, Window) else torch.full((64,), 7)
    count = FREE // 8 // 64 + 1
    payload = from_bytes(with_head(codec.encode(x), shape=[count, 64], stride=[64, 1]))
    if isinstance(codec, Index):
        count += 9 * (1 << 18) // 512  # what its nine bytes allow
        payload = replace(payload, shape=(count, 64))
    with pytest.raises(PayloadError, match="out="):
        codec.decode(payload)
    out = torch.empty(count, 64, dtype=torch.int64)
    assert codec.decode(payload, out=out) is out
    assert torch.equal(out[-1], x)


def test_strides_beyond_the_bound_need_the_callers_memory() -> None:
    payload = Keep().encode(torch.arange(4.0))
    apart = replace(payload, stride=(2**40,))
    with pytest.raises(PayloadError, match="out="):
        Keep().decode(apart)


def test_our_own_payloads_have_no_bound() -> None:
    x = torch.zeros(1, dtype=torch.int64).expand(1 << 40)
    assert Index().decode(Index().encode(x)).shape == x.shape
    large = torch.zeros(FREE // 8 + (1 << 20), dtype=torch.int64)
    assert torch.equal(Index().decode(Index().encode(large)), large)


def test_only_encode_makes_a_payload_that_is_not_asked() -> None:
    payload = Split(Group(2), 2).encode(torch.randn(4, 8))
    assert payload.made_here
    assert all(piece.payload.made_here for piece in Split(Group(2), 2).pieces(payload))
    others = [replace(payload), pickle.loads(pickle.dumps(payload)), copy.copy(payload)]
    others += [copy.deepcopy(payload), from_bytes(to_bytes(payload))]
    for other in others:
        assert not other.made_here
        assert not any(piece.payload.made_here for piece in Split(Group(2), 2).pieces(other))
        assert torch.equal(other.codec.decode(other), payload.codec.decode(payload))


@pytest.mark.parametrize("depth", [1, 3, 50, 100_000])
def test_codecs_in_codecs_end(depth: int) -> None:
    payload = Split(Keep(), 2).encode(torch.zeros(4))
    raw = to_bytes(payload)
    length = struct.unpack_from("<4sHI", raw)[2]
    text = b'{"codec":"Split","options":{"codec":' * depth + raw[10 : 10 + length] + b"}}" * depth
    body = struct.pack("<4sHI", b"actz", 2, len(text)) + text + raw[10 + length : -4]
    with pytest.raises(PayloadError):
        from_bytes(body + struct.pack("<I", zlib.crc32(body)))


@pytest.mark.parametrize(
    ("codec", "options"),
    [
        (Group(2), {"zero": "yes"}),
        (Group(2), {"entropy": 3}),
        (Dual(), {"block": 2**70}),
        (BitMask(on=2.0), {"on": 10**400}),
        (Bounded(0.1), {"error": 10**400}),
        (FixedPoint(4), {"skip_zeros": []}),
        (FixedPoint(4), {"channel_dim": -1.0}),
        (Bounded(0.1), {"channel_dim": 1.0}),
        (places().codec, {"kernel": [2.5]}),
        (places().codec, {"stride": [2**40]}),
    ],
    ids=repr,
)
def test_options_that_no_codec_takes_are_named(codec: Codec, options: dict[str, Any]) -> None:
    x = torch.tensor([[0, 3, 5, 6]]) if isinstance(codec, Window) else torch.zeros(1, 1, 4)
    payload = codec.encode(x)
    raw = to_bytes(payload)
    length = struct.unpack_from("<4sHI", raw)[2]
    said = json.loads(raw[10 : 10 + length])["options"]
    with pytest.raises(PayloadError, match="does not take these options"):
        from_bytes(with_head(payload, options={**said, **options}))


def test_eight_bit_floats_are_named() -> None:
    x = torch.zeros(4).to(torch.float8_e4m3fn)
    for codec in (Group(2), Bounded(0.1), FixedPoint(4), BitMask()):
        with pytest.raises(TypeError, match="float8_e4m3fn"):
            codec.encode(x)


def test_the_mask_of_an_expanded_tensor_is_read(backend: str) -> None:
    x = torch.tensor([[0.0], [2.0]]).expand(2, 3)
    assert torch.equal(Keep().mask(Keep().encode(x)), (x != 0).float())
