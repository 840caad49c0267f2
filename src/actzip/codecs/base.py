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

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from actzip.codecs import unsettled
from actzip.codecs.memory_order import dense_view, overlaps, row_major, unexpand
from actzip.codecs.payload import Allocate, Coded, Payload, PayloadError, fresh, made, ours
from actzip.codecs.validate import fault, too_large
from actzip.kernels.errors import DamagedError

__all__ = ["Allocate", "Codec", "Payload", "PayloadError", "fresh", "ours"]

_SEED_BITS = 0xFFFFFFFFFFFFFFFF

#: What the kernels compute with.
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class Codec(ABC):
    """Base of all codecs; see the module's docstring for the contract."""

    #: True when decode gives back every bit.
    exact: ClassVar[bool] = False
    #: True when the codec must see the tensor in logical (row-major) order; otherwise it
    #: gets the elements in the order of memory and channels_last costs no copy.
    logical: ClassVar[bool] = False

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
        stride = x.stride()
        if not x.is_contiguous() and overlaps(x):
            stride = row_major(x.shape)
        return self._payload(x, stride, seed, self._encode(self._dense(x), seed, allocate))

    def _payload(
        self, x: Tensor, stride: tuple[int, ...], seed: int, coded: Tensor | Coded
    ) -> Payload:
        """The payload of x, with what the host knows and what it does not know yet."""
        shape, seed = tuple(x.shape), seed & _SEED_BITS
        if not isinstance(coded, Coded):
            return made(self, shape, stride, x.dtype, seed, coded)
        payload = made(self, shape, stride, x.dtype, seed, coded.data, coded.known)
        if coded.lengths:
            payload.__dict__["lengths"] = coded.lengths
            for length in coded.lengths:
                length.belongs_to(payload)
            payload.shrink()  # all may have come already
        if coded.word is not None:
            loud = coded.unit > 0  # groups without room are NaN; a mask would just be wrong
            unsettled.hold(payload, x, coded.word, coded.most, coded.unit, loud=loud)
        return payload

    def decode(self, payload: Payload, out: Tensor | None = None) -> Tensor:
        if payload.doubt is None and payload.made_by is None:
            return self._write(payload, out, self._decode)
        if (other := self._other(payload)) is not None:
            return other.decode(payload, out)
        values = self._write(payload, out, self._decode)
        return values if payload.doubt is None else payload.doubt.correct(values)

    def _other(self, payload: Payload) -> Codec | None:
        """The codec that keeps the tensor instead of this one, once the device has spoken."""
        if payload.doubt is not None:
            unsettled.look()
        if payload.made_by is None:
            return None
        return payload.codec if payload.made_by == self else None

    def used(self, payload: Payload) -> Tensor:
        """The bytes of a settled payload without what was reserved in them."""
        return payload.data[: payload.data.numel() - payload.spare]

    def shrunk(self, payload: Payload, used: list[int]) -> dict[str, Any]:
        """What is another in a payload of `lengths` once these are known: its data."""
        return {"data": payload.data[: used[0]].clone()}

    def exactly(self) -> Codec:
        """The codec that keeps a tensor bit for bit in the place of this one."""
        from actzip.codecs.keep import Keep

        return Keep()

    def _write(
        self, payload: Payload, out: Tensor | None, fill: Callable[[Payload, Tensor], None]
    ) -> Tensor:
        """Have `fill` write a dense tensor in the order of the original's memory."""
        if payload.lengths:
            unsettled.look()
        if out is None or not payload.made_here or payload.codec is not self:
            out = self._room(payload, out)
        else:
            self._check_out(payload, out)
        if out.stride() != payload.stride:
            # elements are stored in the order of the original's memory, not of this one's
            return out.copy_(self._write(payload, None, fill))
        target = unexpand(out) if 0 in payload.stride else out
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
        if payload.codec is not self or not payload.made_here:
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

    def even(self) -> Codec:
        """The same format with one error for all elements of a channel, that which is its option's
        unit: what `unevenness` is in parts of for a code that has several."""
        return self

    def unevenness(self, x: Tensor) -> Tensor | None:
        """Error variance of each element in parts of that of the even code; None: as large for
        all."""
        return None

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
        if 0 in x.stride():
            x = unexpand(x)
        view = self._view(x)
        view = self._view(x.contiguous()) if view is None else view
        assert view is not None, "a contiguous tensor has a view in every order"
        return view

    def check(self, x: Tensor) -> None:
        """Raise a TypeError or ValueError that says what to use instead, if x does not fit.

        Its dtype, shape and strides decide; x may be on the meta device.
        """
        if x.dtype not in FLOATS:
            raise TypeError(
                f"{type(self).__name__} needs a floating tensor of 16 to 64 bits, got {x.dtype} "
                f"of shape {tuple(x.shape)}; integers are stored exactly with Index(), booleans "
                "with BitMask(), anything with Keep()"
            )

    @abstractmethod
    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Tensor | Coded:
        """Encode a contiguous tensor into a 1-D uint8 tensor got from `allocate`; `Coded` says
        more about it, such as what `_decode` finds in `payload.known`."""

    @abstractmethod
    def _decode(self, payload: Payload, out: Tensor) -> None:
        """Decode into `out`, contiguous, of the shape that `_encode` was given."""

    def _check_payload(self, payload: Payload) -> None:
        if payload.codec is not self and payload.codec != self:
            raise PayloadError(f"payload was made by {payload.codec!r}, not by {self!r}")
        if not payload.made_here and (why := fault(payload)):
            raise PayloadError(f"{self!r}: {why}")

    @staticmethod
    def _trusted(payload: Payload) -> bool:
        """Whether nothing is read from the bytes to refuse damage: where that would be a wait."""
        data = payload.data
        return payload.made_here and not unsettled.reading_is_free(data.device)

    @staticmethod
    def _check_out(payload: Payload, out: Tensor) -> None:
        shape, dtype, device = payload.shape, payload.dtype, payload.data.device
        if out.shape != shape or out.dtype != dtype or out.device != device:
            got = f"{tuple(out.shape)} {out.dtype} on {out.device}"
            raise ValueError(f"out must be {shape} {dtype} on {device}, got {got}")
