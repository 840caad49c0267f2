"""A look at some samples of a large tensor, in place of all.

What a look wants are sums over samples. They are taken from every k-th one and multiplied by

    ‖gY‖² of all samples / ‖gY‖² of those,

because an error weight is a square of gY times what hardly differs from sample to sample. With the
coefficient of variation v of w/‖gY‖² over samples, n of them give the sum to about v/√n. Measured
on a new ResNet-20, batch 128: 0.5 % at most. Row norms are read whole: their w has 1/std⁴ of each
row, and 16 samples of a ViT were off by up to 30 %. Signals, ‖g‖² of what came and of what was
given, are always of all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from actzip.control.backward import Backward, ErrorWeights, energy_of
from actzip.control.error import error_weights, left
from actzip.control.op import Kind
from actzip.control.reading import Reading

_FEWEST = 16  #: samples
_ELEMENTS = 1 << 17  #: from so many on, some samples are left out

#: Ops that treat each sample by itself, with a gradient of the same shape.
_POINTWISE = (Kind.ACTIVATION, Kind.GATE, Kind.POINTWISE)
_SUMMED = ("parameter", "channel_parameter"), ("input", "channel_input")


@dataclass(frozen=True)
class Part:
    """Some samples of a backward, and what stands for all of them."""

    b: Backward  #: as it would have been with these samples alone
    w: ErrorWeights
    every: int
    samples: int  #: of all
    outer_signal: float  #: of all
    ratios: tuple[float, float]  #: sums over all in parts of these: at parameters, travelling on
    worst: float  #: the same for the worst case

    def whole(self, r: Reading) -> Reading:
        """A reading of the part as one of all samples; those left out count as their neighbours."""
        found = {}
        for names, ratio in zip(_SUMMED, self.ratios, strict=True):
            own, channels = names
            each = self._spread(getattr(r, own))
            total = getattr(r, own).sum() * ratio
            found[own] = each * (total / each.sum().clamp(min=1e-300))
            found[channels] = getattr(r, channels) * ratio
            found[own + "_focus"] = self._spread(getattr(r, own + "_focus"))
            worst = "worst_" + own
            found[worst] = getattr(r, worst) * self.worst
        outer = r.outer_signal.new_tensor(self.outer_signal)
        return replace(r, **found, outer_signal=outer)

    def _spread(self, t: Tensor) -> Tensor:
        return t.repeat_interleave(self.every)[: self.samples]


def stride(b: Backward) -> int:
    """k: every k-th sample is read. Odd, so that it meets all places of a sequence in turn."""
    samples = b.x.shape[0] if b.x.dim() > 1 else 1
    every = min(samples // _FEWEST, b.x.numel() // _ELEMENTS)
    return max(1, every - (every + 1) % 2)


def part(b: Backward, step: int) -> Part | None:
    """Some of the samples, others in each look; None where all are to be read."""
    every = stride(b)
    if every == 1 or b.outer.shape[:1] != b.x.shape[:1]:
        return None
    rows = slice(step * 7919 % every, None, every)
    x, outer = b.x[rows], b.outer[rows]
    samples = b.x.shape[0]
    if b.op.kind is Kind.BATCH_NORM:  # over all samples; but its weights are the same all over maps
        w = error_weights(b)
        if w is None or any(
            t is not None and t.shape[0] != samples for t in (w.parameter, w.input)
        ):
            return None
        own, travels = (None if t is None else t[rows] for t in (w.parameter, w.input))
        ratios = _ratio(w.parameter, own), _ratio(w.input, travels)
        cut = replace(b, x=x, outer=outer)
        w = replace(w, parameter=own, input=travels)
        return Part(cut, w, every, samples, energy_of(b.outer), ratios, 1.0)
    formula = b.op.errors.get(b.slot)
    alone = b.op.kind is Kind.CONVOLUTION or formula is left
    same = b.x.shape == b.outer.shape and b.op.kind in _POINTWISE
    if not (alone or same):
        return None
    total, some = energy_of(b.outer), energy_of(outer)
    if not some > 0:
        return None
    cut = replace(b, x=x, outer=outer)
    found = error_weights(cut)
    if found is None:
        return None
    ratio = total / some
    # bounds of linear maps are ‖w‖ times so many elements; those of single elements are a sum
    summed = b.op.kind in (Kind.ACTIVATION, Kind.GATE)
    worst = ratio if summed else ratio * (samples / x.shape[0])
    return Part(cut, found, every, samples, total, (ratio, ratio), worst)


def _ratio(whole: Tensor | None, some: Tensor | None) -> float:
    if whole is None or some is None:
        return 1.0
    less = float(some.double().sum())
    return float(whole.double().sum()) / less if less > 0 else 1.0
