"""A ReLU behind a BatchNorm: its result, mask and all, from a code of the BatchNorm's input.

With y = γ·(x − mean)·r + β a ReLU's mask y > 0 is x > origin, or x <= origin where γ is negative,
with origin = mean − β/(γ·r) of each channel. A code of x that tells the two sides apart
(`Dithered(origin=…)`) has the mask in it. The origin is rounded to the next value of x's type
below: an element so close to it that PyTorch's own rounding decides may be taken for the other.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from actzip.autograd.calls import Call, Operand
from actzip.autograd.derivation import Derivation
from actzip.autograd.norm_calls import batch_norm, batch_norm_relu
from actzip.codecs import Dithered

_FAR = 6.0  #: standard deviations from the mean within which an origin is taken as it is


def is_batch_norm(call: Call | None) -> bool:
    return call is not None and call.function is batch_norm


def origins(call: Call, x: Tensor) -> tuple[float, ...] | None:
    """Where the result of a BatchNorm of x crosses zero, channel by channel; None if unknown."""
    _, mean, invstd, weight, bias = (_now(a) for a in call.args)
    if mean is None or invstd is None:
        return None
    m, r = mean.double(), invstd.double()
    gamma = torch.ones_like(r) if weight is None else weight.double()
    beta = torch.zeros_like(r) if bias is None else bias.double()
    far = torch.where(beta > 0, -torch.inf, torch.inf)  # γ = 0: everywhere on one side
    found = torch.where(gamma == 0, far, m - beta / (gamma * r))
    if bool(((found - m).abs() * r > _FAR).any()):
        # codes count from the origin: no further away than the channel's own values
        rest = [d for d in range(x.dim()) if d != 1]
        least, most = x.amin(rest).double(), x.amax(rest).double()
        low = below(least, x.dtype, strictly=True)
        found = torch.minimum(torch.maximum(found, low), most)
    found = below(found, x.dtype)
    return tuple(found.tolist()) if bool(found.isfinite().all()) else None


def _now(a: object) -> Tensor | None:
    t = a.now() if isinstance(a, Operand) else a
    return t if isinstance(t, Tensor) else None


def below(t: Tensor, dtype: torch.dtype, strictly: bool = False) -> Tensor:
    """The largest values of the type that are not above these, or that are below them."""
    rounded = t.to(dtype)
    above = rounded.double() >= t if strictly else rounded.double() > t
    return torch.where(above, _next_down(rounded), rounded).double()


def _next_down(x: Tensor) -> Tensor:
    """The next smaller value of x's type; torch.nextafter knows no float16."""
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    bits = (0.0 - x).view(integer)
    return -torch.where(x <= 0, bits + 1, bits - 1).view(x.dtype)


def derivation(norm: Derivation, codec: Dithered, relu: Call) -> Derivation:
    """The ReLU's result from what the BatchNorm's is made from."""
    assert codec.origin is not None, "a code that does not tell the sides"
    origin = codec.origin if isinstance(codec.origin, tuple) else (codec.origin,)
    sides = torch.tensor(origin, dtype=torch.float64, device=relu.like.device)
    function = functools.partial(batch_norm_relu, origin=sides)
    functools.update_wrapper(function, batch_norm_relu)
    return Derivation("relu", function, norm.args, norm.kwargs, relu.like, norm.copied)
