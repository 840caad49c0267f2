"""ActNN (ICML 2021): the least gradient variance that a budget of bits can buy.

A dithered code of b bits has the error variance s² = range²/12 / (2^b − 1)². With w the weight of
an error at the site (control/error.py), the gradients' variance is

    Σᵢ Cᵢ/(2^bᵢ − 1)²,   Cᵢ = wᵢ·range²ᵢ/12,

and bits are spread to make it least for Σ elements·bits within the budget, on two levels: over
layers every `interval` steps, from what backward told last, and over the samples of a layer in
each forward pass, from their ranges now.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from actzip.codecs import Group
from actzip.codecs.base import Codec, by_sample
from actzip.control import allocate
from actzip.control.statistics import Reading, Statistics
from actzip.control.travel import travels
from actzip.methods.base import Method, Policy, Role, Site

Floats = NDArray[np.float64]

LEVELS = ("L0", "L1", "L2", "L3", "L3.1", "L4", "L5")
_LOOK = 8  #: groups of a sample whose ranges are looked at; all of them would cost a pass over x
_CURVED = 3  #: fewest bits of a curved site, where the budget allows
_UNKNOWN = 4  #: bits of a curved site for which there is no formula


@dataclass(frozen=True)
class ActNN(Method):
    """Group codes of `bits` bits on average, spread over layers and samples.

    level       L0 off · L1 4 bits for what enters gradients linearly · L2 4 bits everywhere · L3
                `bits` on average, adaptive · L3.1 the same, and convolutions with operands above
                `slice_bytes` run their backward in micro-batches · L4 payloads in host memory (on
                a GPU) · L5 payloads in slabs of their own, which they always are here
    bits        average over all elements in the code; may be a fraction; never exceeded
    interval    steps between two looks at the gradients; more often during the first ones
    per_sample  spread a layer's bits over its samples
    per_layer   spread the bits over layers; otherwise each has the average
    bn_bits     average of BatchNorm inputs; "conv": that of the convolution before it, as
                published; None: by the formula, as everything else
    rounding    "dither", or "stochastic" as published: twice the variance at equal bytes

    A tensor made by a ReLU has a code for zero, so that its mask costs nothing. A curved op
    without an error formula gets 4 bits (report: its codec) outside the budget.
    """

    bits: float = 2.0
    group_size: int = 256
    level: str = "L3"
    interval: int = 100
    per_sample: bool = True
    per_layer: bool = True
    bn_bits: float | str | None = None
    rounding: str = "dither"
    slice_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"ActNN(level=…) is one of {', '.join(LEVELS)}, got {self.level!r}")
        if not 1 <= self.bits <= 8:
            raise ValueError(f"ActNN(bits=…) is an average of 1 to 8, got {self.bits!r}")
        if not isinstance(self.interval, int) or self.interval < 1:
            raise ValueError(f"ActNN(interval=…) is at least 1 step, got {self.interval!r}")
        if isinstance(self.bn_bits, str) and self.bn_bits != "conv":
            raise ValueError(f"ActNN(bn_bits=…) is a number, 'conv' or None, got {self.bn_bits!r}")
        if isinstance(self.bn_bits, (int, float)) and not 1 <= self.bn_bits <= 8:
            raise ValueError(f"ActNN(bn_bits=…) is an average of 1 to 8, got {self.bn_bits!r}")
        if self.slice_bytes < 1:
            raise ValueError(f"ActNN(slice_bytes=…) is at least 1, got {self.slice_bytes!r}")
        Group(group_size=self.group_size, rounding=self.rounding)  # says what is wrong with them

    def start(self, optimizer: torch.optim.Optimizer | None) -> Policy:
        return _FourBits(self) if self.level in ("L0", "L1", "L2") else _Adaptive(self)


class _FourBits(Policy):
    """L0 to L2: nothing, linear sites, or all sites in 4 bits."""

    def __init__(self, method: ActNN):
        self._level = method.level
        self._method = method

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        if self._level == "L0" or (self._level == "L1" and site.role is not Role.LINEAR):
            return None
        m = self._method
        return Group(4, m.group_size, m.rounding, zero=site.relu)

    def reason(self, site: Site) -> str:
        return f"ActNN at level {self._level} keeps {site.role.value} tensors exactly"


@dataclass
class _Layer:
    """A site as the last forward met it."""

    elements: int
    relu: bool
    norm: bool
    split: bool  #: its samples have bits of their own
    curved: bool  #: a coarse code would bias the gradient, which no number of steps averages out
    ranges: Tensor  #: mean squared range of the groups of each sample


class _Adaptive(Policy):
    """L3 and above."""

    def __init__(self, method: ActNN):
        self._method = method
        self._layers: dict[str, _Layer] = {}
        self._average: dict[str, float] = {}  # bits of each site that has been solved for
        self._statistics = Statistics()
        self._watching = False
        self._learned = -1
        self.slice_bytes = method.slice_bytes if method.level == "L3.1" else None
        self.swap = method.level in ("L4", "L5")

    # -- forward: a codec for each tensor --------------------------------------------------

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        m = self._method
        if self._is_unknown(site):
            return Group(max(_UNKNOWN, math.ceil(m.bits)), m.group_size, m.rounding)
        average = self._average.get(site.name, self._start(site))
        # below two bits a code for zero would leave one level for all other values: biased
        zero = site.relu and average >= 2
        size = group_at(site, tensor, m.group_size)
        split = self._is_split(tensor)
        if self._watching or split:
            ranges = squared_ranges(tensor, size)
            self._layers[site.name] = _Layer(
                tensor.numel(), site.relu, _is_norm(site), split, _is_curved(site), ranges
            )
        if not split:
            return Group(math.floor(average + 1e-9), size, m.rounding, zero)
        bits = self._split(site, ranges, average, zero)
        # equal bits need no groups that end with the sample
        each = bits[0] if len(set(bits)) == 1 else bits
        return Group(each, size, m.rounding, zero)

    def _start(self, site: Site) -> float:
        """Bits before backward has told anything: the same for all."""
        fixed = self._method.bn_bits
        return (
            float(fixed)
            if _is_norm(site) and isinstance(fixed, (int, float))
            else self._method.bits
        )

    def _is_unknown(self, site: Site) -> bool:
        """A curved site that backward was asked about and could not tell anything of."""
        seen = site.name in self._layers and self._learned >= 0
        return seen and site.role is Role.NONLINEAR and self._statistics.of(site.name) is None

    def _is_split(self, tensor: Tensor) -> bool:
        """Whether samples get bits of their own: where each fills some groups."""
        samples = tensor.shape[0] if tensor.dim() > 1 else 1
        large = tensor.numel() >= samples * self._method.group_size
        return self._method.per_sample and samples > 1 and large

    def _split(self, site: Site, ranges: Tensor, average: float, zero: bool) -> tuple[int, ...]:
        """The layer's bits over its samples: most where C is largest."""
        indices = self._statistics.indices
        known = None if indices is None else self._statistics.recall(site.name, indices)
        c = ranges if known is None or known.shape != ranges.shape else ranges * known
        total = math.floor(average * ranges.numel() + 1e-9)
        bits = allocate.split(c.numpy(), total, 2 if zero else 1, 8, zero)
        return tuple(int(b) for b in bits)

    # -- backward told: bits for each layer ------------------------------------------------

    def begin(self, step: int, statistics: Statistics) -> bool:
        self._statistics = statistics
        if self._method.per_layer and self._watching:
            self._learn()
        by_index = self._method.per_sample and statistics.indices is not None
        early = step < self._method.interval and step & (step - 1) == 0
        self._watching = by_index or early or step % self._method.interval == 0
        return self._watching

    def _learn(self) -> None:
        """One problem over all samples of all layers; a layer's share is its average."""
        readings = {}
        for name in self._statistics.sites:
            found = self._statistics.of(name)
            if found is not None and name in self._layers:
                readings[name] = found
        if not readings:
            return
        self._learned += 1
        travel = travels(readings)
        free, budget = self._free(readings)
        items = [_items(self._layers[n], readings[n], travel[n]) for n in free]
        sensitivity = np.concatenate([c for c, _ in items])
        elements = np.concatenate([e for _, e in items])
        relu = np.concatenate(
            [np.full(len(c), self._layers[n].relu) for n, (c, _) in zip(free, items, strict=True)]
        )
        zero = relu if self._method.bits >= 2 else False
        cost, error = allocate.bits_ladder(sensitivity, elements, zero=zero)
        curved = np.concatenate(
            [np.full(len(c), self._layers[n].curved) for n, (c, _) in zip(free, items, strict=True)]
        )
        rung = allocate.least_error(cost, _without_coarse(cost, error, curved, budget), budget)
        start = 0
        for name, (c, _) in zip(free, items, strict=True):
            self._average[name] = float(np.mean(rung[start : start + len(c)] + 1))
            start += len(c)
        self._follow(readings)

    def _free(self, readings: dict[str, Reading]) -> tuple[list[str], float]:
        """The sites whose bits are to be found, and the bits there are for them."""
        m = self._method
        fixed = m.bn_bits is not None
        free = [n for n in readings if not (fixed and self._layers[n].norm)]
        held = [n for n in readings if n not in free]
        bits = m.bits * sum(self._layers[n].elements for n in readings)
        if m.bn_bits == "conv":
            bits = m.bits * sum(self._layers[n].elements for n in free)
        elif isinstance(m.bn_bits, (int, float)):
            bits -= m.bn_bits * sum(self._layers[n].elements for n in held)
            least = sum(self._layers[n].elements for n in free)
            bits = max(bits, float(least))
        return free, bits

    def _follow(self, readings: dict[str, Reading]) -> None:
        """BatchNorm's bits where they are given: a number, or those of the layer before."""
        if self._method.bn_bits is None:
            return
        before = self._method.bits
        for name in readings:
            if self._layers[name].norm:
                given = self._method.bn_bits
                self._average[name] = before if isinstance(given, str) else float(given)
            else:
                before = self._average[name]

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {
            "average": dict(self._average),
            "layers": {name: dict(vars(layer)) for name, layer in self._layers.items()},
            "watching": self._watching,
            "learned": self._learned,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._average = dict(state["average"])
        self._layers = {n: _Layer(**v) for n, v in state["layers"].items()}
        self._watching, self._learned = state["watching"], state["learned"]


def _is_norm(site: Site) -> bool:
    return "BatchNorm" in site.node


def _is_curved(site: Site) -> bool:
    """Activations and attention; a norm's gradient is linear in x but for terms of order 1/M."""
    return site.role is Role.NONLINEAR and "Norm" not in site.node


def _without_coarse(cost: Floats, error: Floats, curved: NDArray[Any], budget: float) -> Floats:
    """Errors in which curved sites have at least `_CURVED` bits, or as many as leave 2 to others.

    The formulas are of first order: below, the bias of order s² is what counts. Measured on a
    ViT: with 1 bit at GELU inputs 20 % of the gradients' power, with 2 bits 2 %, with 3 bits 0.2 %.
    """
    for fewest in range(_CURVED, 1, -1):
        barred = error.copy()
        barred[curved, : fewest - 1] = np.inf
        if np.where(curved, cost[:, fewest - 1], cost[:, 1]).sum() <= budget or fewest == 2:
            break
    return barred if np.where(np.isinf(barred), np.inf, cost).min(1).sum() <= budget else error


def _items(layer: _Layer, r: Reading, travel: float) -> tuple[Floats, Floats]:
    """C and elements of what gets bits of its own: error = C/levels²."""
    w = r.parameter + r.input * travel
    samples = w.numel()
    ranges = layer.ranges
    if ranges.numel() != samples:
        ranges = ranges.mean().expand(samples)
    c = w * ranges / 12
    if not layer.split:
        return c.sum().view(1).numpy(), np.array([float(layer.elements)])
    return c.numpy(), np.full(samples, layer.elements / samples)


def group_at(site: Site, tensor: Tensor, size: int) -> int:
    """The size of groups; a LayerNorm's do not reach over its rows.

    A row of small values (a class token at the start) beside large ones would be lost in their
    step, and its normalised values explode: 1e5 times the gradient's power was measured.
    """
    row = tensor.shape[-1] if tensor.dim() else 1
    if "LayerNorm" not in site.node or row % 32:
        return size
    return max(g for g in range(32, max(size, 32) + 1, 32) if row % g == 0)


def squared_ranges(x: Tensor, group: int) -> Tensor:
    """The mean squared range of groups of each sample, from a few groups of each; float64."""
    rows = by_sample(x)
    samples = rows.shape[0]
    whole = rows.shape[1] // group
    if whole:
        step = max(1, whole // _LOOK)
        rows = rows[:, : whole * group].view(samples, whole, group)[:, ::step][:, :_LOOK]
    else:
        rows = rows.unsqueeze(1)
    lo, hi = torch.aminmax(rows, dim=-1)
    squares = (hi.double() - lo.double()).square()
    return squares.nan_to_num(0.0, 0.0, 0.0).mean(1).cpu()
