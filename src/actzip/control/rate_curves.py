"""How many bits a tensor takes at each step: measured on a sample of it, not assumed.

A step t is taken in parts of the tensor's own size (the deviation of what is not zero), as
u = log2(t/size), on one grid for all tensors, so that a solver works on one array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from actzip.codecs import Centred, Dithered, Rectified
from actzip.codecs.each import mapped

Floats = NDArray[np.float64]

_EACH = 8  #: points of the grid for each factor of 2
_FINEST, _COARSEST = -16, 5
#: log2(t/size) of all curves
GRID: Floats = np.arange(_FINEST * _EACH, _COARSEST * _EACH + 1) / _EACH

#: where bits are measured; at finer steps each factor of 2 takes a bit
MEASURED = (-6.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0)

SAMPLE = 1 << 15  #: elements of the sample that a tensor's size is taken from
LARGE = 4096  #: elements from which codes have tables of their own, and a sign-exact form
COARSER = 3.0  #: steps below the origin of a sign-exact code, beside those above it
_TABLE = 112  #: bytes of a payload that do not grow with the tensor
_ROWS = 8  #: samples of the batch that it is of, at least
#: Variance of the channels' means beside that of the values about them, from which channels are
#: coded about their means: that saves 0.03 bits of an element.
_APART = 0.05

Coder = Centred | Dithered | Rectified


@dataclass
class Curve:
    """A stored tensor as the last look met it.

    Channel c has the step t·direction[c]; one direction stands for all channels.
    """

    elements: int
    size: float  #: deviation of what is not zero, in units of the direction
    bits: list[float]  #: of an element, at each step of GRID
    coarsest: float  #: log2(t/size) at most
    relu: bool = False  #: a ReLU's result, whose zeros have no error
    direction: list[float] = field(default_factory=lambda: [1.0])
    centre: list[float] = field(default_factory=list)  #: of each channel, where they are apart

    def bytes_at(self, step: float) -> float:
        """Of the whole tensor with the step t."""
        u = math.log2(max(step / self.size, 2.0**_FINEST)) if self.size > 0 else 0.0
        return self.elements / 8 * float(np.interp(u, GRID, self.bits))

    def coarser(self, step: float, elements: int) -> float:
        """The step at which so many elements take no more bytes than these do, as far as it may."""
        if elements <= self.elements or not self.size > 0:
            return step
        each = self.bytes_at(step) / elements * 8
        # bits fall along the grid: turned around for interp, which wants them to rise
        u = float(np.interp(each, self.bits[::-1], GRID[::-1]))
        return max(step, self.size * float(2.0 ** min(u, self.coarsest)))


def sample(x: Tensor, limit: int = SAMPLE, whole: int | None = None) -> Tensor:
    """About so many elements, spread over a tensor, in an order in which neighbours stay so; all
    of the dimension `whole`."""
    x = x.detach()
    order: tuple[int, ...] = (0, 1, 2) if x.dim() < 4 else (0, 2, 1, 3)
    if whole is not None:
        order = tuple(d for d in range(x.dim()) if d != whole % x.dim())
    for dim in order:
        if dim >= x.dim() or x.numel() <= limit:
            break
        fewest = _ROWS if dim == 0 and x.dim() > 1 else 1
        keep = min(x.shape[dim], max(fewest, x.shape[dim] * limit // x.numel()))
        every = x.shape[dim] // keep
        x = x.narrow(dim, 0, keep * every).unflatten(dim, (keep, every)).select(dim + 1, every // 2)
    return x


def spread(x: Tensor) -> float:
    """The standard deviation of the elements that are not zero; 0 when that is none or infinite."""
    there = x[x != 0].double()
    found = float(there.std(correction=0)) if there.numel() > 1 else 0.0
    return found if math.isfinite(found) else 0.0


def measure(bits: Callable[[float], float]) -> Floats:
    """Bits of an element at each step of the grid, falling; `bits` tells them at a few u.

    In between by a monotone cubic: a straight line between measured points would have corners,
    and a solver would only ever choose these.
    """
    known = np.array([bits(u) for u in MEASURED])
    known = np.maximum.accumulate(known[::-1])[::-1]  # a coarser step takes no more
    points = np.array(MEASURED)
    found = _monotone(points, known, GRID)
    fine = points[0] > GRID
    found[fine] = known[0] + (points[0] - GRID[fine])
    return np.clip(found, 1e-3, 32.0)


def _monotone(x: Floats, y: Floats, at: Floats) -> Floats:
    """Cubic Hermite through falling points, with slopes that keep it falling (Fritsch-Carlson)."""
    h, d = np.diff(x), np.diff(y) / np.diff(x)
    slope = np.empty_like(y)
    slope[0], slope[-1] = d[0], d[-1]
    inner = (d[:-1] < 0) & (d[1:] < 0)
    a, b = 2 * h[1:] + h[:-1], h[1:] + 2 * h[:-1]
    safe = np.where(inner, d[:-1], -1.0), np.where(inner, d[1:], -1.0)
    slope[1:-1] = np.where(inner, (a + b) / (a / safe[0] + b / safe[1]), 0.0)
    i = np.clip(np.searchsorted(x, at, "right") - 1, 0, len(x) - 2)
    s = (np.clip(at, x[0], x[-1]) - x[i]) / h[i]
    left = y[i] * (1 + 2 * s) + h[i] * slope[i] * s
    right = y[i + 1] * (3 - 2 * s) - h[i] * slope[i + 1] * (1 - s)
    found: Floats = left * (1 - s) ** 2 + right * s**2
    return found


def coder(
    error: float | tuple[float, ...],
    dim: int,
    relu: bool,
    origin: tuple[float, ...] | None = None,
    centre: tuple[float, ...] = (),
) -> Coder:
    """The code with these errors, half its steps.

    relu    of a ReLU's result: zeros stay zeros
    origin  of a BatchNorm's input whose result a ReLU cuts off: where, channel by channel
    centre  of channels that are coded about their means
    """
    if relu:
        return Rectified(error if isinstance(error, float) else min(error))
    if origin is None:
        return Centred(centre, error, dim) if centre else Dithered(error, channel_dim=dim)
    return Dithered(error, channel_dim=dim, origin=origin, coarser=COARSER)


def curve_of(
    x: Tensor,
    coarsest: float,
    channels: int,
    direction: list[float] | None = None,
    relu: bool = False,
    origin: tuple[float, ...] | None = None,
    own_steps: bool = False,
) -> Curve:
    """Measured on a sample of x, whose `channels` are this dimension.

    own_steps  each channel has a step of its own, in units of its `direction`
    """
    some = sample(x, whole=channels if x.dim() > 1 else None).float()
    usual, centre = spread(some), () if relu or origin is not None else _centre(x, some, channels)
    if centre:
        some = some - _along(centre, some, channels)
    found = np.ones(1)
    if own_steps:
        some, found = _levelled(some, channels, direction)
    size = spread(some)
    bits = [32.0] * len(GRID)
    if size > 0:
        halves = (size / 2 * found).tolist()
        code = coder(tuple(halves) if own_steps else halves[0], channels, relu, origin, centre)
        bits = [float(b) for b in measure(_bits(code, x))]
        if centre and not own_steps and usual > 0:  # the limit is in parts of the values themselves
            coarsest = min(_COARSEST, coarsest + math.log2(usual / size))
    return Curve(x.numel(), size, bits, coarsest, relu, found.tolist(), list(centre))


def _centre(x: Tensor, some: Tensor, channels: int) -> tuple[float, ...]:
    """The mean of each channel, if they are apart; `some` is a sample of x."""
    if x.dim() < 2 or x.shape[channels] < 2 or x.numel() < LARGE:
        return ()
    rest = [d for d in range(x.dim()) if d != channels % x.dim()]
    centre = x.detach().mean(rest, dtype=torch.float32)
    about = (some - _along(centre.tolist(), some, channels)).var(correction=0)
    apart = bool(centre.var(correction=0) > _APART * about)  # not when either is NaN
    return tuple(centre.tolist()) if apart and bool(centre.isfinite().all()) else ()


def _along(numbers: Iterable[float], x: Tensor, dim: int) -> Tensor:
    """One number for each place in a dimension of x, beside x."""
    around = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
    return torch.tensor(tuple(numbers), dtype=x.dtype, device=x.device).view(around)


def _bits(code: Coder, x: Tensor) -> Callable[[float], float]:
    """Bits of an element of x by log2(t/size), for the code with t = size."""
    if x.numel() < LARGE:
        return lambda u: 8 * _times(code, 2.0**u).encode(x, seed=1).data.numel() / x.numel()
    fixed = 8 * _TABLE / x.numel()
    known = dict(zip(MEASURED, code.rate(x, [2.0**u for u in MEASURED]), strict=True))
    return lambda u: known[u] + fixed


def _times(code: Coder, factor: float) -> Coder:
    if isinstance(code, Rectified):
        return replace(code, error=code.error * factor)
    return replace(code, error=mapped(code.error, lambda e: e * factor))


def _levelled(some: Tensor, dim: int, direction: Iterable[float] | None) -> tuple[Tensor, Floats]:
    """A sample in units of its channels' steps, and these beside each other."""
    rest = [d for d in range(some.dim()) if d != dim % some.dim()]
    found = np.array(list(direction or ()))
    if len(found) != some.shape[dim]:
        each = some.double().std(rest, correction=0).clamp(min=1e-30).cpu().numpy()
        found = each / np.exp(np.log(each).mean())
    centred = some - some.mean(rest, keepdim=True)
    return centred / _along(found.tolist(), some, dim), found
