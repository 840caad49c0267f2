"""The contract every codec keeps.

A codec turns a tensor into a `Payload` and back::

    payload = codec.encode(x, seed=7)
    y = codec.decode(payload)              # shape, dtype, strides and device of x
    y = codec.decode(payload, out=buffer)  # the same, into memory that is there already

Promises, checked for every registered codec by `actzip.testing.conformance`:

- The class docstring states what comes back, e.g. ``|x - decode(encode(x))| <= error``.
- NaN and infinities come back as themselves and cost their neighbours nothing.
- The same tensor and seed give the same bytes on every backend and for any thread count.
- `Payload.nbytes` counts every byte that is kept, the header included.
- A damaged payload gives a `PayloadError` or wrong values, never anything else, in the time and
  memory of an honest one of its length (validate.py).

A codec is a frozen dataclass: its public fields are its configuration, and its repr
evaluates back to it. A new codec is one file: subclass `Codec`, decorate with `register`,
implement `_encode` and `_decode` on a dense tensor, and `least_bytes`.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from actzip.codecs.memory_order import dense_view, overlaps, row_major, unexpand
from actzip.codecs.validate import FORMAT, fault, too_large
from actzip.entry_points import load
from actzip.kernels.errors import DamagedError

_SEED_BITS = 0xFFFFFFFFFFFFFFFF

#: What the kernels compute with.
_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

#: Gives a 1-D uint8 tensor of so many bytes on a device, its memory aligned to 16 bytes: how
#: payloads get into slabs.
Allocate = Callable[[int, torch.device], Tensor]


class PayloadError(ValueError):
    """A payload that cannot be decoded: wrong codec, wrong version, or damaged bytes."""


def fresh(nbytes: int, device: torch.device) -> Tensor:
    """The default `Allocate`: memory of its own for each payload."""
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


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

    @property
    def nbytes(self) -> int:
        """Every byte kept for this tensor: the data and a header of the usual binary size."""
        return self.data.numel() + self._HEADER.size + 16 * len(self.shape)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def __getstate__(self) -> dict[str, Any]:
        """All fields: whoever unpickles or copies it has it from outside."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


_P = TypeVar("_P", bound=Payload)


def ours(payload: _P) -> _P:
    """Marks a payload whose head and data are as a codec of this process made them."""
    object.__setattr__(payload, "made_here", True)
    return payload


