"""Curved ops: how an error in what they store bends their gradients, to first order.

The op's backward is written as a function g(x) of what is stored. E‖Δg‖² = Σ s²(i)·w(i) with
w(i) = Σⱼ (∂gⱼ/∂xᵢ)², which is the mean of (Jᵀr)ᵢ² over random signs r: one product with the
transposed Jacobian gives it, exactly for an elementwise op, and for others with a spread that
vanishes in the sums over samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from actzip.control.backward import Backward, Formula, Weights

_PROBES = 2  #: random sign vectors, for ops that mix elements


def _signs(like: Tensor, generator: torch.Generator) -> Tensor:
    """±1 from a stream of our own: the user's is never moved."""
    bits = torch.randint(0, 2, like.shape, generator=generator, dtype=torch.int8)
    return bits.to(like.device, like.dtype).mul_(2).sub_(1)


def _probe(x: Tensor, gradients: Callable[[Tensor], Tensor], probes: int) -> Tensor:
    """w of every element of x for a backward written as a function of x."""
    generator = torch.Generator().manual_seed(x.numel())
    with torch.enable_grad():
        at = x.detach().float().requires_grad_()
        g = gradients(at)
        total = torch.zeros_like(at)
        for i in range(probes):
            (back,) = torch.autograd.grad(
                g, at, _signs(g, generator), retain_graph=i + 1 < probes, materialize_grads=True
            )
            total += back.square()
    return total / probes


def _elementwise(f: Callable[[Tensor, Backward], Tensor]) -> Formula:
    """y = f(x) saved as x: gX = f′(x)·gY, w = f″(x)²·gY²; worst case: the sum of w."""

    def formula(b: Backward) -> Weights:
        def gradient(x: Tensor) -> Tensor:
            y = f(x, b)
            (g,) = torch.autograd.grad(y, x, b.outer.float(), create_graph=True)
            return g

        return _diagonal(b, _probe(b.x, gradient, 1))

    return formula


def _of_result(slope: Callable[[Tensor, Backward], Tensor]) -> Formula:
    """y = f(x) saved as y: gX = slope(y)·gY."""

    def formula(b: Backward) -> Weights:
        return _diagonal(b, _probe(b.x, lambda y: slope(y, b) * b.outer.float(), 1))

    return formula


def _diagonal(b: Backward, w: Tensor) -> Weights:
    channel = 1 if w.dim() > 3 else w.dim() - 1
    rest = [d for d in range(w.dim()) if d != channel]
    return Weights(input=w, worst_input=w.sum(rest) if rest else w)


def _factor(target: int) -> Formula:
    """A product's factor enters the other one's gradient: g = x·gY, w = gY²."""

    def formula(b: Backward) -> Weights:
        if target >= len(b.gave) or b.gave[target] is None:
            return Weights()
        w = b.outer.float().square().sum_to_size(b.x.shape)
        return Weights(parameter=w) if b.leaves[target] else Weights(input=w)

    return formula


def _softmax(b: Backward) -> Weights:
    dim = _signed(b.saved["dim"])

    def gradient(y: Tensor) -> Tensor:
        g = b.outer.float()
        return y * (g - (g * y).sum(dim, keepdim=True))

    return Weights(input=_probe(b.x, gradient, _PROBES))


def _log_softmax(b: Backward) -> Weights:
    dim = _signed(b.saved["dim"])

    def gradient(y: Tensor) -> Tensor:
        g = b.outer.float()
        return g - y.exp() * g.sum(dim, keepdim=True)

    return Weights(input=_probe(b.x, gradient, _PROBES))


def _signed(dim: int) -> int:
    """Nodes give a negative dimension as an unsigned 64-bit number."""
    return dim - 2**64 if dim >= 2**63 else dim


