"""Payloads as bytes: for files, for other processes, and for the fixtures that pin the format.

    magic "actz" | format u16 | length of head u32 | head | data | crc32 of all before it

The head is JSON: the codec and its options, shape, stride, dtype and seed. Numbers are
little-endian. Data follows as the codec wrote it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import struct
import zlib
from typing import Any

import torch

from actzip.codecs.base import Codec
from actzip.codecs.payload import Payload, PayloadError
from actzip.codecs.registry import codec_class, registered
from actzip.codecs.validate import FORMAT, fault

_MAGIC = b"actz"
_FRONT = struct.Struct("<4sHI")
_CRC = struct.Struct("<I")
#: A codec may be an option of another, as of Split; no deeper than this.
_DEPTH = 4


def to_bytes(payload: Payload) -> bytes:
    """All of a payload in one piece; `from_bytes` gives an equal one back."""
    data = payload.used().cpu().numpy().tobytes()
    head = {
        **_named(payload.codec),
        "shape": payload.shape,
        "stride": payload.stride,
        "dtype": str(payload.dtype).removeprefix("torch."),
        "seed": payload.seed,
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    body = _FRONT.pack(_MAGIC, payload.version, len(text)) + text + data
    return body + _CRC.pack(zlib.crc32(body))


def from_bytes(raw: bytes) -> Payload:
    """The payload that `to_bytes` wrote; a PayloadError says what is wrong with other bytes."""
    if len(raw) < _FRONT.size + _CRC.size:
        raise PayloadError(
            f"a payload has at least {_FRONT.size + _CRC.size} bytes, got {len(raw)}"
        )
    magic, version, length = _FRONT.unpack_from(raw)
    if magic != _MAGIC:
        raise PayloadError(f"a payload starts with {_MAGIC!r}, got {magic!r}")
    if version != FORMAT:
        raise PayloadError(
            f"payload has format {version}, this actzip reads format {FORMAT}; decode it with the "
            "version that made it"
        )
    body = raw[: -_CRC.size]
    if _CRC.unpack(raw[-_CRC.size :])[0] != zlib.crc32(body):
        raise PayloadError("payload bytes are damaged: the checksum does not fit")
    if length > len(body) - _FRONT.size:
        raise PayloadError(f"a head of {length} bytes is to follow, {len(body)} bytes are there")
    head = _head(body[_FRONT.size : _FRONT.size + length])
    data = torch.frombuffer(bytearray(body[_FRONT.size + length :] or b"\0"), dtype=torch.uint8)
    payload = Payload(
        codec=_codec(head["codec"], head["options"]),
        shape=tuple(head["shape"]),
        stride=tuple(head["stride"]),
        dtype=_dtype(head["dtype"]),
        seed=head["seed"],
        data=data[: len(body) - _FRONT.size - length],
        version=version,
    )
    if why := fault(payload):
        raise PayloadError(f"the head of the payload makes no sense: {why}")
    return payload


def to_words(codec: Codec) -> bytes:
    """A codec and its options in words, as they stand in the head of a payload's bytes."""
    return json.dumps(_named(codec), separators=(",", ":")).encode()


@functools.lru_cache(maxsize=4096)
def from_words(text: str | bytes) -> Codec:
    """The codec that `to_words` wrote."""
    try:
        said = json.loads(text)
        return _codec(said["codec"], said["options"])
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, PayloadError):
            raise
        raise PayloadError(f"{text!r} names no codec: {error!r}") from error


def _head(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text)
        kinds = {"codec": str, "options": dict, "shape": list, "stride": list, "dtype": str}
        if not all(isinstance(head[name], kind) for name, kind in kinds.items()):
            raise ValueError("a field has a value that no encoder writes")
        head["seed"]  # whatever it is: `fault` looks at it
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PayloadError(f"the head of the payload makes no sense: {error!r}") from error
    result: dict[str, Any] = head
    return result


def _named(codec: Codec) -> dict[str, object]:
    said = [f for f in dataclasses.fields(codec) if not _left_out(f, getattr(codec, f.name))]
    options = {f.name: _plain(getattr(codec, f.name)) for f in said}
    return {"codec": type(codec).__name__, "options": options}


def _left_out(field: dataclasses.Field[Any], value: object) -> bool:
    """An option that came later is written only when it is used: older bytes stay as they were.
    What says nothing that decoding needs is not written at all."""
    if field.metadata.get("aside"):
        return True
    return bool(field.metadata.get("later")) and value == field.default


def _plain(value: object) -> object:
    if isinstance(value, Codec):
        return _named(value)
    return str(value) if isinstance(value, torch.dtype) else value


def _option(value: object, depth: int) -> object:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        if not (isinstance(value.get("codec"), str) and isinstance(value.get("options"), dict)):
            raise PayloadError("an option of the codec is no codec, though it is written as one")
        return _codec(value["codec"], value["options"], depth + 1)
    if isinstance(value, str) and value.startswith("torch."):
        return _dtype(value.removeprefix("torch."))
    return value


def _codec(name: str, options: dict[str, object], depth: int = 0) -> Codec:
    if depth > _DEPTH:
        raise PayloadError(f"a codec in a codec, more than {_DEPTH} times: no encoder writes this")
    kind = codec_class(name)
    if kind is None:
        known = ", ".join(registered())
        raise PayloadError(f"payload was made by codec {name!r}; known here: {known}")
    try:
        return kind(**{key: _option(value, depth) for key, value in options.items()})
    except PayloadError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise PayloadError(f"codec {name} does not take these options: {error}") from error


def _dtype(name: object) -> torch.dtype:
    kind = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(kind, torch.dtype):
        raise PayloadError(f"payload has an unknown dtype {name!r}")
    return kind
