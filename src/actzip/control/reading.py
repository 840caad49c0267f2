"""From an op's weights to a reading: sums over samples and channels of the stored tensor."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from actzip.control.backward import Backward, Weights
from actzip.control.statistics import Reading

_CHUNK = 1 << 20  #: elements looked at together: backward is where memory is shortest


def channel_dim(node: str, dims: int) -> int:
    """Where a stored tensor has its channels: dimension 1 of maps, the last of everything else."""
    maps = dims > 3 or node.startswith(("Convolution", "NativeBatchNorm", "NativeGroupNorm"))
    return 1 if maps and dims > 2 else -1


class Sums:
    """Σ w over the non-zero elements, by sample and by channel, and over the zeros."""

    def __init__(self, samples: int, channels: int):
        self.sample = torch.zeros(samples, dtype=torch.float64)
        self.channel = torch.zeros(channels, dtype=torch.float64)
        self.zeros = 0.0

    def add(self, first: int, w: Tensor, there: Tensor, channel: int) -> None:
        """Samples from `first` on; `there` is 1 where the element is not zero."""
        kept = w * there
        rest = list(range(1, kept.dim()))
        sums = kept.sum(rest, dtype=torch.float64) if rest else kept.double()
        self.sample[first : first + sums.numel()] += sums.cpu()
        others = [d for d in range(kept.dim()) if d != channel % kept.dim()]
        self.channel += (
            kept.sum(others, dtype=torch.float64).cpu() if others else kept.double().cpu()
        )
        self.zeros += float(w.expand(kept.shape).sum(dtype=torch.float64)) - float(sums.sum())


def reading(b: Backward, w: Weights, x: Tensor) -> Reading:
    """What backward `b` says of the stored tensor x; w has been brought to x's shape."""
    x = x.unsqueeze(0) if x.dim() == 0 else x
    channel = channel_dim(b.node, x.dim())
    samples, channels = x.shape[0], x.shape[channel]
    own, travels = Sums(samples, channels), Sums(samples, channels)
    peak, power = torch.zeros(channels, dtype=torch.float64), 0.0
    step = max(1, _CHUNK * samples // max(1, x.numel()))
    others = [d for d in range(x.dim()) if d != channel % x.dim()]
    for first in range(0, samples, step):
        part = x[first : first + step].detach()
        there = (part != 0).float()
        for sums, weight in ((own, w.parameter), (travels, w.input)):
            if weight is not None:
                sums.add(first, _part(weight, x, first, step), there, channel)
        largest = part.abs().amax(others) if others else part.abs()
        peak = torch.maximum(peak, largest.double().cpu())
        power += float(part.float().square().sum(dtype=torch.float64))
    total = own.sample.sum() + travels.sample.sum()
    zeros = own.zeros + travels.zeros
    return Reading(
        parameter=own.sample,
        input=travels.sample,
        channel_parameter=own.channel,
        channel_input=travels.channel,
        worst_parameter=_worst(w.worst_parameter, own, x, channels),
        worst_input=_worst(w.worst_input, travels, x, channels),
        peak=peak,
        zeros=torch.tensor(zeros / max(float(total) + zeros, 1e-300), dtype=torch.float64),
        power=torch.tensor(power / max(1, x.numel()), dtype=torch.float64),
        parameter_signal=torch.tensor(b.signal(True), dtype=torch.float64),
        parameter_count=torch.tensor(b.count(), dtype=torch.float64),
        input_signal=torch.tensor(b.signal(False), dtype=torch.float64),
    )


def _part(weight: Tensor, x: Tensor, first: int, step: int) -> Tensor:
    """The weights of some samples; one row of weights may stand for all of them."""
    while weight.dim() < x.dim():
        weight = weight.unsqueeze(0)
    return weight[first : first + step] if weight.shape[0] > 1 else weight


def _worst(bound: Tensor | None, sums: Sums, x: Tensor, channels: int) -> Tensor:
    """Per channel; the bound that holds for every linear map where the op has none of its own."""
    if bound is None:
        return sums.channel * math.ceil(x.numel() / channels) * channels
    bound = bound.detach().double().cpu()
    return (
        bound.clone()
        if bound.numel() == channels
        else (bound.sum() / channels).expand(channels).clone()
    )
