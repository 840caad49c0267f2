"""Backward formulas that read their saved tensor a few samples at a time.

Every function here gives what the op it stands for gives, up to the order in which floats are
added; what is one number per element of the input is computed by the same kernels, on slices.
`x.slices()` decodes each part when it is asked for, and the part goes before the next one comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from actzip.autograd.identity import is_dense

_aten = torch.ops.aten


class Slices(Protocol):
    """A tensor that is read in parts of its first dimension."""

    shape: torch.Size
    dtype: torch.dtype

    def slices(self) -> Iterator[tuple[int, int, Tensor]]:
        """First and last sample (not included), and the part between them."""


Gradients = tuple[Tensor | None, ...]
#: The part of a gradient at the output, a part of x -> gradients of the part and of parameters.
Step = Callable[[Tensor, Tensor], Gradients]


class _Sum:
    """Adds up the gradients of parameters; those of 16 bits in 32, as one kernel would."""

    def __init__(self) -> None:
        self._total: Tensor | None = None
        self._dtype = torch.float32

    def add(self, g: Tensor | None) -> None:
        if g is None:
            return
        wide = g.float() if g.itemsize < 4 else g
        if self._total is None:
            self._total, self._dtype = wide, g.dtype
        else:
            self._total.add_(wide)

    def get(self) -> Tensor | None:
        return None if self._total is None else self._total.to(self._dtype)


def _room(part: Tensor, samples: int) -> Tensor:
    """Memory for all samples, laid out as the op laid out some of them."""
    stride = part.stride()
    if part.dim() > 1 and is_dense(part[0]):
        stride = (part[0].numel(), *stride[1:])
        return torch.empty_strided(
            (samples, *part.shape[1:]), stride, dtype=part.dtype, device=part.device
        )
    return part.new_empty((samples, *part.shape[1:]))


def _by_slices(gy: Tensor, x: Slices, step: Step) -> Gradients:
    """An op whose parameters' gradients are sums over samples."""
    gx: Tensor | None = None
    sums = (_Sum(), _Sum())
    for first, last, part in x.slices():
        given = step(gy[first:last], part)
        del part  # before the next is decoded
        if given[0] is not None:
            gx = _room(given[0], x.shape[0]) if gx is None else gx
            gx[first:last] = given[0]
        for total, g in zip(sums, given[1:], strict=True):
            total.add(g)
        del given
    return (gx, *(total.get() for total in sums))


def _convolution(func: Any, gy: Tensor, x: Slices, *rest: Any) -> Gradients | None:
    """gX of each sample by itself; gW and gb are sums over samples."""
    if gy.shape[0] != x.shape[0]:
        return None
    return _by_slices(gy, x, lambda g, part: func(g, part, *rest))


def _batch_norm(
    func: Any,
    gy: Tensor,
    x: Slices,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor | None,
    invstd: Tensor | None,
    training: bool,
    eps: float,
    wanted: Sequence[bool],
) -> Gradients | None:
    """With frozen statistics as a convolution. In training gX = γ·r·(gY − gβ/M − x̃·gγ/M), with
    x̃ = (x − mean)·r: the sums gγ = Σ gY·x̃ and gβ = Σ gY first, then gX, in two readings of x.
    """
    rest = weight, running_mean, running_var, mean, invstd, training, eps
    if gy.shape != x.shape:
        return None
    if not training or not wanted[0]:
        return _by_slices(gy, x, lambda g, part: func(g, part, *rest, wanted))
    if mean is None or invstd is None:
        return None
    _, g_gamma, g_beta = _by_slices(gy, x, lambda g, p: func(g, p, *rest, [False, True, True]))
    assert g_gamma is not None
    assert g_beta is not None
    gx = _normalised(gy, x, weight, mean, invstd, g_gamma, g_beta)
    return gx, g_gamma if wanted[1] else None, g_beta if wanted[2] else None


def _normalised(
    gy: Tensor,
    x: Slices,
    weight: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    g_gamma: Tensor,
    g_beta: Tensor,
) -> Tensor:
    """gX = A·gY + B·(x − mean) + D, with one A, B and D per channel."""
    wide = torch.float32 if x.dtype.itemsize < 4 else x.dtype
    around = [1, -1] + [1] * (len(x.shape) - 2)
    m = gy.numel() / gy.shape[1]
    r = invstd.to(wide)
    a = r if weight is None else r * weight.to(wide)
    b, d = -a * r * g_gamma.to(wide) / m, -a * g_beta.to(wide) / m
    a, b, d, centre = (v.view(around) for v in (a, b, d, mean.to(wide)))
    gx: Tensor | None = None
    for first, last, part in x.slices():
        gx = _room(part, x.shape[0]) if gx is None else gx
        centred = part.to(wide) - centre
        del part
        room = gx[first:last] if wide is x.dtype else torch.empty_like(centred)
        torch.addcmul(d, gy[first:last].to(wide), a, out=room)
        room.addcmul_(centred, b)
        if wide is not x.dtype:
            gx[first:last] = room
    assert gx is not None, "a batch has a slice"
    return gx


def _by_sample(func: Any, gy: Tensor, x: Slices, *rest: Any, **options: Any) -> Tensor | None:
    """gX = f(gY, x), each sample by itself."""
    if gy.shape[0] != x.shape[0]:
        return None
    gx, *_ = _by_slices(gy, x, lambda g, part: (func(g, part, *rest, **options), None, None))
    return gx


def _max_pool(func: Any, gy: Tensor, x: Slices, *rest: Any) -> Tensor | None:
    """gX = f(gY, places of the maxima); of x only the shape is read."""
    *window, places = rest
    if gy.shape[0] != x.shape[0]:
        return None
    gx: Tensor | None = None
    for first, last, part in x.slices():
        given = func(gy[first:last], part, *window, places[first:last])
        gx = _room(given, x.shape[0]) if gx is None else gx
        gx[first:last] = given
        del part, given
    return gx


#: A formula gives None when it does not fit; all of them read their second argument in parts.
#: The rows of the nodes that call these say so: `Op.sliced`.
FORMULAS: dict[Any, Callable[..., Any]] = {
    _aten.convolution_backward.default: _convolution,
    _aten.native_batch_norm_backward.default: _batch_norm,
    _aten.threshold_backward.default: _by_sample,
    _aten.leaky_relu_backward.default: _by_sample,
    _aten.hardtanh_backward.default: _by_sample,
    _aten.hardswish_backward.default: _by_sample,
    _aten.silu_backward.default: _by_sample,
    _aten.gelu_backward.default: _by_sample,
    _aten.avg_pool2d_backward.default: _by_sample,
    _aten.max_pool2d_with_indices_backward.default: _max_pool,
}
