"""Ways to damage a payload: its bytes, its head, its options, the tensor that holds its data."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, cast

import torch
from torch import Tensor

from actzip.codecs import Payload, registered

_FRONT = struct.Struct("<4sHI")
_NUMBERS = (
    *(0, 1, 2, 3, 7, 8, 9, 16, 31, 32, 33, 64, 100, 255, 256, 1000, 4096, 65536, -1, -8),
    *(2**20, 2**31 - 1, 2**31, 2**32, 2**40, 2**48, 2**62, 2**63, 2**64, 10**30, 10**400),
)
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0.5, 1e-3, 1e300, -1.0, float("inf"), float("nan"), "", "dither"),
    *("nearest", "stochastic", "lorenzo", "ceil", "original", "torch.float16", "torch.quint8"),
    *([], [1], [2, 2], [2.5, 2], ["a"], [[1]], [1] * 70, {}, {"codec": "Keep", "options": {}}),
)
_DTYPES = sorted(name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype))


def damaged_bytes(rng: random.Random, corpus: list[bytes]) -> bytes:
    """Serialized bytes, wrong in one to three ways; mostly with a checksum that fits."""
    raw = rng.choice(corpus)[:-4]
    for _ in range(rng.choice((1, 1, 2, 3))):
        raw = rng.choice((_with_head, _with_head, _flipped, _cut, _spliced))(rng, raw, corpus)
    crc = zlib.crc32(raw) if rng.random() < 0.99 else 0
    return raw + struct.pack("<I", crc)


def damaged_payload(rng: random.Random, corpus: list[Payload]) -> Payload:
    """A payload put together by hand: other fields, or data that is no row of bytes."""
    payload = rng.choice(corpus)
    for _ in range(rng.choice((1, 1, 2))):
        other = rng.choice(corpus)
        if rng.random() < 0.5:
            payload = replace(payload, data=_other_data(rng, payload.data, other.data))
            continue
        name = rng.choice([field.name for field in fields(Payload) if field.name != "data"])
        value = rng.choice((getattr(other, name), _value(rng), tuple(_sizes(rng))))
        if name == "codec":
            value = other.codec
        elif name == "dtype":
            value = getattr(torch, rng.choice(_DTYPES))
        payload = replace(payload, **{name: value})
    return payload


def _other_data(rng: random.Random, data: Any, other: Any) -> Any:
    if not (_is_row(data) and _is_row(other)):  # damaged before
        return other
    some = cast(
        list[Callable[[], Any]],
        [
            lambda: data.view(1, -1),
            lambda: data.view(-1, 1),
            lambda: data[: data.numel() // 2 * 2].view(2, -1),
            lambda: torch.stack([data, data], 1)[:, 0],
            lambda: torch.cat([data, data])[::2],
            lambda: data[:1].expand(data.numel()),
            lambda: torch.cat([data[:1], data])[1:],
            lambda: data.to(torch.int8),
            lambda: data.to(torch.float32),
            lambda: data.to(torch.int64),
            lambda: data.to("meta"),
            lambda: data.to_sparse(),
            lambda: data.tolist(),
            lambda: None,
            lambda: torch.tensor(3, dtype=torch.uint8),
            lambda: data[: rng.randrange(data.numel() + 1)],
            lambda: torch.cat([data, other]),
            lambda: other,
            lambda: torch.frombuffer(
                bytearray(rng.randbytes(rng.randrange(1, 300))), dtype=torch.uint8
            ),
        ],
    )
    return rng.choice(some)()


def _is_row(data: object) -> bool:
    if not isinstance(data, Tensor) or data.layout != torch.strided or data.is_meta:
        return False
    return data.dim() == 1 and data.is_contiguous() and data.dtype == torch.uint8


def _flipped(rng: random.Random, raw: bytes, corpus: list[bytes]) -> bytes:
    """A few bits or bytes, of the data more often than of the head."""
    found = bytearray(raw)
    low = min(_body(raw), len(found)) if rng.random() < 0.8 else 0
    for _ in range(rng.choice((1, 1, 2, 8)) if low < len(found) else 0):
        at = rng.randrange(low, len(found))
        found[at] = rng.choice((found[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0, 255))
    return bytes(found)


def _cut(rng: random.Random, raw: bytes, corpus: list[bytes]) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + bytes(rng.choice((0, 0, 1, 8, 100)))


def _spliced(rng: random.Random, raw: bytes, corpus: list[bytes]) -> bytes:
    """The front of one and the back of another: anywhere, or head and data."""
    other = rng.choice(corpus)[:-4]
    if rng.random() < 0.5:
        return raw[: _body(raw)] + other[_body(other) :]
    return raw[: rng.randrange(len(raw) + 1)] + other[rng.randrange(len(other) + 1) :]


def _body(raw: bytes) -> int:
    return _FRONT.size + _FRONT.unpack_from(raw)[2] if len(raw) >= _FRONT.size else len(raw)


def _with_head(rng: random.Random, raw: bytes, corpus: list[bytes]) -> bytes:
    """Another value for a field of the head or an option of its codec."""
    body = _body(raw)
    try:
        head = json.loads(raw[_FRONT.size : body])
        _edit(rng, head)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):  # damaged before
        return raw
    text = json.dumps(head).encode()
    if rng.random() < 0.01:
        depth = rng.choice((3, 100, 5000))
        text = b'{"codec":"Split","options":{"codec":' * depth + text + b"}}" * depth
    return _FRONT.pack(b"actz", 2, len(text)) + text + raw[body:]


def _edit(rng: random.Random, head: dict[str, Any]) -> None:
    name = rng.choice(("shape", "shape", "stride", "dtype", "seed", "codec", "options", "options"))
    if rng.random() < 0.02:
        del head[name]
    elif rng.random() < 0.05:
        head[name] = _value(rng)
    elif name in ("shape", "stride"):
        sizes = list(head[name])
        if sizes and rng.random() < 0.7:
            at = rng.randrange(len(sizes))
            sizes[at] = rng.choice((sizes[at] + 1, sizes[at] - 1, rng.choice(_NUMBERS)))
        else:
            sizes = _sizes(rng)
        head[name] = sizes
    elif name == "dtype":
        head[name] = rng.choice(_DTYPES)
    elif name == "seed":
        head[name] = rng.choice(_NUMBERS)
    elif name == "codec":
        head[name] = rng.choice(sorted(registered()))
        if rng.random() < 0.5:
            head["options"] = {}
    else:
        options = head["options"]
        options[rng.choice([*options, "bits", "on"])] = _value(rng)


def _sizes(rng: random.Random) -> list[int]:
    return [rng.choice(_NUMBERS) for _ in range(rng.choice((0, 1, 2, 3, 4, 5, 65)))]


def _value(rng: random.Random) -> Any:
    return rng.choice((rng.choice(_NUMBERS), rng.choice(_ODD), _sizes(rng)))
