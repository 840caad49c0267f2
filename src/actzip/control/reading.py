"""A reading: what one backward says of one stored tensor, sums over its samples and channels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from torch import Tensor

from actzip.control.backward import Backward, ErrorWeights, chunk, energy_of, wide
from actzip.control.op import channel_dim


@dataclass(frozen=True)
class Reading:
    """One stored tensor as the backward of one step saw it; small tensors in float64.

    With s²ₙ the mean error variance of the elements of sample n that are not zero,

        E‖Δg‖² = Σₙ s²ₙ·parameter[n]    over the gradients of parameters, which end here, and
        E‖Δg‖² = Σₙ s²ₙ·input[n]        over the gradients that travel on to other layers,

    if s² is the same all over a sample. In a group code it is not: then these are to be multiplied
    by `parameter_focus` and `input_focus`, which say how far large errors meet large gradients.
    `channel_parameter` and `channel_input` say the same channel by channel. `zeros` is the share
    of those sums that elements which are exactly zero would add, were they not kept exactly.
    `worst_parameter` and `worst_input` are ‖Δg‖² at most, for an error of at most 1 in every
    element of a channel. Several ops that read one tensor add up.
    """

    parameter: Tensor
    input: Tensor
    channel_parameter: Tensor
    channel_input: Tensor
    worst_parameter: Tensor
    worst_input: Tensor
    peak: Tensor  #: max |x| of each channel
    zeros: Tensor
    power: Tensor  #: mean of x² over all elements
    parameter_signal: Tensor  #: ‖g‖² of the parameters' gradients
    parameter_count: Tensor  #: how many numbers those gradients have; `weight_count` the largest
    input_signal: Tensor  #: ‖g‖² of the gradients that travel on
    outer_signal: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    parameter_focus: Tensor = field(default_factory=lambda: torch.ones(1, dtype=torch.float64))
    input_focus: Tensor = field(default_factory=lambda: torch.ones(1, dtype=torch.float64))
    weight_count: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    #: mean over samples of max |g| of the gradient that came
    mean_peak_grad: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))

    @functools.cached_property
    def numbers(self) -> dict[str, float]:
        """What is one number, and sums over samples of what is not: they are asked for often."""
        sums = {name: float(getattr(self, name).sum()) for name in _BY_SAMPLE}
        return {**{name: float(getattr(self, name)) for name in _NUMBERS}, **sums}

    def __add__(self, other: Reading) -> Reading:
        """Both of two ops that read one tensor."""
        summed = {f.name: _sum(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        a, b = _total(self), _total(other)
        share = (self.zeros * a + other.zeros * b) / (a + b).clamp(min=torch.finfo(a.dtype).tiny)
        summed["zeros"] = share
        summed["peak"] = _largest(self.peak, other.peak)
        summed["power"] = torch.maximum(self.power, other.power)
        for name in ("parameter", "input"):
            focus = name + "_focus"
            parts = [getattr(r, name) * getattr(r, focus) for r in (self, other)]
            summed[focus] = _ratio(_sum(*parts), summed[name])
        return Reading(**summed)

    def is_finite(self) -> bool:
        return all(bool(getattr(self, f.name).isfinite().all()) for f in fields(self))

    def is_felt(self) -> bool:
        """Whether a gradient came that is not 0 everywhere, so that it says what errors do, and
        went on where they would: beside a gradient of 0 any noise is too much, or none."""
        came = float(self.outer_signal) > 0 or float(_total(self)) > 0
        return came and (float(self.input_signal) > 0 or not float(self.input.sum()) > 0)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a/b, and 1 where that says nothing."""
    return torch.where(b > 0, a / b.clamp(min=torch.finfo(b.dtype).tiny), 1.0)


def _total(reading: Reading) -> Tensor:
    return reading.parameter.sum() + reading.input.sum()


def _sum(a: Tensor, b: Tensor) -> Tensor:
    """Per-sample or per-channel numbers of equal count add; else they are spread evenly."""
    if a.shape == b.shape or not a.dim():
        return a + b
    return a + b.sum() / a.numel()


def _largest(a: Tensor, b: Tensor) -> Tensor:
    return torch.maximum(a, b if a.shape == b.shape else b.max())


def _mean(tensors: list[Tensor]) -> Tensor:
    """The mean over passes; a batch of another size is left out of the per-sample numbers."""
    same = [t for t in tensors if t.shape == tensors[-1].shape]
    return torch.stack(same).mean(0)


