"""Gradient error predicted from codec error, one formula per op.

An error e in a stored tensor x, of zero mean, independent from element to element and with the
variance s²(i) at element i, shows in the gradients that the op gives as

    E‖Δg‖² = Σᵢ s²(i)·w(i).

w is what this file computes, exact for ops that are linear in x (convolution, matmul, and a
norm's scale) and to first order in the error for all others. Dithered codes have such errors:
s² is step²/12, and 0 for zeros that are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import grad

from actzip.control.backward import Backward, ErrorWeights, by_sample, chunks, wide


def error_weights(b: Backward) -> ErrorWeights | None:
    """How an error in x shows in the op's gradients; None when there is no formula for it."""
    formula = b.op.errors.get(b.slot)
    w = None if formula is None else formula(b)
    return w if w is None or w.input is None or b.passes_on() else _all_at_leaves(w)


def _all_at_leaves(w: ErrorWeights) -> ErrorWeights:
    """Nothing travels on: what the op gives is the gradient of leaves, `parameter.exp()` say."""
    if w.parameter is None:
        return ErrorWeights(parameter=w.input, worst_parameter=w.worst_input)
    assert w.input is not None
    worst = None
    if w.worst_parameter is not None and w.worst_input is not None:
        worst = w.worst_parameter + w.worst_input
    return ErrorWeights(parameter=w.parameter + w.input, worst_parameter=worst)


def _rows(t: Tensor, dim: int | list[int]) -> Tensor:
    """Squared norms along some dimensions, which stay with size 1."""
    # a hundred times as fast as torch.linalg.vector_norm along a dimension that is not the last
    parts = (t[i:j].to(wide(t)).square() for i, j in chunks(t.shape[0], t.numel()))
    sums = [part.sum(dim, keepdim=True) for part in parts]
    return torch.cat(sums) if sums else t.sum(dim, keepdim=True).to(wide(t))


def _for(b: Backward, target: int, w: Tensor, worst: Tensor) -> ErrorWeights:
    """w where the gradient of input number `target` is: at a parameter, or travelling on."""
    if not b.gives(target):
        return ErrorWeights()
    if b.leaves[target]:
        return ErrorWeights(parameter=w, worst_parameter=worst)
    return ErrorWeights(input=w, worst_input=worst)


# -- convolution and matmul: gW = Σ gY·x, linear in x ---------------------------------------


