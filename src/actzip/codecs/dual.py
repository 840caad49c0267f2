"""Dual: low frequencies as block averages, the rest of each map in low-bit codes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import torch
from torch import Tensor

from actzip import checks, kernels
from actzip.codecs import error_model
from actzip.codecs.base import Codec
from actzip.codecs.memory_order import unexpand
from actzip.codecs.payload import Allocate, Coded, Payload
from actzip.codecs.raw_groups import with_raw
from actzip.codecs.registry import register
from actzip.kernels.dual_layout import DualLayout
from actzip.kernels.group_layout import ROUNDING

_ALIGN = ("ceil", "original")


@register
@dataclass(frozen=True)
class Dual(Codec):
    """DIVISION's dual precision for maps (N, C, L), (N, C, H, W) and (N, C, D, H, W).

    x = L + H: L the average of each block of `block` positions a side, in bfloat16; H = x - L in
    `bits` bits with one least value and one step = (largest - least H) / (2^bits - 1) for each map.

    - rounding="dither" (default): |x - decode(encode(x))| <= step / 2, beside the rounding of the
      dtype; the error is uniform and zero on average. "stochastic": within a step, zero on average
      (as published). "nearest": step / 2, deterministic.
    - align="ceil" (default): blocks cover the map, those at the far edge may be smaller.
      align="original": floor(size / block) blocks from the top left, stretched over the map.
    - zero=True: zeros come back as exactly zero and nothing else does. Averages are those of the
      non-zero elements, and the other 2^bits - 1 codes span what is left of these (step is then
      their range over 2^bits - 2; a single bit keeps the mask and the middle of the range).
      `mask(payload)` reads the zeros from the codes.
    - axes: the dimensions that are a map, one to three in a row; the others number the maps. By
      default all from the third; (1,) for tokens (N, T, C), (1, 2) for maps (N, H, W, C).

    A map takes bits * size + 16 * blocks + 32 bits. One with a NaN or an infinity is kept raw,
    exactly. Elements are coded in the order of memory when the axes are next to each other there:
    channels_last costs no copy.
    """

    block: int = 8
    bits: int = 2
    align: str = "ceil"
    rounding: str = "dither"
    zero: bool = field(default=False, metadata={"later": True})
    axes: tuple[int, ...] | None = field(default=None, metadata={"later": True})

    def __post_init__(self) -> None:
        if isinstance(self.axes, list):
            object.__setattr__(self, "axes", tuple(self.axes))
        checks.whole(self, "block", least=1, most=(1 << 31) - 1)
        checks.whole(self, "bits", least=1, most=8)
        checks.one_of(self, "align", _ALIGN)
        checks.one_of(self, "rounding", ROUNDING)
        checks.flag(self, "zero")
        if self.axes is not None and not _in_a_row(self.axes):
            raise ValueError(
                "Dual(axes=…) is one to three dimensions in a row, such as (1,) or (2, 3), got "
                f"{self.axes!r}"
            )

    def finer(self, level: int) -> Codec:
        return dataclasses.replace(self, bits=min(8, self.bits + level))

    def precision(self) -> tuple[str, float] | None:
        return "bits", float(self.bits)

    def check(self, x: Tensor) -> None:
        super().check(x)
        if self.axes is None and not 3 <= x.dim() <= 5:
            raise ValueError(
                "Dual needs maps: (N, C, L), (N, C, H, W) or (N, C, D, H, W), got a tensor of "
                f"shape {tuple(x.shape)}; say which dimensions are a map with axes, or use Group()"
            )
        if self.axes is not None and x.dim() <= self.axes[-1]:
            raise ValueError(
                f"Dual was given axes {self.axes}, got a tensor of shape {tuple(x.shape)}; use "
                "Group() for tensors that hold no maps"
            )

    @property
    def keeps_zeros(self) -> bool:
        """With dither the mask is in the codes, see `mask`, but not in the decoded signs."""
        return self.zero and self.rounding != "dither"

    @property
    def keeps_mask(self) -> bool:
        return self.zero

    def mask(self, payload: Payload, out: Tensor | None = None) -> Tensor:
        """1 where the stored value was not zero, else 0, read from the codes; needs zero=True."""
        if not self.zero:
            raise ValueError(f"{self!r} has no code for zero; use Dual(..., zero=True)")
        if (other := self._other(payload)) is not None:
            return other.mask(payload, out)
        found = self._write(payload, out, self._decode_mask)
        return found if payload.doubt is None else payload.doubt.correct(found, mask=True)

    def max_error(self, x: Tensor) -> Tensor:
        """The bound of the class docstring for each element; 0 in raw maps and for kept zeros."""
        maps, layout = self._one_by_one(x)
        bounds = error_model.dual_bounds(maps.reshape(-1), layout).view(maps.shape)
        if self.zero:
            bounds = torch.where(maps == 0, torch.zeros_like(bounds), bounds)
        axes = self._axes(x)
        return bounds.movedim(tuple(range(-len(axes), 0)), axes).expand(x.shape)

    def variance(self, x: Tensor) -> float:
        """Predicted mean squared error: step²/12; for "stochastic" step²·p(1-p), p the fraction."""
        maps, layout = self._one_by_one(x)
        return error_model.dual_variance(maps.reshape(-1), layout)

    def _axes(self, x: Tensor) -> tuple[int, ...]:
        return tuple(range(2, x.dim())) if self.axes is None else self.axes

    def _view(self, x: Tensor) -> Tensor | None:
        """(maps before, depth, height, width, maps after): in memory, the last are side by side."""
        if not x.numel():
            return x.view(0, 1, 1, 1, 1)
        axes = self._axes(x)
        wide = [d for d in range(x.dim()) if x.shape[d] > 1]
        by_stride = sorted(wide, key=x.stride, reverse=True)
        inner = [d for d in by_stride if d in axes]
        at = by_stride.index(inner[0]) if inner else len(by_stride)
        single = [d for d in range(x.dim()) if x.shape[d] == 1 and d not in axes]
        before, after = by_stride[:at] + single, by_stride[at + len(inner) :]
        if by_stride[at : at + len(inner)] != sorted(inner):
            return None
        ordered = x.permute(*before, *axes, *after)
        if not ordered.is_contiguous():
            return None
        sizes = [1] * (3 - len(axes)) + [x.shape[d] for d in axes]
        return ordered.view(_count(x, before), *sizes, _count(x, after))

    def _one_by_one(self, x: Tensor) -> tuple[Tensor, DualLayout]:
        """x with its maps innermost, and the layout of them: errors do not depend on the order."""
        x = unexpand(x.detach())
        axes = self._axes(x)
        maps = x.movedim(axes, tuple(range(-len(axes), 0)))
        sizes = [1] * (3 - len(axes)) + list(maps.shape[-len(axes) :])
        each = maps.reshape(-1, *sizes, 1) if x.numel() else maps.view(0, 1, 1, 1, 1)
        return maps, self._layout(each)

    def _layout(self, x: Tensor) -> DualLayout:
        before, *sizes, after = x.shape
        original = self.align == "original"
        return DualLayout.of(
            before, sizes, after, self.block, self.bits, original, self.rounding, self.zero, x.dtype
        )

    def least_bytes(self, x: Tensor) -> int:
        return x.numel() * self.bits // 8

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Tensor | Coded:
        layout, kernel, flat = self._layout(x), kernels.of(x, "dual"), x.view(-1)

        def encode(data: Tensor) -> int | Tensor:
            return kernel.encode(flat, layout, seed, data)

        def store_raw(data: Tensor) -> None:
            kernel.store_raw(flat, layout, data)

        size = layout.averages_size + layout.rest.offsets[-1]
        return with_raw(flat, size, layout.size, allocate, encode, store_raw)

    def _decode(self, payload: Payload, out: Tensor) -> None:
        kernel, trusted = kernels.of(out, "dual"), self._trusted(payload)
        kernel.decode(payload.data, self._layout(out), payload.seed, out.view(-1), trusted)

    def _decode_mask(self, payload: Payload, out: Tensor) -> None:
        kernels.of(out, "dual").nonzero(payload.data, self._layout(out), out.view(-1))


def _in_a_row(axes: tuple[int, ...]) -> bool:
    if not isinstance(axes, tuple) or not all(isinstance(axis, int) for axis in axes):
        return False
    if not 1 <= len(axes) <= 3 or axes[0] < 0:
        return False
    return axes == tuple(range(axes[0], axes[0] + len(axes)))


def _count(x: Tensor, dims: list[int]) -> int:
    return torch.Size(x.shape[d] for d in dims).numel()
