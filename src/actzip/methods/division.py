"""DIVISION: block averages in bfloat16, what is left of them in a few bits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from actzip import checks
from actzip.codecs import Dual, Group
from actzip.codecs.base import Codec
from actzip.control.op import NORMS, Channels, Kind
from actzip.methods.base import Role, Site, Stateless

_RELU = ("zero", "mask")
_BITS = ("bits", "dense", "norm", "rows", "activation", "nonlinear")


@dataclass(frozen=True)
class Division(Stateless):
    """Maps are smooth: their low frequencies, kept well, carry the gradient (ICML 2023).

        x = L + H,  L = average over blocks, in bfloat16,  H = x - L, in `bits` bits,
        x̂ = L + Ĥ,  with the least value and the step of H for each map (sample and channel).

    A fixed, cheap code: no statistics, nothing to adapt, the same bytes in every step.

    - block: the side of a block, in pictures `block` × `block`, in volumes a cube. Along a
      sequence, (N, C, L) or tokens (N, T, C), an average stands for `sequence_block` positions:
      64, as in a picture, since one for every 8 costs two bits per element.
    - A map or sequence with fewer than block² (`sequence_block`) positions, a 2-D input of a
      linear layer, and an operand without places go to the group code: there, averages and a
      range for each channel cost more than the finer step saves.
    - dense: bits, or `bits` if that is more, of the input of a linear layer that goes to the group
      code: nothing smooth is taken out of it, and 2 bits cost a small ViT half a point: 3.
    - relu: how zeros that a ReLU made survive. "zero" (default): code 0 means zero, the mask
      costs nothing. "mask": the plain code, and the mask in one bit beside it, applied after
      decoding. At equal bytes "zero" has a quarter of the squared error.
    - norm: bits of the input of a BatchNorm or GroupNorm. Its error enters the gradient divided by
      the number of elements it averages over, so 2 bits will do.
    - rows: the same for LayerNorm and RMSNorm, which average over a row only: 3. Groups end with
      the rows: a row of small values (a class token) beside large ones would be lost in a step
      that is common to all tokens, and what it is normalised to would explode.
    - activation: bits of the input of GELU and its like, of which the gradient bends little: 3.
    - nonlinear: bits of what else enters through a curve: q and k of an attention, and with them v
      and its result, softmax, gates. Error there bends the gradient and does not average out: 4.
      (On a small ViT q, k and v in 2 bits add nearly as much variance as SGD has, in 4 bits 1 %
      of it; all other kinds of sites, in 2 bits, a fifth together: results/sites_noise.json.)
    - align="original", rounding="stochastic": the published code. Floor blocks from the top left
      are stretched over the map; there is no lower limit on its size.
    """

    block: int = 8
    bits: int = 2
    align: str = "ceil"
    rounding: str = "dither"
    relu: str = "zero"
    dense: int = 3
    norm: int = 2
    rows: int = 3
    activation: int = 3
    nonlinear: int = 4
    sequence_block: int = 64
    group_size: int = 256

    def __post_init__(self) -> None:
        checks.one_of(self, "relu", _RELU)
        checks.whole(self, *_BITS, least=1, most=8)
        checks.whole(self, "block", "sequence_block", "group_size", least=1)
        Dual(self.block, self.bits, self.align, self.rounding)  # says what is wrong with these

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        bits = self._bits(site)
        zero = site.relu and self.relu == "zero"
        axes = places(site, tensor)
        if site.op.kind is Kind.ROW_NORM and tensor.dim() - 1 not in axes:
            size = _within(tensor.shape[-1], self.group_size)
            return Group(bits, size, self.rounding, zero)
        if not self._is_map([tensor.shape[axis] for axis in axes]):
            bits = max(bits, self.dense) if site.op.kind is Kind.DENSE else bits
            return Group(bits, self.group_size, self.rounding, zero)
        block = self.block if len(axes) > 1 else self.sequence_block
        usual = axes == tuple(range(2, tensor.dim()))
        return Dual(block, bits, self.align, self.rounding, zero, None if usual else axes)

    def _bits(self, site: Site) -> int:
        kind = site.op.kind
        if kind is Kind.ATTENTION:
            return self.nonlinear
        if site.role is Role.LINEAR:
            return self.bits
        if kind in NORMS:
            return self.rows if kind is Kind.ROW_NORM else self.norm
        return self.activation if kind is Kind.ACTIVATION else self.nonlinear

    def _is_map(self, sizes: list[int]) -> bool:
        if self.align == "original":
            return len(sizes) > 1
        if len(sizes) > 1:
            return torch.Size(sizes).numel() >= self.block**2
        return bool(sizes) and sizes[0] >= self.sequence_block


def places(site: Site, tensor: Tensor) -> tuple[int, ...]:
    """The dimensions of a tensor that are places or times; empty when it has none.

    Who made the tensor knows best; one without a history is what its reader says.
    """
    if not 3 <= tensor.dim() <= 5:
        return ()
    for op in (site.maker, site.op):
        if op.channels is Channels.NOWHERE:
            return ()
        if op.channels is Channels.HEADS:
            return (tensor.dim() - 2,)
        if op.channels is Channels.SECOND:
            return tuple(range(2, tensor.dim()))
        if op.channels is Channels.LAST:
            return tuple(range(1, tensor.dim() - 1))
    # neither says: three dimensions are tokens (N, T, C), more are maps (N, C, …)
    return (1,) if tensor.dim() == 3 else tuple(range(2, tensor.dim()))


def _within(row: int, most: int) -> int:
    """The largest group of at most `most` that rows are a multiple of; `most` if it is tiny."""
    size = max(g for g in range(1, max(1, min(row, most)) + 1) if row % g == 0)
    return size if size >= min(32, row) else most
