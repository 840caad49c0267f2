"""The part of BatchNorm's travelling noise that all positions share, and what it does below.

BatchNorm gives gX = γ·r·(gZ − mean gZ − x̃·gγ/M). The noise of gγ = Σ gZ·x̃ is one number per
channel, and it reaches all M positions of the channel as x̃·Δgγ/M. White noise of that size would
hardly show; this adds up, because the op that made x (with the gradient gW = Σ gX·patch) sums it
with what made x̃:

    ΔgW_k = −γ_k·r_k·Δgγ_k·cov(x̃_k, patch),   E(Δgγ_k)² = s_k²·r_k²·‖gZ_k‖².

Measured on a ResNet-8 this is up to as much as gW's own error, 1000 times what white noise does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import grad

from actzip.control.backward import Backward, chunks
from actzip.control.op import Kind

_SAMPLE = 1 << 18  #: elements of x̃ that a covariance is taken from: a look must not cost memory

_CONV_WEIGHT: dict[int, Callable[..., Tensor]] = {
    1: grad.conv1d_weight,
    2: grad.conv2d_weight,
    3: grad.conv3d_weight,
}


#: Numbers for the elements of some samples, from the first to the last (not included).
Uneven = Callable[[int, int], Tensor]


@dataclass(frozen=True)
class Trail:
    """What a BatchNorm leaves for the op that made its input."""

    normal: Tensor  #: x̃ of the first samples
    weight: Tensor  #: of each channel: E‖ΔgX's common part‖²·M = s²·weight


def trail(b: Backward, uneven: Uneven | None = None) -> Trail | None:
    """From the backward of a BatchNorm in training; None of any other op.

    `uneven`: the error variance of the elements of some samples in parts of s², if they differ.
    """
    if b.op.kind is not Kind.BATCH_NORM or not b.gives(0):
        return None
    if not b.saved.get("training", True):
        return None
    around = [1, -1] + [1] * (b.x.dim() - 2)
    mean, r = (b.saved[name].float() for name in ("result1", "result2"))
    samples = max(1, _SAMPLE * b.x.shape[0] // max(1, b.x.numel()))
    normal = (b.x[:samples].float() - mean.view(around)) * r.view(around)
    rest = [d for d in range(b.x.dim()) if d != 1]
    energy = torch.zeros_like(r)
    for i, j in chunks(b.x.shape[0], b.x.numel()):
        squares = b.outer[i:j].to(r.dtype).square()
        energy += (squares if uneven is None else squares * uneven(i, j)).sum(rest)
    gamma = b.saved.get("weight")
    scale = r * r if gamma is None else r * r * gamma.float()
    return Trail(normal, scale.square() * energy)


def trail_weights(b: Backward, left: Trail) -> Tensor | None:
    """h of each channel: E‖ΔgW‖² = Σ s_k²·h_k at the op that made the BatchNorm's input.

    None where its gradient is not that of a convolution's or matmul's parameter.
    """
    normal = left.normal
    count = normal.numel() // normal.shape[1]
    # nodes of single backends do not say which way they go: of these, nothing is told
    forward = b.op.kind is Kind.CONVOLUTION and not b.saved.get("transposed", True)
    if b.op.kind is Kind.DENSE and b.slot != "mat2":
        part = b.x.flatten(0, -2)[: normal.shape[0]].float()
        summed = normal.t() @ part if normal.dim() == 2 else None
    elif forward:
        options = (tuple(b.saved[name]) for name in ("stride", "padding", "dilation"))
        shape = tuple(b.saved["weight"].shape)
        part = b.x[: normal.shape[0]].float()
        summed = _CONV_WEIGHT[part.dim() - 2](
            part, shape, normal, *options, groups=int(b.saved["groups"])
        )
    else:
        return None
    if summed is None or not b.signal(True) > 0:
        return None
    covariance = summed.flatten(1) / count
    # chance: count independent positions show so much where there is no covariance at all
    chance = covariance.shape[1] * float(part.square().mean()) / count
    squares = (covariance.square().sum(1) - chance).clamp(min=0)
    return (squares * left.weight).double().cpu()
