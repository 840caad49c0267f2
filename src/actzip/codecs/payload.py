"""Payload: a stored tensor, its bytes and what the host knows of them."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor

from actzip.codecs import unsettled
from actzip.codecs.validate import FORMAT

if TYPE_CHECKING:
    from actzip.codecs.base import Codec
    from actzip.codecs.lengths import Length
    from actzip.codecs.unsettled import Doubt

#: Gives a 1-D uint8 tensor of so many bytes on a device, its memory aligned to 16 bytes: how
#: payloads get into slabs.
Allocate = Callable[[int, torch.device], Tensor]


class PayloadError(ValueError):
    """A payload that cannot be decoded: wrong codec, wrong version, or damaged bytes."""


def fresh(nbytes: int, device: torch.device) -> Tensor:
    """The default `Allocate`: memory of its own for each payload."""
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


class Coded(NamedTuple):
    """What a codec's `_encode` may give instead of the mere bytes."""

    data: Tensor
    known: Any = None  #: `Payload.known`
    #: Where reading the device is not free: a number on it that is at most `most` when all is well.
    word: Tensor | None = None
    most: int = 0
    unit: int = 0  #: bytes at the end of `data` that are spare for each that `word` is below `most`
    lengths: tuple[Length, ...] = ()  #: of `data`, or of its parts, where the host does not know


@dataclass(frozen=True, eq=False)
class Payload:
    """A stored tensor: the bytes and what is needed to read them again."""

    codec: Codec
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    seed: int
    data: Tensor  #: 1-D uint8
    version: int = FORMAT

    #: version, codec number, dtype, number of dimensions, seed; then shape and stride
    _HEADER: ClassVar[struct.Struct] = struct.Struct("<HHHHQ")

    #: True when this process made it (`ours`): then it is what it says, and nobody asks again.
    made_here: ClassVar[bool] = False
    #: What the codec needs to know of the bytes before it launches anything: lengths, a least
    #: value. None for a payload from outside, whose bytes say it.
    known: ClassVar[Any] = None
    #: What only the device knows so far; see unsettled.py.
    doubt: ClassVar[Doubt | None] = None
    #: Bytes at the end of `data` that were reserved and are not used.
    spare: ClassVar[int] = 0
    #: How much of `data` is used, or of its parts, while there is more of it (lengths.py).
    lengths: ClassVar[tuple[Length, ...]] = ()
    #: The codec that made it, when another keeps its tensor now.
    made_by: ClassVar[Codec | None] = None

    @property
    def nbytes(self) -> int:
        """Every byte kept for this tensor: the data and a header of the usual binary size."""
        return self.data.numel() + self._HEADER.size + 16 * len(self.shape)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def used(self) -> Tensor:
        """The bytes without what was reserved: those that any backend writes for this tensor."""
        if self.doubt is not None or self.lengths:
            unsettled.settle()
        if self.doubt is not None:
            self.doubt.refuse_if_lost()
        self.shrink()
        return self.codec.used(self)

    def shrink(self) -> None:
        """Its bytes into memory of just their size, if that is known by now."""
        lengths = self.lengths
        if lengths and all(length.value is not None for length in lengths):
            self.__dict__["lengths"] = ()
            self.__dict__.update(self.codec.shrunk(self, [length.value or 0 for length in lengths]))

    def decided(self, doubt: Doubt, word: int) -> None:
        """What the device said of it has come (unsettled.py): spare bytes, or the tensor itself."""
        object.__setattr__(self, "doubt", None)
        if word <= doubt.most:
            object.__setattr__(self, "spare", (doubt.most - word) * doubt.unit)
            return
        exact = self.codec.exactly()
        kept = exact.encode(doubt.x)
        for name, value in (("made_by", self.codec), ("codec", exact), ("data", kept.data)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "known", kept.known)

    def __getstate__(self) -> dict[str, Any]:
        """All fields: whoever unpickles or copies it has it from outside."""
        data = self.used()
        return {
            field.name: data if field.name == "data" else getattr(self, field.name)
            for field in dataclasses.fields(self)
        }


_P = TypeVar("_P", bound=Payload)


def made(
    codec: Codec,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    seed: int,
    data: Tensor,
    known: Any = None,
) -> Payload:
    """`ours` of a new payload; a frozen class sets its fields one by one, which takes longer."""
    payload = object.__new__(Payload)
    fields = payload.__dict__
    fields["codec"], fields["shape"], fields["stride"] = codec, shape, stride
    fields["dtype"], fields["seed"], fields["data"] = dtype, seed, data
    fields["version"], fields["made_here"] = FORMAT, True
    if known is not None:
        fields["known"] = known
    return payload


def ours(payload: _P) -> _P:
    """Marks a payload whose head and data are as a codec of this process made them."""
    object.__setattr__(payload, "made_here", True)
    return payload