def convolution(b: Backward, transposed: bool = False) -> ErrorWeights:
    """gW sums gY·x over all positions, so w at a position is the ‖gY‖² of the outputs it feeds.

    Summed over x: C·R·S·‖gY‖², borders aside (padding is read without an error).
    Worst case (Cauchy–Schwarz): max|e|²·N·R·S·P·‖gY‖² a channel, P the positions that one place
    of the window reads, H·W/strides rounded up.
    """
    weight, stride = b.saved["weight"], tuple(b.saved["stride"])
    kernel, size = tuple(weight.shape[2:]), tuple(b.x.shape[2:])
    transposed = bool(b.saved.get("transposed", transposed))
    # nodes of single backends leave out what they have no choice of
    groups = (b.outer if transposed else b.x).shape[1] // weight.shape[1]
    dilation = tuple(b.saved.get("dilation", (1,) * len(kernel)))
    energy = torch.cat([_rows(part, 1) for part in b.outer.chunk(groups, 1)], 1)
    ones = energy.new_ones(groups, 1, *kernel)
    options = stride, tuple(b.saved["padding"]), dilation, groups
    if transposed:
        w = _CONV[len(kernel)](energy, ones, None, *options)
        for dim, n in enumerate(size, 2):  # output_padding may add a position
            w = w.narrow(dim, 0, n)
        positions = math.prod(size)
    else:
        back = _CONV_INPUT[len(kernel)]
        # a few samples at a time: oneDNN pads a single channel to sixteen
        pieces = chunks(b.x.shape[0], 32 * b.x.shape[0] * groups * math.prod(size))
        w = torch.cat(
            [back((j - i, groups, *size), ones, energy[i:j], *options) for i, j in pieces]
        )
        positions = math.prod(-(-n // step) for n, step in zip(size, stride, strict=True))
    each = b.x.shape[1] // groups
    if groups > 1:
        w = w.repeat_interleave(each, 1)
    worst = energy.sum((0, *range(2, energy.dim())))
    worst = worst.repeat_interleave(each) * (b.x.shape[0] * positions * math.prod(kernel))
    return _for(b, 1, w, worst)


def transposed_convolution(b: Backward) -> ErrorWeights:
    """Of a node that is nothing else, and does not say so."""
    return convolution(b, transposed=True)


_CONV: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CONV_INPUT: dict[int, Callable[..., Tensor]] = {
    1: grad.conv1d_input,
    2: grad.conv2d_input,
    3: grad.conv3d_input,
}


def left(b: Backward) -> ErrorWeights:
    """The left operand (…, rows, C) of a product: gB = xᵀ·gY, so w of a row is its ‖gY‖²."""
    return _operand(b, _rows(b.outer, -1), 0)


def right(b: Backward) -> ErrorWeights:
    """The right operand (…, C, columns): gA = gY·xᵀ, so w of a column is its ‖gY‖²."""
    return _operand(b, _rows(b.outer, -2), 1)


def _operand(b: Backward, energy: Tensor, place: int) -> ErrorWeights:
    """Errors in an operand show in the gradient of the other one."""
    assert b.op.weight is not None, f"{b.node} is a product: its row says where its weight is"
    worst = energy.sum() * (b.x.numel() / b.x.shape[-1])
    return _for(b, b.op.weight - place, energy, worst.expand(b.x.shape[-1]))


# -- norms -----------------------------------------------------------------------------------


def batch_norm(b: Backward) -> ErrorWeights:
    """gγ = Σ gZ·x̃ and gX = γ·r·(gZ − mean gZ − x̃·gγ/M), x̃ normalised, r = 1/std, M = N·H·W:

        E(Δgγ)² = s²·r²·‖gZ‖²,   E‖ΔgX‖² = s²·(γ·r²)²·(gγ² + ‖gZ‖² + 2·gγ²/M)/M,

    both per channel. With frozen statistics gX does not depend on x.
    """
    x, gz = b.x, b.outer
    around = [1, -1] + [1] * (x.dim() - 2)
    m = x.numel() / x.shape[1]
    # mean of gZ² over each map: samples with large gradients are told from those with small ones
    places = list(range(2, gz.dim()))  # not flattened: that would copy a channels_last gradient
    maps = _rows(gz, places) / math.prod(gz.shape[2:]) if places else gz.to(wide(gz)).square()
    energy = maps.sum(0).flatten() * (m / x.shape[0])
    training = bool(b.saved.get("training", True))
    r = b.saved["result2"] if training else None
    if r is None:
        eps = b.saved["eps"] if "eps" in b.saved else b.saved["epsilon"]  # as cuDNN calls it
        r = (b.saved["running_var"] + eps).rsqrt()
    r = r.to(maps.dtype)
    own = ErrorWeights()
    if b.gives(1):
        own = ErrorWeights(parameter=r.view(around) ** 2 * maps, worst_parameter=r**2 * m * energy)
    if not training or not b.gives(0):
        return own
    gamma = b.saved.get("weight")
    scale = (r * r if gamma is None else gamma.to(r.dtype) * r * r) ** 2
    g_gamma = _scale_gradient(b, r)
    fixed = (g_gamma**2 + 2 * g_gamma**2 / m) / m**2
    travels = scale.view(around) * (fixed.view(around) + maps / m)
    worst_input = scale * (g_gamma.abs() / math.sqrt(m) + energy.sqrt()) ** 2
    return replace(own, input=travels, worst_input=worst_input)


def _scale_gradient(b: Backward, r: Tensor) -> Tensor:
    """gγ = Σ gZ·x̃: given by the op, or made here when the norm has no scale."""
    given = b.gave[1] if b.gives(1) else None
    if given is not None:
        return given.to(r.dtype)
    around = [1, -1] + [1] * (b.x.dim() - 2)
    rest = [d for d in range(b.x.dim()) if d != 1]
    mean = b.saved["result1"].to(r.dtype).view(around)
    total = torch.zeros_like(r)
    for first, last in chunks(b.x.shape[0], b.x.numel()):
        total += ((b.x[first:last] - mean) * b.outer[first:last]).sum(rest)
    return total * r


@by_sample("result1", "result2")
def layer_norm(b: Backward) -> ErrorWeights:
    """Each row of M elements by itself."""
    gamma, shape = b.saved.get("weight"), tuple(b.saved["normalized_shape"])
    x, gz = (t.reshape(-1, *shape) for t in (b.x, b.outer))
    return _row_norm(b, x, gz, None if gamma is None else gamma.reshape(1, -1), groups=1)


@by_sample("result1", "result2")
def group_norm(b: Backward) -> ErrorWeights:
    """Each group of channels of each sample by itself."""
    groups, gamma = int(b.saved["group"]), b.saved.get("weight")
    if gamma is not None:
        size = math.prod(b.x.shape[2:])
        gamma = gamma.view(groups, -1, 1).expand(-1, -1, size).reshape(groups, -1)
    return _row_norm(b, b.x, b.outer, gamma, groups)


def _row_norm(
    b: Backward, x: Tensor, gz: Tensor, gamma: Tensor | None, groups: int
) -> ErrorWeights:
    """gγ = Σ gZ·x̃ and gX = r·(h − mean h − x̃·m), h = γ·gZ, m = mean(h·x̃), over M elements.

    An error gives ΔgX = −r²·(e·m + x̃·Σ h·e/M), so that w = r⁴·(m² + h²/M + 2·m·x̃·h/M), and
    w = r²·gZ² for gγ. Worst case: ‖ΔgX‖ <= r²·(√M·|m| + ‖h‖)·max|e|, and |m|·√M <= ‖h‖.
    """
    dtype, rows = wide(x), x.shape[0]
    mean, r = (b.saved[name].to(dtype).view(rows, groups, 1) for name in ("result1", "result2"))
    size = x.numel() // max(1, r.numel())
    own, travels = (torch.empty(rows, groups, size, dtype=dtype, device=x.device) for _ in "xγ")
    worst = torch.zeros((), dtype=dtype, device=x.device)
    for i, j in chunks(rows, x.numel()):
        normal = (x[i:j].to(dtype).reshape(-1, groups, size) - mean[i:j]) * r[i:j]
        g = gz[i:j].to(dtype).reshape(-1, groups, size)
        own[i:j] = (r[i:j] * g).square()
        h = g if gamma is None else g * gamma.to(dtype)
        m = (h * normal).mean(-1, keepdim=True)
        travels[i:j] = r[i:j] ** 4 * (m**2 + h**2 / size + 2 * m * normal * h / size)
        worst += 4 * (r[i:j] ** 4 * h.square()).sum()
    has_scale = b.gives(1)
    return ErrorWeights(
        parameter=own.view(b.x.shape) if has_scale else None,
        input=travels.view(b.x.shape) if b.gives(0) else None,
        worst_parameter=own.sum() * (rows * b.times) if has_scale else None,
        worst_input=worst if b.gives(0) else None,
    )
