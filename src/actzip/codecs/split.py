"""Split: a tensor in parts along its first dimension, each of which decodes alone."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from actzip import checks
from actzip.codecs import unsettled
from actzip.codecs.base import Codec
from actzip.codecs.memory_order import overlaps
from actzip.codecs.payload import Allocate, Coded, Payload, PayloadError, fresh, ours
from actzip.codecs.registry import register

_ALIGN = 16  #: bytes: what `Allocate` promises the parts' kernels
_SEEDS = (1 << 64) - 1


class _Part(NamedTuple):
    """What the host knows of a part, and of the room for raw groups in it (unsettled.py)."""

    length: int  #: bytes
    known: Any = None
    word: Tensor | None = None
    most: int = 0
    unit: int = 0


class Piece(NamedTuple):
    """A part: its first and last sample (not included), and its payload."""

    first: int
    last: int
    payload: Payload


@register
@dataclass(frozen=True)
class Split(Codec):
    """Each part of the samples comes back as `codec` gives it back, whole or part by part.

    `parts` is how many there are at most; a batch of fewer samples has one part a sample, a batch
    that is one expanded sample has one. Backward can then decode a few samples at a time.
    `codec.part` says what a part is stored with, and every part has a seed of its own.

    Payload: the length of each part, 8 bytes each | the parts; all start at multiples of 16.
    """

    codec: Codec
    parts: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.codec, Codec) or isinstance(self.codec, Split):
            raise ValueError(f"Split(codec=...) takes a codec that is no Split, got {self.codec!r}")
        checks.whole(self, "parts", least=1)

    @property
    def keeps_zeros(self) -> bool:
        return self.codec.keeps_zeros

    @property
    def keeps_mask(self) -> bool:
        return self.codec.keeps_mask

    def finer(self, level: int) -> Codec:
        return replace(self, codec=self.codec.finer(level))

    def precision(self) -> tuple[str, float] | None:
        return self.codec.precision()

    def grouping(self) -> tuple[int, bool] | None:
        return self.codec.grouping()

    def check(self, x: Tensor) -> None:
        if x.dim() == 0:
            raise ValueError(f"{self!r} cuts along the first dimension, got a tensor of shape ()")
        self.codec.check(x)

    def pieces(self, payload: Payload) -> list[Piece]:
        """The parts as payloads in their own right; they share the bytes of the whole."""
        if isinstance(other := self._other(payload), Split):
            return other.pieces(payload)
        self._check_payload(payload)  # from here on there are bytes for all the lengths
        if payload.lengths:
            unsettled.look()
        fields = payload.__dict__.copy()  # data and what is known of them, of one moment
        parts, data = self._cuts(payload.shape, payload.stride), fields["data"]
        lengths = struct.Struct(f"<{len(parts)}Q")
        if data.numel() < lengths.size:
            raise PayloadError(f"{self!r}: {data.numel()} bytes do not hold {len(parts)} lengths")
        start, found = _aligned(lengths.size), []
        known: list[_Part] = fields.get("known") or [
            _Part(n) for n in lengths.unpack(bytes(data[: lengths.size].tolist()))
        ]
        for i, part in enumerate(known):
            length = part.length
            if length > data.numel() - start:
                raise PayloadError(f"{self!r}: part {i} is said to have {length} bytes, too many")
            first, last = parts[i]
            piece = replace(
                payload,
                codec=self.codec.part(first, last),
                shape=(last - first, *payload.shape[1:]),
                seed=(payload.seed + i) & _SEEDS,
                data=data[start : start + length],
            )
            if payload.made_here:
                object.__setattr__(ours(piece), "known", part.known)
            if payload.doubt is not None:
                object.__setattr__(piece, "doubt", payload.doubt.of_part(first, last))
            found.append(Piece(first, last, piece))
            start += _aligned(length)
        return found

    def _cuts(self, shape: Sequence[int], stride: Sequence[int]) -> list[tuple[int, int]]:
        return cuts(shape[0], 1 if stride[0] == 0 else self.parts)

    def encode(self, x: Tensor, *, seed: int = 0, allocate: Allocate = fresh) -> Payload:
        self.check(x)
        # not laid out densely as by other codecs: the codec of the parts does that for each
        x = x.detach().contiguous() if overlaps(x) else x.detach()
        return self._payload(x, tuple(x.stride()), seed, self._encode(x, seed, allocate))

    def exactly(self) -> Codec:
        return replace(self, codec=self.codec.exactly())

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Coded:
        each = [
            self.codec.part(first, last).encode(x[first:last], seed=(seed + i) & _SEEDS)
            for i, (first, last) in enumerate(self._cuts(x.shape, x.stride()))
        ]
        known = [
            _Part(part.data.numel(), part.known, *(part.doubt.told if part.doubt else ()))
            for part in each
        ]
        data = _joined([part.data for part in each], x.device, allocate)
        words = [part.word.view(()) - part.most for part in known if part.word is not None]
        found = [length for part in each for length in part.lengths]
        for length in found:
            length.unit = _ALIGN
        word = torch.stack(words).amax() if words else None
        return Coded(data, known, word, lengths=tuple(found))

    def shrunk(self, payload: Payload, used: list[int]) -> dict[str, Any]:
        pieces = [
            piece.payload.data[:n] for piece, n in zip(self.pieces(payload), used, strict=True)
        ]
        known = [part._replace(length=n) for part, n in zip(payload.known, used, strict=True)]
        return {"data": _joined(pieces, payload.data.device, fresh), "known": known}

    def used(self, payload: Payload) -> Tensor:
        """The same parts, each without what was reserved in it."""
        known: list[_Part] | None = payload.known
        if known is None or all(part.word is None for part in known):
            return payload.data
        words = [0 if part.word is None else int(part.word) for part in known]
        pieces = [piece.payload.data for piece in self.pieces(payload)]
        short = [
            data[: part.length - (part.most - word) * part.unit]
            for data, part, word in zip(pieces, known, words, strict=True)
        ]
        return _joined(short, payload.data.device, fresh)

    def decode(self, payload: Payload, out: Tensor | None = None) -> Tensor:
        if (other := self._other(payload)) is not None:
            return other.decode(payload, out)
        return self._join(payload, out, lambda piece, room: piece.codec.decode(piece, room))

    def mask(self, payload: Payload, out: Tensor | None = None) -> Tensor:
        if (other := self._other(payload)) is not None:
            return other.mask(payload, out)
        return self._join(payload, out, lambda piece, room: piece.codec.mask(piece, room))

    def _decode(self, payload: Payload, out: Tensor) -> None:
        self.decode(payload, out)

    def _join(
        self, payload: Payload, out: Tensor | None, read: Callable[[Payload, Tensor], Tensor]
    ) -> Tensor:
        pieces, room = self.pieces(payload), self._room(payload, out)
        for piece in pieces:
            read(piece.payload, room[piece.first : piece.last])
        return room

    def least_bytes(self, x: Tensor) -> int:
        return 8 * max(1, min(self.parts, x.shape[0])) + self.codec.least_bytes(x)

    def max_error(self, x: Tensor) -> Tensor | None:
        """That of the parts."""
        bounds = [codec.max_error(part) for codec, part in self._each(x)]
        there = [bound for bound in bounds if bound is not None]
        return torch.cat(there) if len(there) == len(bounds) else None

    def variance(self, x: Tensor) -> float | None:
        """The mean over the parts, each by its elements."""
        found = [(codec.variance(part), part.numel()) for codec, part in self._each(x)]
        there = [(value * count) for value, count in found if value is not None]
        return sum(there) / max(1, x.numel()) if len(there) == len(found) else None

    def _each(self, x: Tensor) -> Iterator[tuple[Codec, Tensor]]:
        for first, last in self._cuts(x.shape, x.stride()):
            yield self.codec.part(first, last), x[first:last]


def cuts(samples: int, parts: int) -> list[tuple[int, int]]:
    """First and last sample (not included) of at most so many parts, as equal as can be."""
    count = max(1, min(parts, samples))
    return [(i * samples // count, (i + 1) * samples // count) for i in range(count)]


def _joined(parts: list[Tensor], device: torch.device, allocate: Allocate) -> Tensor:
    """Lengths and parts, all at multiples of 16."""
    lengths = struct.pack(f"<{len(parts)}Q", *(part.numel() for part in parts))
    front = torch.frombuffer(bytearray(lengths), dtype=torch.uint8).to(device)
    data = allocate(sum(_aligned(part.numel()) for part in (front, *parts)), device)
    start = 0
    for part in (front, *parts):
        end = start + part.numel()
        data[start:end] = part
        start = _aligned(end)
        data[end:start] = 0  # the same bytes every time
    return data


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN
