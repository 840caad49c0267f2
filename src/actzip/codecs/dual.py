"""Dual: low frequencies as block averages, the rest of each map in low-bit codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from actzip import kernels
from actzip.codecs import prediction
from actzip.codecs.base import Allocate, Codec, Payload, register
from actzip.kernels.dual_layout import Axis, DualLayout
from actzip.kernels.layout import ROUNDING, GroupLayout

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

    A map takes bits * size + 16 * blocks + 32 bits. One with a NaN or an infinity is kept raw,
    exactly.
    """

    block: int = 8
    bits: int = 2
    align: str = "ceil"
    rounding: str = "dither"

    logical: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.block, int) or self.block < 1:
            raise ValueError(f"Dual(block=...) is at least 1, got {self.block!r}")
        if not isinstance(self.bits, int) or not 1 <= self.bits <= 8:
            raise ValueError(f"Dual(bits=...) is 1 to 8, got {self.bits!r}")
        if self.align not in _ALIGN:
            raise ValueError(f"Dual(align=...) is one of {', '.join(_ALIGN)}, got {self.align!r}")
        if self.rounding not in ROUNDING:
            raise ValueError(
                f"Dual(rounding=...) is one of {', '.join(ROUNDING)}, got {self.rounding!r}"
            )

    def check(self, x: Tensor) -> None:
        super().check(x)
        if not 3 <= x.dim() <= 5:
            raise ValueError(
                "Dual needs maps: (N, C, L), (N, C, H, W) or (N, C, D, H, W), got a tensor of "
                f"shape {tuple(x.shape)}; use Group() for others"
            )

    def max_error(self, x: Tensor) -> Tensor:
        """The bound of the class docstring for each element; 0 in raw maps."""
        return prediction.placed(x, self.logical, self._bounds)

    def variance(self, x: Tensor) -> float:
        """Predicted mean squared error: step²/12; for "stochastic" step²·p(1-p), p the fraction."""
        dense = prediction.dense(x, self.logical)
        return prediction.dual_variance(dense.view(-1), self._layout(dense))

    def _bounds(self, dense: Tensor) -> Tensor:
        return prediction.dual_bounds(dense.view(-1), self._layout(dense))

    def _layout(self, x: Tensor) -> DualLayout:
        sizes = [1] * (5 - x.dim()) + [max(1, size) for size in x.shape[2:]]
        depth, height, width = (Axis(size, self.block, self.align == "original") for size in sizes)
        size = depth.size * height.size * width.size
        maps = x.numel() // size
        rest = GroupLayout(
            1, maps * size, size, (self.bits,), ROUNDING[self.rounding], False, x.dtype
        )
        return DualLayout(maps, (depth, height, width), rest)

    def _encode(self, x: Tensor, seed: int, allocate: Allocate) -> Tensor:
        layout = self._layout(x)
        kernel = kernels.of(x, "dual")
        flat = x.view(-1)
        data = allocate(layout.averages_size + layout.rest.offsets[-1], x.device)
        raw = kernel.encode(flat, layout, seed, data)
        if raw:
            larger = allocate(data.numel() + raw * x.element_size(), x.device)
            larger[: data.numel()] = data
            kernel.store_raw(flat, layout, larger)
            return larger
        return data

    def _decode(self, payload: Payload, out: Tensor) -> None:
        kernel = kernels.of(out, "dual")
        kernel.decode(payload.data, self._layout(out), payload.seed, out.view(-1))