def mean(readings: list[Reading]) -> Reading | None:
    """Number by number; None of none."""
    if not readings:
        return None
    return Reading(
        **{f.name: _mean([getattr(r, f.name) for r in readings]) for f in fields(Reading)}
    )


_BY_SAMPLE = ("parameter", "input")
_BY_CHANNEL = ("channel_parameter", "channel_input", "peak")
_WORST = ("worst_parameter", "worst_input")
_NUMBERS = (
    *("zeros", "power", "parameter_signal", "parameter_count", "input_signal", "outer_signal"),
    *("weight_count", "mean_peak_grad"),
)


def mean_in_sum(readings: list[Reading], worst: bool) -> Reading:
    """The mean, with sums in place of what there is of each sample, and no focus; the worst case is
    the last one's, unless it is asked for.

    A hundred layers have thousands of small tensors: numbers are averaged as numbers.
    """
    last = readings[-1]
    same = [r for r in readings if r.parameter.shape == last.parameter.shape]
    found = np.mean([list(r.numbers.values()) for r in same], axis=0)
    if len(same) < len(readings):
        found[: len(_NUMBERS)] = np.mean(
            [list(r.numbers.values())[: len(_NUMBERS)] for r in readings], axis=0
        )
    parts = torch.from_numpy(found).unbind(0)
    values = dict(zip(_NUMBERS, parts, strict=False))
    sums = {n: part.view(1) for n, part in zip(_BY_SAMPLE, parts[len(_NUMBERS) :], strict=True)}
    names = (*_BY_CHANNEL, *_WORST) if worst else _BY_CHANNEL
    channels = {n: _channel_mean([getattr(r, n) for r in readings]) for n in names}
    rest = {n: getattr(last, n) for n in _WORST if n not in names}
    return Reading(**values, **sums, **channels, **rest)


def _channel_mean(tensors: list[Tensor]) -> Tensor:
    """`_mean`, with fewer calls."""
    arrays = [t.numpy() for t in tensors]
    same = [a for a in arrays if a.shape == arrays[-1].shape]
    return torch.from_numpy(np.add.reduce(same) / len(same))


class Sums:
    """Σ w over the non-zero elements, by sample and by channel, and over the zeros."""

    def __init__(self, samples: int, channels: int):
        self.sample = torch.zeros(samples, dtype=torch.float64)
        self.channel = torch.zeros(channels, dtype=torch.float64)
        self.zeros = 0.0
        self.ranged = torch.zeros(samples, dtype=torch.float64)  #: Σ w·range² of the group

    def add(
        self, first: int, w: Tensor, there: Tensor, channel: int, ranges: Tensor | None
    ) -> None:
        """Samples from `first` on; `there` is 1 where the element is not zero."""
        kept = w * there
        if ranges is not None:
            by_range = (kept * ranges).flatten(1).sum(1).double()
            self.ranged[first : first + by_range.numel()] += by_range.cpu()
        rest = list(range(1, kept.dim()))
        sums = (kept.sum(rest) if rest else kept).double()
        self.sample[first : first + sums.numel()] += sums.cpu()
        others = [d for d in range(kept.dim()) if d != channel % kept.dim()]
        self.channel += (kept.sum(others) if others else kept).double().cpu()
        whole = float(w.double().sum()) * (kept.numel() / max(1, w.numel()))
        self.zeros += max(0.0, whole - float(sums.sum()))


@dataclass(frozen=True)
class Groups:
    """How a code cuts a tensor: into groups of `size`, that end with a sample or run on."""

    size: int
    by_sample: bool


#: The weights of some samples, from the first to the last (not included).
InParts = Callable[[int, int], ErrorWeights]


