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

from actzip.control.backward import (
    Backward,
    ErrorWeights,
    Formula,
    by_sample,
    chunks,
    wide,
)

#: From some rows of the stored tensor and of the gradient that came to the gradient given.
Gradient = Callable[[Tensor, Tensor], Tensor]


def signs(like: Tensor, generator: torch.Generator) -> Tensor:
    """±1 from a stream of our own: the user's is never moved."""
    bits = torch.randint(0, 2, like.shape, generator=generator, dtype=torch.int8)
    return bits.to(like.device, like.dtype).mul_(2).sub_(1)


def probes(x: Tensor) -> int:
    """How many random sign vectors, for ops that mix elements: few elements even out less."""
    return max(4, min(64, (1 << 20) // max(1, x.numel())))


def probe(
    x: Tensor, gradient: Callable[[Tensor], Tensor], count: int, generator: torch.Generator
) -> Tensor:
    """w of every element of x for a backward written as a function of x."""
    with torch.enable_grad():
        at = x.detach().to(wide(x)).requires_grad_()
        g = gradient(at)
        total = torch.zeros_like(at)
        if not g.requires_grad:  # the gradients that are wanted do not depend on x
            return total
        for i in range(count):
            (back,) = torch.autograd.grad(
                g, at, signs(g, generator), retain_graph=i + 1 < count, materialize_grads=True
            )
            total += back.square()
    return total / count


def _by_rows(b: Backward, gradient: Gradient, count: int) -> Tensor:
    """w for an op that treats each row (the first dimension) by itself, some rows at a time."""
    x, gy = (t if t.dim() else t.view(1) for t in (b.x, b.outer))
    generator = torch.Generator().manual_seed(x.numel())
    w = torch.empty(x.shape, dtype=wide(x), device=x.device)
    for i, j in chunks(x.shape[0], x.numel()):
        g = gy[i:j].to(w.dtype)
        w[i:j] = probe(x[i:j], lambda at, g=g: gradient(at, g), count, generator)  # type: ignore[misc]
    return w


def elementwise(f: Callable[[Tensor, Backward], Tensor]) -> Formula:
    """y = f(x) saved as x: gX = f′(x)·gY, w = f″(x)²·gY²; worst case: the sum of w."""

    @by_sample()
    def formula(b: Backward) -> ErrorWeights:
        def gradient(x: Tensor, gy: Tensor) -> Tensor:
            (g,) = torch.autograd.grad(f(x, b), x, gy, create_graph=True)
            return g

        return _diagonal(b, gradient)

    return formula


def of_result(slope: Callable[[Tensor], Tensor]) -> Formula:
    """y = f(x) saved as y: gX = slope(y)·gY."""

    @by_sample()
    def formula(b: Backward) -> ErrorWeights:
        return _diagonal(b, lambda y, gy: slope(y) * gy)

    return formula


def _diagonal(b: Backward, gradient: Gradient) -> ErrorWeights:
    if not b.gives(0):
        return ErrorWeights()
    w = _by_rows(b, gradient, 1)
    channel = 1 if w.dim() > 3 else w.dim() - 1
    rest = [d for d in range(w.dim()) if d != channel]
    return ErrorWeights(input=w, worst_input=w.sum(rest) if rest else w)


def factor(target: int) -> Formula:
    """A product's factor enters the other one's gradient: g = x·gY, w = gY².

    In x·x one error is in both gradients, and they add up: twice as much of each.
    """

    @by_sample()
    def formula(b: Backward) -> ErrorWeights:
        if not b.gives(target):
            return ErrorWeights()
        w = b.outer.to(wide(b.outer)).square().sum_to_size(b.x.shape)
        if _is_same(b.saved.get("self"), b.saved.get("other")):
            w = 2 * w
        return ErrorWeights(parameter=w) if b.leaves[target] else ErrorWeights(input=w)

    return formula


def _is_same(a: object, b: object) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.shape != b.shape:
        return False
    return a.data_ptr() == b.data_ptr() and a.stride() == b.stride()


def _dim(b: Backward) -> int:
    return _signed(b.saved["dim"]) % b.x.dim()


@by_sample()
def softmax(b: Backward) -> ErrorWeights:
    """gX = y·(gY − s), s = Σ gY·y: w = (gY − s)² − 2·y·gY·(gY − s) + gY²·Σ y²."""
    if not b.gives(0):
        return ErrorWeights()
    dim = _dim(b)

    def weights(y: Tensor, gy: Tensor) -> Tensor:
        left = gy - (gy * y).sum(dim, keepdim=True)
        power = y.square().sum(dim, keepdim=True)
        return left.square() - 2 * y * gy * left + gy.square() * power

    return ErrorWeights(input=_in_parts(b, weights, dim))


@by_sample()
def log_softmax(b: Backward) -> ErrorWeights:
    """gX = gY − exp(y)·Σ gY."""
    if not b.gives(0):
        return ErrorWeights()
    dim = _dim(b)

    def weights(y: Tensor, gy: Tensor) -> Tensor:
        return (y.exp() * gy.sum(dim, keepdim=True)).square()

    return ErrorWeights(input=_in_parts(b, weights, dim))


def _in_parts(b: Backward, weights: Gradient, dim: int) -> Tensor:
    """w of an op that mixes elements along `dim`, some rows at a time."""
    if dim == 0:
        return weights(b.x.to(wide(b.x)), b.outer.to(wide(b.x)))
    w = torch.empty(b.x.shape, dtype=wide(b.x), device=b.x.device)
    for i, j in chunks(b.x.shape[0], b.x.numel()):
        w[i:j] = weights(b.x[i:j].to(w.dtype), b.outer[i:j].to(w.dtype))
    return w


def gate(b: Backward) -> ErrorWeights:
    """A gated linear unit, which mixes both halves along `dim`."""
    if not b.gives(0):
        return ErrorWeights()
    dim = _dim(b)
    if dim == 0:  # rows are what is mixed
        generator = torch.Generator().manual_seed(b.x.numel())
        gy = b.outer.to(wide(b.x))
        return ErrorWeights(input=probe(b.x, lambda x: glu(x, gy, 0), probes(b.x), generator))
    return ErrorWeights(input=_by_rows(b, lambda x, gy: glu(x, gy, dim), probes(b.x)))


def glu(x: Tensor, gy: Tensor, dim: int) -> Tensor:
    (g,) = torch.autograd.grad(F.glu(x, dim), x, gy, create_graph=True)
    return g


def _signed(dim: int) -> int:
    """Nodes give a negative dimension as an unsigned 64-bit number."""
    return dim - 2**64 if dim >= 2**63 else dim


@by_sample("result1")
def rms_norm(b: Backward) -> ErrorWeights:
    """gX = r·(h − x̃·m), h = γ·gZ, m = mean(h·x̃), over rows of M elements, r kept exactly:
    w = r⁴·(m² + 2·m·x̃·h/M + h²·‖x̃‖²/M²), and r²·gZ² for gγ."""
    size, gamma = math.prod(b.saved["normalized_shape"]), b.saved.get("weight")
    dtype = wide(b.x)
    x, gz = (t.reshape(-1, size) for t in (b.x, b.outer))
    r = b.saved["result1"].to(dtype).reshape(-1, 1)
    own, travels = (torch.empty(x.shape, dtype=dtype, device=x.device) for _ in "γx")
    for i, j in chunks(x.shape[0], x.numel()):
        g, scale = gz[i:j].to(dtype), r[i:j]
        own[i:j] = (scale * g).square()
        h = g if gamma is None else g * gamma.to(dtype).reshape(-1)
        normal = x[i:j].to(dtype) * scale
        product = h * normal
        m = product.mean(-1, keepdim=True)
        power = normal.square().sum(-1, keepdim=True) / size**2
        travels[i:j] = scale**4 * (m**2 + (2 / size) * m * product + h.square() * power)
    return ErrorWeights(
        parameter=own.view(b.x.shape) if b.gives(1) else None,
        input=travels.view(b.x.shape) if b.gives(0) else None,
    )


def gelu(x: Tensor, b: Backward) -> Tensor:
    return F.gelu(x, approximate=b.saved["approximate"])


def softplus(x: Tensor, b: Backward) -> Tensor:
    return F.softplus(x, float(b.saved["beta"]), float(b.saved["threshold"]))


def elu(x: Tensor, b: Backward) -> Tensor:
    if any(float(b.saved[name]) != 1 for name in ("alpha", "scale", "input_scale")):
        # SELU: an error near 0 takes the other slope, and no f″ shows that
        raise ValueError("the slope jumps at 0")
    return F.elu(x)


def celu(x: Tensor, b: Backward) -> Tensor:
    return F.celu(x, float(b.saved["alpha"]))


def power(x: Tensor, b: Backward) -> Tensor:
    made: Tensor = x ** b.saved["exponent"]
    return made
