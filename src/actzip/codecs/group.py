"""Group: low-bit codes with a least value and a step per group of elements."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, replace

from torch import Tensor

from actzip import checks, kernels
from actzip.codecs import error_model
from actzip.codecs.base import FLOATS, Codec
from actzip.codecs.each import mapped, mean
from actzip.codecs.group_entropy import squeeze, unsqueeze
from actzip.codecs.memory_order import as_it_lies, dense
from actzip.codecs.payload import Allocate, Coded, Payload, fresh
from actzip.codecs.raw_groups import exactly, with_raw
from actzip.codecs.registry import register
from actzip.kernels.entropy_table import least_coded
from actzip.kernels.group_layout import ROUNDING, GroupLayout


@register
@dataclass(frozen=True)
class Group(Codec):
    """Codes of 1 to 8 bits in groups, each with a least value and a step of its own.

    With step = (largest - least) / (2^bits - 1), rounded up to what is stored, and beside the
    rounding of the dtype itself:

    - rounding="dither" (default): |x - decode(encode(x))| <= step / 2, the error uniform,
      independent of x, zero on average, with variance step² / 12.
    - rounding="stochastic": within a step, zero on average, variance up to step² / 4.
    - rounding="nearest": |x - decode(encode(x))| <= step / 2, deterministic.

    Least value and step are stored in bfloat16 (the upper 32 bits for float64) and rounded before
    anything is quantized: the least value downwards, so the range can grow by |least| / 128.

    zero=True: zeros come back as exactly zero and nothing else does, the other 2^bits - 1 codes
    span the non-zero values (step is then their range over 2^bits - 2; a single bit keeps the mask
    and the middle of the range). `mask(payload)` reads the zeros from the codes.

    bits: one number, or a tuple with one per sample (first dimension); groups then end with the
    sample. A group with a NaN, an infinity, values above 2^124 or a range below 2^-100 is kept
    raw, exactly.

    entropy=True: the codes are entropy-coded, the same values in fewer bytes.
    """

    bits: int | tuple[int, ...] = 2
    group_size: int = 256
    rounding: str = "dither"
    zero: bool = False
    entropy: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.bits, list):
            object.__setattr__(self, "bits", tuple(self.bits))
        if self.bits != ():  # of a tensor without samples
            checks.whole(self, "bits", least=1, most=8, several=True)
        checks.whole(self, "group_size", least=1)
        checks.one_of(self, "rounding", ROUNDING)
        checks.flag(self, "zero", "entropy")

    def finer(self, level: int) -> Codec:
        return dataclasses.replace(self, bits=mapped(self.bits, lambda b: min(8, b + level)))

    def precision(self) -> tuple[str, float] | None:
        return "bits", mean(self.bits)

    def grouping(self) -> tuple[int, bool] | None:
        return self.group_size, isinstance(self.bits, tuple)

    def check(self, x: Tensor) -> None:
        if x.dtype not in FLOATS:
            Codec.check(self, x)
        if isinstance(self.bits, tuple) and (x.dim() == 0 or x.shape[0] != len(self.bits)):
            raise ValueError(
                f"Group was given bits for {len(self.bits)} samples, got a tensor of shape "
                f"{tuple(x.shape)}; give one number, or one per element of the first dimension"
            )

    def part(self, first: int, last: int) -> Group:
        if not isinstance(self.bits, tuple):
            return self
        return replace(self, bits=self.bits[first:last])

    @property
    def keeps_zeros(self) -> bool:
        """With dither the mask is in the codes, see `mask`, but not in the decoded signs."""
        return self.zero and self.rounding != "dither"

    @property
    def keeps_mask(self) -> bool:
        return self.zero

    def mask(self, payload: Payload, out: Tensor | None = None) -> Tensor:
        """1 where the stored value was not zero, else 0, read from the codes; needs zero=True.

        For the result of a ReLU this is exactly its mask. (The decoded values are not: a small
        dithered value may come back below zero.) Shape, dtype and strides are the tensor's own.
        """
        if not self.zero:
            raise ValueError(f"{self!r} has no code for zero; use Group(..., zero=True)")
        if (other := self._other(payload)) is not None:
            return other.mask(payload, out)
        found = self._write(payload, out, self._decode_mask)
        return found if payload.doubt is None else payload.doubt.correct(found, mask=True)

    def max_error(self, x: Tensor) -> Tensor:
        """The bound of the class docstring for each element; 0 in raw groups and for kept zeros."""
        return error_model.placed(x, self.logical, self._bounds, self._leading())

    def variance(self, x: Tensor) -> float:
        """Predicted mean squared error: step²/12; for "stochastic" step²·p(1-p), p the fraction."""
        seen = dense(x, logical=self.logical, leading=self._leading())
        return error_model.group_variance(seen.view(-1), self._layout(seen))

    def _bounds(self, dense: Tensor) -> Tensor:
        return error_model.group_bounds(dense.view(-1), self._layout(dense))

    def _leading(self) -> int:
        """Bits per sample need the samples one after the other; channels_last has them so."""
        return int(isinstance(self.bits, tuple))

    def _view(self, x: Tensor) -> Tensor | None:
        if not isinstance(self.bits, tuple):
            return x if x.is_contiguous() else as_it_lies(x)
        return super()._view(x)

    def _layout(self, x: Tensor) -> GroupLayout:
        if not isinstance(self.bits, tuple):
            each = (self.bits,)
            return _known(1, x.numel(), self.group_size, each, self.rounding, self.zero, x.dtype)
        # an expanded batch is stored once, with the most precise of its samples
        bits = self.bits if x.shape[0] == len(self.bits) else (max(self.bits),)
        n = x[0].numel() if x.shape[0] else 0
        return GroupLayout.of(
            x.shape[0], n, self.group_size, bits, self.rounding, self.zero, x.dtype
        )

    def least_bytes(self, x: Tensor) -> int:
        each = self.bits if isinstance(self.bits, tuple) else (self.bits,)
        if self.entropy:
            # codes that are all alike, eight to a symbol
            return least_coded(x.numel() // 8)
        return x.numel() * min(each, default=1) // 8

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Tensor | Coded:
        layout, kernel = self._layout(x), kernels.of(x, "group")

        encode = functools.partial(kernel.encode, x, layout, seed)
        store_raw = functools.partial(kernel.store_raw, x, layout)
        size = layout.offsets[-1]
        if self.entropy:
            return squeeze(exactly(x, size, fresh, encode, store_raw), layout, allocate)
        return with_raw(x, size, layout.group, allocate, encode, store_raw)

    def _decode(self, payload: Payload, out: Tensor) -> None:
        kernel, layout = kernels.of(out, "group"), self._layout(out)
        data = unsqueeze(payload.data, layout) if self.entropy else payload.data
        kernel.decode(data, layout, payload.seed, out, self._trusted(payload))

    def _decode_mask(self, payload: Payload, out: Tensor) -> None:
        layout = self._layout(out)
        data = unsqueeze(payload.data, layout) if self.entropy else payload.data
        kernels.of(out, "group").nonzero(data, layout, out)


#: With one number of bits the same few layouts come in every step.
_known = functools.lru_cache(maxsize=1024)(GroupLayout.of)