@dataclass(frozen=True)
class Codec(ABC):
    """Base of all codecs; see the module's docstring for the contract."""

    #: True when decode gives back every bit.
    exact: ClassVar[bool] = False
    #: True when the codec must see the tensor in logical (row-major) order; otherwise it
    #: gets the elements in the order of memory and channels_last costs no copy.
    logical: ClassVar[bool] = False
    #: False when decode leaves the values open and only shape, strides and dtype count.
    decode_is_defined: ClassVar[bool] = True

    @property
    def keeps_zeros(self) -> bool:
        """Whether zeros come back as zeros, and nothing else does: then ReLU's mask survives."""
        return self.exact

    @property
    def keeps_mask(self) -> bool:
        """Whether `mask` works: which elements were zero can be read from the payload."""
        return self.keeps_zeros

    def mask(self, payload: Payload, out: Tensor | None = None) -> Tensor:
        """1 where the stored value was not zero, else 0: of a ReLU's result, exactly its mask."""
        if not self.keeps_mask:
            raise ValueError(f"{self!r} does not tell zeros from small values; keep a BitMask()")
        values = self.decode(payload, out)
        each = unexpand(values)
        each.copy_(each != 0)
        return values

    def encode(self, x: Tensor, *, seed: int = 0, allocate: Allocate = fresh) -> Payload:
        self.check(x)
        if x.requires_grad and torch.is_grad_enabled():
            x = x.detach()
        data = self._encode(self._dense(x), seed, allocate)
        stride = tuple(x.stride()) if not overlaps(x) else row_major(x.shape)
        return ours(Payload(self, tuple(x.shape), stride, x.dtype, seed & _SEED_BITS, data))

    def decode(self, payload: Payload, out: Tensor | None = None) -> Tensor:
        return self._write(payload, out, self._decode)

    def _write(
        self, payload: Payload, out: Tensor | None, fill: Callable[[Payload, Tensor], None]
    ) -> Tensor:
        """Have `fill` write a dense tensor in the order of the original's memory."""
        out = self._room(payload, out)
        if tuple(out.stride()) != payload.stride:
            # elements are stored in the order of the original's memory, not of this one's
            return out.copy_(self._write(payload, None, fill))
        target = unexpand(out)
        dense = self._view(target)
        try:
            if dense is not None:
                fill(payload, dense)
            else:
                copy = torch.empty(target.shape, dtype=out.dtype, device=out.device)
                fill(payload, self._dense(copy))
                target.copy_(copy)
        except DamagedError as error:
            raise PayloadError(f"{self!r}: {error}") from error
        return out

    def _room(self, payload: Payload, out: Tensor | None) -> Tensor:
        """Memory to decode this payload into: `out` if there is one and it fits."""
        self._check_payload(payload)
        if out is not None:
            self._check_out(payload, out)
            return out
        if not payload.made_here and (why := too_large(payload)):
            raise PayloadError(f"{self!r}: {why}")
        size, stride, device = payload.shape, payload.stride, payload.data.device
        return torch.empty_strided(size, stride, dtype=payload.dtype, device=device)

    def part(self, first: int, last: int) -> Codec:
        """This codec for the samples `first` to `last` - 1 of a tensor that it fits."""
        return self

    def finer(self, level: int) -> Codec:
        """The same format with errors 2^level times smaller, as far as the format goes."""
        return self

    def precision(self) -> tuple[str, float] | None:
        """("bits", mean bits of an element) or ("error", mean bound on it); None if neither."""
        return None

    def grouping(self) -> tuple[int, bool] | None:
        """How many elements share a range, and whether bits differ by sample; None: no groups."""
        return None

    def max_error(self, x: Tensor) -> Tensor | None:
        """A bound on |x - decode(encode(x))|, elementwise, where x is finite; None: no promise."""
        return torch.zeros_like(x) if self.exact else None

    def variance(self, x: Tensor) -> float | None:
        """Predicted mean of (x - decode(encode(x)))² over the elements; None: no prediction."""
        return 0.0 if self.exact else None

    def least_bytes(self, x: Tensor) -> int:
        """No payload of a tensor of x's shape and dtype has fewer bytes.

        A bound from below that is easily computed: x is on the meta device and its shape may come
        from damaged bytes. What can be stored in few bytes whatever its size may say 0.
        """
        return 0

    def _logical(self) -> bool:
        """`logical`, for a codec whose options decide it."""
        return self.logical

    def _leading(self) -> int:
        """How many leading dimensions must stay in their places, the others in memory order."""
        return 0

    def _view(self, x: Tensor) -> Tensor | None:
        """A contiguous view of x's elements in the order in which they are coded, or None; shape
        and strides alone decide which, and a contiguous x has one."""
        return dense_view(x, logical=self._logical(), leading=self._leading())

    def _dense(self, x: Tensor) -> Tensor:
        """x's elements, each once, in the order in which they are coded."""
        if x.is_conj() or x.is_neg():
            x = x.resolve_conj().resolve_neg()
        x = unexpand(x)
        view = self._view(x)
        view = self._view(x.contiguous()) if view is None else view
        assert view is not None, "a contiguous tensor has a view in every order"
        return view

    def check(self, x: Tensor) -> None:
        """Raise a TypeError or ValueError that says what to use instead, if x does not fit.

        Its dtype, shape and strides decide; x may be on the meta device.
        """
        if x.dtype not in _FLOATS:
            raise TypeError(
                f"{type(self).__name__} needs a floating tensor of 16 to 64 bits, got {x.dtype} "
                f"of shape {tuple(x.shape)}; integers are stored exactly with Index(), booleans "
                "with BitMask(), anything with Keep()"
            )

    @abstractmethod
    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Tensor:
        """Encode a contiguous tensor into a 1-D uint8 tensor got from `allocate`."""

    @abstractmethod
    def _decode(self, payload: Payload, out: Tensor) -> None:
        """Decode into `out`, contiguous, of the shape that `_encode` was given."""

    def _check_payload(self, payload: Payload) -> None:
        if payload.codec is not self and payload.codec != self:
            raise PayloadError(f"payload was made by {payload.codec!r}, not by {self!r}")
        if not payload.made_here and (why := fault(payload)):
            raise PayloadError(f"{self!r}: {why}")

    @staticmethod
    def _check_out(payload: Payload, out: Tensor) -> None:
        want = (payload.shape, payload.dtype, payload.data.device)
        got = (tuple(out.shape), out.dtype, out.device)
        if want != got:
            raise ValueError(
                f"out must be {want[0]} {want[1]} on {want[2]}, got {got[0]} {got[1]} on {got[2]}"
            )


_C = TypeVar("_C", bound=type[Codec])
_REGISTERED: dict[str, type[Codec]] = {}


def register(codec: _C) -> _C:
    """Enrol a codec class: payloads find it by its name, the conformance kit puts it through.

    A codec of another package can be found without an import by the entry point
    `actzip.codecs`, under the name of its class.
    """
    if not (isinstance(codec, type) and issubclass(codec, Codec)):
        raise TypeError(f"register_codec takes a subclass of actzip.codecs.Codec, got {codec!r}")
    if not dataclasses.is_dataclass(codec):
        raise TypeError(
            f"{codec.__name__} must be a frozen dataclass: its fields are its configuration"
        )
    known = _REGISTERED.get(codec.__name__)
    if known is not None and known.__module__ != codec.__module__:
        raise ValueError(
            f"a codec {codec.__name__} is there already, of {known.__module__}; payloads are found "
            "by the name of their codec, so take another one"
        )
    _REGISTERED[codec.__name__] = codec
    codec.__repr__ = _repr  # type: ignore[assignment, method-assign]  # dataclass wrote one that names all fields
    return codec


def _repr(codec: Codec) -> str:
    """`_short`, worked out once; it goes with the codec, of which a step may have many new ones."""
    known = codec.__dict__
    if "_short" not in known:
        known["_short"] = _short(codec)
    return str(known["_short"])


def _short(codec: Codec) -> str:
    """The code that makes the codec: its first option, and those that are not the default."""
    said = []
    for i, field in enumerate(dataclasses.fields(codec)):
        value = getattr(codec, field.name)
        if value != field.default or (i == 0 and value is not None):
            said.append(f"{field.name}={value!r}")
    return f"{type(codec).__name__}({', '.join(said)})"


def codec_class(name: str) -> type[Codec] | None:
    """The codec class of this name, from an installed package if it is none of ours."""
    if name not in _REGISTERED:
        found = load("actzip.codecs", name)
        if isinstance(found, type) and issubclass(found, Codec):
            register(found)
    return _REGISTERED.get(name)


def registered() -> dict[str, type[Codec]]:
    """All codec classes by name, in the order in which they were registered."""
    return dict(_REGISTERED)
