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

from actzip.control import curves
from actzip.control.backward import Backward, Formula, Weights


def weights(b: Backward) -> Weights | None:
    """How an error in x shows in the op's gradients; None when there is no formula for it."""
    formula = FORMULAS.get(b.node, {}).get(b.slot)
    return None if formula is None else formula(b)


def _rows(t: Tensor, dim: int) -> Tensor:
    """Squared norms along one dimension, which stays with size 1; makes no copy of t."""
    norms: Tensor = torch.linalg.vector_norm(t, dim=dim, keepdim=True, dtype=torch.float32)
    return norms.square()


def _for(b: Backward, target: int, w: Tensor, worst: Tensor) -> Weights:
    """w where the gradient of input number `target` is: at a parameter, or travelling on."""
    if target >= len(b.gave) or b.gave[target] is None:
        return Weights()
    if b.leaves[target]:
        return Weights(parameter=w, worst_parameter=worst)
    return Weights(input=w, worst_input=worst)


# -- convolution and matmul: gW = Σ gY·x, linear in x ---------------------------------------


def _convolution(b: Backward) -> Weights:
    """gW sums gY·x over all positions, so w at a position is the ‖gY‖² of the outputs it feeds.

    Summed over x: C·R·S·‖gY‖², borders aside (padding is read without an error).
    Worst case (Cauchy–Schwarz): max|e|²·N·H·W·u·‖gY‖² a channel, u = R·S / strides.
    """
    groups, stride = int(b.saved["groups"]), tuple(b.saved["stride"])
    kernel = tuple(b.saved["weight"].shape[2:])
    gy = b.outer
    energy = torch.cat([_rows(part, 1) for part in gy.chunk(groups, 1)], 1)
    ones = torch.ones(groups, 1, *kernel)
    options = stride, tuple(b.saved["padding"]), tuple(b.saved["dilation"]), groups
    if b.saved["transposed"]:
        w = _CONV[len(kernel)](energy, ones, None, *options)
    else:
        size = (b.x.shape[0], groups, *b.x.shape[2:])
        w = _CONV_INPUT[len(kernel)](size, ones, energy, *options)
    if groups > 1:
        w = w.repeat_interleave(b.x.shape[1] // groups, 1)
    u = math.prod(kernel) / math.prod(stride)
    if b.saved["transposed"]:
        u = math.prod(kernel)
    per_channel = b.x.numel() / b.x.shape[1] * u
    worst = energy.sum((0, *range(2, energy.dim()))) * per_channel
    worst = worst.repeat_interleave(b.x.shape[1] // groups)
    return _for(b, 1, w, worst)


_CONV: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CONV_INPUT: dict[int, Callable[..., Tensor]] = {
    1: grad.conv1d_input,
    2: grad.conv2d_input,
    3: grad.conv3d_input,
}


def _left(target: int) -> Formula:
    """The left operand (…, rows, C) of a product: gB = xᵀ·gY, so w of a row is its ‖gY‖²."""

    def formula(b: Backward) -> Weights:
        energy = _rows(b.outer, -1)
        worst = energy.sum() * (b.x.numel() / b.x.shape[-1])
        return _for(b, target, energy, worst.expand(b.x.shape[-1]))

    return formula


def _right(target: int) -> Formula:
    """The right operand (…, C, columns): gA = gY·xᵀ, so w of a column is its ‖gY‖²."""

    def formula(b: Backward) -> Weights:
        energy = _rows(b.outer, -2)
        worst = energy.sum() * (b.x.numel() / b.x.shape[-1])
        return _for(b, target, energy, worst.expand(b.x.shape[-1]))

    return formula


# -- norms -----------------------------------------------------------------------------------


def _batch_norm(b: Backward) -> Weights:
    """gγ = Σ gZ·x̃ and gX = γ·r·(gZ − mean gZ − x̃·gγ/M), x̃ normalised, r = 1/std, M = N·H·W:

        E(Δgγ)² = s²·r²·‖gZ‖²,   E‖ΔgX‖² = s²·(γ·r²)²·(gγ² + ‖gZ‖² + 2·gγ²/M)/M,

    both per channel. With frozen statistics gX does not depend on x.
    """
    x, gz = b.x, b.outer
    around = [1, -1] + [1] * (x.dim() - 2)
    m = x.numel() / x.shape[1]
    # mean of gZ² over each map: samples with large gradients are told from those with small ones
    squares = gz.flatten(2) if gz.dim() > 2 else gz.unsqueeze(-1)
    maps = (_rows(squares, -1) / squares.shape[-1]).view(*gz.shape[:2], *[1] * (gz.dim() - 2))
    energy = maps.sum(0).flatten() * (m / x.shape[0])
    training = bool(b.saved.get("training", True))
    r = b.saved["result2"] if training else None
    if r is None:
        r = (b.saved["running_var"] + b.saved["eps"]).rsqrt()
    r = r.float()
    own = Weights()
    if _has(b, 1):
        own = Weights(parameter=r.view(around) ** 2 * maps, worst_parameter=r**2 * m * energy)
    if not training:
        return own
    gamma = b.saved.get("weight")
    scale = (r * r if gamma is None else gamma.float() * r * r) ** 2
    g_gamma = _scale_gradient(b, r)
    fixed = (g_gamma**2 + 2 * g_gamma**2 / m) / m**2
    travels = scale.view(around) * (fixed.view(around) + maps / m)
    worst_input = scale * (g_gamma.abs() / math.sqrt(m) + energy.sqrt()) ** 2
    return replace(own, input=travels, worst_input=worst_input)


def _scale_gradient(b: Backward, r: Tensor) -> Tensor:
    """gγ = Σ gZ·x̃: given by the op, or made here when the norm has no scale."""
    given = b.gave[1] if len(b.gave) > 1 else None
    if given is not None:
        return given.float()
    around = [1, -1] + [1] * (b.x.dim() - 2)
    rest = [d for d in range(b.x.dim()) if d != 1]
    mean = b.saved["result1"].float().view(around)
    total: Tensor = ((b.x.float() - mean) * b.outer).sum(rest)
    return total * r


def _has(b: Backward, target: int) -> bool:
    return target < len(b.gave) and b.gave[target] is not None


def _row_norm(x: Tensor, h: Tensor, gz: Tensor, mean: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (rows, M) normalised by themselves: w for gγ, and for gX = r·(h − mean h − x̃·mean(h·x̃)).

    ΔgX = −r²·(e·m + x̃·Σ h·e/M) with m = mean(h·x̃):  w = r⁴·(m² + h²/M + 2·m·x̃·h/M).
    """
    size = x.shape[-1]
    normal = (x - mean) * r
    m = (h * normal).mean(-1, keepdim=True)
    travels = r**4 * (m**2 + h**2 / size + 2 * m * normal * h / size)
    return r**2 * gz**2, travels


def _layer_norm(b: Backward) -> Weights:
    """Each row of M elements by itself; h = γ·gZ."""
    size = math.prod(b.saved["normalized_shape"])
    x, gz = b.x.float().reshape(-1, size), b.outer.float().reshape(-1, size)
    gamma = b.saved.get("weight")
    h = gz if gamma is None else gz * gamma.float().reshape(-1)
    mean, r = (b.saved[name].float().reshape(-1, 1) for name in ("result1", "result2"))
    parameter, travels = _row_norm(x, h, gz, mean, r)
    return _norm_weights(b, parameter, travels, h, r)


def _group_norm(b: Backward) -> Weights:
    """Each group of channels of each sample by itself; h = γ·gZ."""
    groups = int(b.saved["group"])
    gamma = b.saved.get("weight")
    gz = b.outer.float()
    h = gz if gamma is None else gz * gamma.float().view([1, -1] + [1] * (gz.dim() - 2))
    rows = b.x.shape[0] * groups
    mean, r = (b.saved[name].float().reshape(-1, 1) for name in ("result1", "result2"))
    x, h, gz = b.x.float().reshape(rows, -1), h.reshape(rows, -1), gz.reshape(rows, -1)
    parameter, travels = _row_norm(x, h, gz, mean, r)
    return _norm_weights(b, parameter, travels, h, r)


def _norm_weights(b: Backward, parameter: Tensor, travels: Tensor, h: Tensor, r: Tensor) -> Weights:
    """Worst case of gX: ‖ΔgX‖ <= r²·(√M·|m| + ‖h‖)·max|e| in each row, and |m|·√M <= ‖h‖."""
    rows = (r**4).squeeze(-1) * 4 * h.square().sum(-1)
    own = parameter.view(b.x.shape) if _has(b, 1) else None
    return Weights(
        parameter=own,
        input=travels.view(b.x.shape),
        worst_parameter=parameter.sum() * parameter.shape[0] if _has(b, 1) else None,
        worst_input=rows.sum(),
    )


# -- the table -------------------------------------------------------------------------------

_conv: dict[str, Formula] = {"input": _convolution}
_batch: dict[str, Formula] = {"input": _batch_norm}

FORMULAS: dict[str, dict[str, Formula]] = {
    "ConvolutionBackward0": _conv,
    "ConvolutionBackward1": _conv,
    "AddmmBackward0": {"mat1": _left(2), "mat2": _right(1)},
    "MmBackward0": {"self": _left(1), "mat2": _right(0)},
    "BmmBackward0": {"self": _left(1), "mat2": _right(0)},
    "BaddbmmBackward0": {"batch1": _left(2), "batch2": _right(1)},
    "LinearBackward0": {"input": _left(1)},
    "NativeBatchNormBackward0": _batch,
    "NativeBatchNormLegitBackward0": _batch,
    "CudnnBatchNormBackward0": _batch,
    "NativeLayerNormBackward0": {"input": _layer_norm},
    "NativeGroupNormBackward0": {"input": _group_norm},
    **curves.FORMULAS,
}