def reading(
    b: Backward, w: ErrorWeights | InParts, x: Tensor, groups: Groups | None = None
) -> Reading:
    """What backward `b` says of the stored tensor x; w has been brought to x's shape, or is made
    some samples at a time: it is as large as x."""
    x = x.unsqueeze(0) if x.dim() == 0 else x
    channel = channel_dim(b.op, x.dim())
    samples, channels = x.shape[0], x.shape[channel]
    own, travels = Sums(samples, channels), Sums(samples, channels)
    peak, power = torch.zeros(channels, dtype=torch.float64), 0.0
    mean_range = torch.zeros(samples, dtype=torch.float64)
    step = max(1, chunk(x.numel()) * samples // max(1, x.numel()))
    worst: list[Tensor | None] = [None, None]
    others = [d for d in range(x.dim()) if d != channel % x.dim()]
    for first in range(0, samples, step):
        part = x[first : first + step].detach()
        there = part.sign().abs_().to(wide(part))  # 0 or 1; a comparison takes ten times as long
        ranges = None if groups is None or part.dim() < 2 else _ranges(part, groups, first)
        if ranges is not None:
            count = there.flatten(1).sum(1).clamp(min=1)
            mean_range[first : first + step] = ((ranges * there).flatten(1).sum(1) / count).cpu()
        if isinstance(w, ErrorWeights):
            weights = tuple(part_of(t, x, first, first + step) for t in (w.parameter, w.input))
        else:
            some = w(first, first + part.shape[0])
            weights, found = (some.parameter, some.input), (some.worst_parameter, some.worst_input)
            worst = [_added(a, b) for a, b in zip(worst, found, strict=True)]
            del some
        for sums, weight in zip((own, travels), weights, strict=True):
            if weight is not None:
                sums.add(first, weight, there, channel, ranges)
        del weights, weight, there, ranges
        largest = part.abs().amax(others) if others else part.abs()
        peak = torch.maximum(peak, largest.double().cpu())
        power += energy_of(part)
    if isinstance(w, ErrorWeights):
        worst = [w.worst_parameter, w.worst_input]
    total = own.sample.sum() + travels.sample.sum()
    zeros = own.zeros + travels.zeros
    return Reading(
        parameter=own.sample,
        input=travels.sample,
        channel_parameter=own.channel,
        channel_input=travels.channel,
        worst_parameter=_worst(worst[0], own, x, channels),
        worst_input=_worst(worst[1], travels, x, channels),
        peak=peak,
        zeros=torch.tensor(zeros / max(float(total) + zeros, 1e-300), dtype=torch.float64),
        power=torch.tensor(power / max(1, b.x.numel()), dtype=torch.float64),
        parameter_signal=torch.tensor(b.signal(True), dtype=torch.float64),
        parameter_count=torch.tensor(b.count(), dtype=torch.float64),
        weight_count=torch.tensor(b.largest(), dtype=torch.float64),
        mean_peak_grad=b.mean_peak_grad().double().cpu(),
        input_signal=torch.tensor(b.signal(False), dtype=torch.float64),
        outer_signal=torch.tensor(energy_of(b.outer), dtype=torch.float64),
        parameter_focus=_ratio(own.ranged, own.sample * mean_range),
        input_focus=_ratio(travels.ranged, travels.sample * mean_range),
    )


def _ranges(x: Tensor, groups: Groups, first: int) -> Tensor:
    """For each element of the samples from `first` on the squared range of its group."""
    order = [0, *sorted(range(1, x.dim()), key=x.stride, reverse=True)]
    rows = x.permute(order).float()
    flat = rows.reshape(rows.shape[0] if groups.by_sample else 1, -1)
    # groups that run on: the first one began with samples before these
    start = 0 if groups.by_sample else min(-(first * rows[0].numel()) % groups.size, flat.shape[1])
    whole = start + (flat.shape[1] - start) // groups.size * groups.size
    found = torch.empty_like(flat)
    for i, j in ((0, start), (start, whole), (whole, flat.shape[1])):
        if i < j:
            parts = flat[:, i:j].unflatten(1, (-1, min(groups.size, j - i)))
            low, high = parts.amin(-1, keepdim=True), parts.amax(-1, keepdim=True)
            squares = (high - low).square().nan_to_num(0.0, 0.0, 0.0)  # such a group is kept raw
            found[:, i:j].unflatten(1, parts.shape[1:]).copy_(squares.expand_as(parts))
    back = [order.index(d) for d in range(x.dim())]
    return found.view(rows.shape).permute(back)


def _added(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b.detach().double().cpu()


def part_of(weight: Tensor | None, x: Tensor, first: int, last: int) -> Tensor | None:
    """The weights of some samples; one row of weights may stand for all of them."""
    if weight is None:
        return None
    while weight.dim() < x.dim():
        weight = weight.unsqueeze(0)
    return weight[first:last] if weight.shape[0] > 1 else weight


def _worst(bound: Tensor | None, sums: Sums, x: Tensor, channels: int) -> Tensor:
    """Per channel; the bound that holds for every linear map where the op has none of its own."""
    if bound is None:  # a code may or may not keep the zeros
        return (sums.channel + sums.zeros / max(1, channels)) * x.numel()
    bound = bound.detach().double().cpu()
    return (
        bound.clone()
        if bound.numel() == channels
        else (bound.sum() / max(1, channels)).expand(channels).clone()
    )