def _rms_norm(b: Backward) -> Weights:
    """gX = r·(h − x̃·mean(h·x̃)), h = γ·gZ, over rows of M elements, r kept exactly."""
    size = math.prod(b.saved["normalized_shape"])
    r = b.saved["result1"].float().reshape(-1, 1)
    gz = b.outer.float().reshape(-1, size)
    gamma = b.saved.get("weight")
    h = gz if gamma is None else gz * gamma.float().reshape(-1)

    def gradient(x: Tensor) -> Tensor:
        normal = x.reshape(-1, size) * r
        g: Tensor = r * (h - normal * (h * normal).mean(-1, keepdim=True))
        return g

    travels = _probe(b.x, gradient, _PROBES)
    own = (r * gz).square().view(b.x.shape) if len(b.gave) > 1 and b.gave[1] is not None else None
    return Weights(parameter=own, input=travels)


def _attention(slot: str) -> Formula:
    """S = c·Q·Kᵀ, P = exp(S − lse) with the exact lse, D = rowsum(gO∘O):

        gV = Pᵀ·gO,   gS = P∘(gO·Vᵀ − D),   gQ = c·gS·K,   gK = c·gSᵀ·Q.

    All four operands are stored with errors of their own; this is the effect of one of them.
    """

    def formula(b: Backward) -> Weights:
        names = ("query", "key", "value", "output")
        given = {n: b.saved[n].float() for n in names if n != slot}
        lse, scale = b.saved["logsumexp"].float(), b.saved.get("scale")
        mask, causal = b.saved.get("attn_mask"), bool(b.saved["is_causal"])
        g = b.outer.float()

        def gradients(x: Tensor) -> Tensor:
            q, k, v, o = ({**given, slot: x}[n] for n in names)
            c = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
            s = c * q @ k.transpose(-1, -2)
            if mask is not None:
                s = s + mask
            if causal:
                s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
            p = (s - lse.view(s.shape[:-1]).unsqueeze(-1)).exp()
            gs = p * (g @ v.transpose(-1, -2) - (g * o).sum(-1, keepdim=True))
            parts = c * gs @ k, c * gs.transpose(-1, -2) @ q, p.transpose(-1, -2) @ g
            return torch.cat([part.flatten() for part in parts])

        return Weights(input=_probe(b.x, gradients, _PROBES))

    return formula


def _gelu(x: Tensor, b: Backward) -> Tensor:
    return F.gelu(x, approximate=b.saved["approximate"])


def _softplus(x: Tensor, b: Backward) -> Tensor:
    return F.softplus(x, float(b.saved["beta"]), float(b.saved["threshold"]))


_sdpa = {slot: _attention(slot) for slot in ("query", "key", "value", "output")}

FORMULAS: dict[str, dict[str, Formula]] = {
    "GeluBackward0": {"self": _elementwise(_gelu)},
    "SiluBackward0": {"self": _elementwise(lambda x, b: F.silu(x))},
    "MishBackward0": {"self": _elementwise(lambda x, b: F.mish(x))},
    "HardswishBackward0": {"self": _elementwise(lambda x, b: F.hardswish(x))},
    "SoftplusBackward0": {"self": _elementwise(_softplus)},
    "EluBackward0": {"self": _elementwise(lambda x, b: F.elu(x, float(b.saved["alpha"])))},
    "SinBackward0": {"self": _elementwise(lambda x, b: x.sin())},
    "CosBackward0": {"self": _elementwise(lambda x, b: x.cos())},
    "ErfBackward0": {"self": _elementwise(lambda x, b: x.erf())},
    "AtanBackward0": {"self": _elementwise(lambda x, b: x.atan())},
    "PowBackward0": {"self": _elementwise(lambda x, b: x ** b.saved["exponent"])},
    "SigmoidBackward0": {"result": _of_result(lambda y, b: y * (1 - y))},
    "TanhBackward0": {"result": _of_result(lambda y, b: 1 - y * y)},
    "ExpBackward0": {"result": _of_result(lambda y, b: y)},
    "ReciprocalBackward0": {"result": _of_result(lambda y, b: -y * y)},
    "RsqrtBackward0": {"result": _of_result(lambda y, b: -y * y * y / 2)},
    "MulBackward0": {"self": _factor(1), "other": _factor(0)},
    "SoftmaxBackward0": {"result": _softmax},
    "LogSoftmaxBackward0": {"result": _log_softmax},
    "FusedRmsNormBackward0": {"input": _rms_norm},
    "ScaledDotProductFlashAttentionForCpuBackward0": _sdpa,
}
