"""ActNN (ICML 2021): the least gradient variance that a budget of bits can buy.

A dithered code of b bits has the error variance s² = range²/12 / (2^b − 1)². With w the weight of
an error at the site (control/error.py), the gradients' variance is

    Σᵢ Cᵢ/(2^bᵢ − 1)²,   Cᵢ = wᵢ·range²ᵢ/12,

and bits are spread to make it least for Σ elements·bits within the budget, on two levels: over
sites every `interval` steps, from what backward said last, and over the samples of a site in
each forward pass, from their ranges now.
"""

from __future__ import annotations

import contextlib
import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from actzip import checks, planning
from actzip.codecs import Group
from actzip.codecs.base import Codec
from actzip.codecs.unsettled import reading_is_free
from actzip.control import allocate
from actzip.control.bit_allocation import CodedSite, averages, squared_ranges
from actzip.control.op import NORMS, Kind
from actzip.control.propagation import effects
from actzip.control.schedule import INTERVAL
from actzip.control.statistics import Statistics
from actzip.methods.base import Method, Policy, Role, Site

LEVELS = ("L0", "L1", "L2", "L3", "L3.1", "L4", "L5")
_UNKNOWN = 4  #: bits of a curved site for which there is no formula


@dataclass(frozen=True)
class ActNN(Method):
    """Group codes of `bits` bits on average, spread over layers and samples.

    level       L0 off · L1 4 bits for what enters gradients linearly · L2 4 bits everywhere · L3
                `bits` on average, adaptive · L3.1 the same, and convolutions with operands above
                `slice_bytes` run their backward in micro-batches · L4 payloads in host memory (on
                a GPU) · L5 payloads in slabs of their own, which they always are here
    bits        average over all elements in the code; may be a fraction; never exceeded, as long
                as the sites' shares in the elements are those of the pass that was learned from
    interval    steps between two looks at the gradients; more often during the first ones
    per_sample  spread a layer's bits over its samples
    per_layer   spread the bits over layers; otherwise each has the average
    bn_bits     average of BatchNorm inputs, beside `bits`, which is then that of all others;
                "conv": that of the layer before it, as published; None: by the formula
    rounding    "dither", or "stochastic" as published: twice the variance at equal bytes

    A tensor made by a ReLU has a code for zero, so that its mask costs nothing. A curved op
    without an error formula gets 4 bits (report: its codec) outside the budget. On a GPU the
    samples of a layer share its bits evenly: their ranges would have to come to the host in every
    pass.
    """

    bits: float = 2.0
    group_size: int = 256
    level: str = "L3"
    interval: int = INTERVAL
    per_sample: bool = True
    per_layer: bool = True
    bn_bits: float | str | None = None
    rounding: str = "dither"
    slice_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        checks.one_of(self, "level", LEVELS)
        if not _is_average(self.bits):
            raise ValueError(f"ActNN(bits=…) is an average of 1 to 8, got {self.bits!r}")
        if self.bn_bits not in (None, "conv") and not _is_average(self.bn_bits):
            raise ValueError(
                f"ActNN(bn_bits=…) is an average of 1 to 8, 'conv' or None, got {self.bn_bits!r}"
            )
        checks.whole(self, "interval", "slice_bytes", "group_size", least=1)
        checks.flag(self, "per_sample", "per_layer")
        Group(rounding=self.rounding)  # says what is wrong with it

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


class _Adaptive(Policy):
    """L3 and above."""

    def __init__(self, method: ActNN):
        self._method = method
        self._sites: dict[str, CodedSite] = {}
        self._average: dict[str, float] = {}  # bits of each site that has been solved for
        self._statistics = Statistics()
        self._looking = False
        self._asked: int | None = None  # the pass whose backward is to say how to spread the bits
        self.slice_bytes = method.slice_bytes if method.level == "L3.1" else None
        self.swap = method.level in ("L4", "L5")

    # -- forward: a codec for each tensor --------------------------------------------------

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        m = self._method
        size = group_at(site, tensor, m.group_size)
        if self._is_unknown(site):
            self._sites.pop(site.name, None)  # no part of the budget
            return Group(max(_UNKNOWN, math.ceil(m.bits)), size, m.rounding, zero=site.relu)
        average = self._average.get(site.name, self._start(site))
        # below two bits a code for zero would leave one level for all other values: biased
        zero = site.relu and average >= 2
        split = self._is_split(tensor)
        free = reading_is_free(tensor.device)
        if self._looking or (split and free):
            ranges = squared_ranges(tensor, size)
            self._sites[site.name] = CodedSite(
                tensor.numel(), site.relu, _is_norm(site), split, _is_curved(site), ranges
            )
        if not split:
            return _group(math.floor(average + 1e-9), size, m.rounding, zero)
        # where the host would have to wait for the ranges, samples share the bits evenly
        c = self._sensitivities(site, ranges) if free else np.ones(tensor.shape[0])
        total = math.floor(average * len(c) + 1e-9)
        bits = tuple(int(b) for b in allocate.split(c, total, 2 if zero else 1, 8, zero))
        # equal bits need no groups that end with the sample
        each = bits[0] if len(set(bits)) == 1 else bits
        return Group(each, size, m.rounding, zero)

    def _start(self, site: Site) -> float:
        """Bits before backward has said anything: the same for all."""
        fixed = self._method.bn_bits
        return (
            float(fixed)
            if _is_norm(site) and isinstance(fixed, (int, float))
            else self._method.bits
        )

    def _is_unknown(self, site: Site) -> bool:
        """A curved site of whose errors nothing, or not everything, is known."""
        if site.role is not Role.NONLINEAR:
            return False
        return site.slot not in site.op.errors or site.name in self._statistics.missing

    def _is_split(self, tensor: Tensor) -> bool:
        """Whether samples get bits of their own: where each fills some groups."""
        samples = tensor.shape[0] if tensor.dim() > 1 else 1
        large = tensor.numel() >= samples * self._method.group_size
        return self._method.per_sample and samples > 1 and large

    def _sensitivities(self, site: Site, ranges: Tensor) -> NDArray[np.float64]:
        """C of each sample, but for a factor: the layer's bits go where it is largest."""
        indices = self._statistics.indices
        known = None if indices is None else self._statistics.recall(site.name, indices)
        c = ranges if known is None or known.shape != ranges.shape else ranges * known
        with planning.real() if planning.active else contextlib.nullcontext():
            found: NDArray[np.float64] = c.numpy()
        return found

    # -- what backward said: bits for each site --------------------------------------------

    def begin(self, step: int, statistics: Statistics) -> bool:
        self._statistics = statistics
        if self._asked is not None and statistics.newest >= self._asked:
            self._learn()
            self._asked = None
        if self._is_look(step):
            self._asked = step
        by_index = self._method.per_sample and statistics.indices is not None
        # until there is an answer: an overflow gives none, nor does a graph without a backward
        self._looking = by_index or self._asked is not None
        return self._looking

    def wants(self, step: int, statistics: Statistics) -> bool:
        answered = self._asked is not None and statistics.newest >= self._asked
        return self._is_look(step) or (self._asked is not None and not answered)

    def _is_look(self, step: int) -> bool:
        early = step < self._method.interval and step & (step - 1) == 0
        return self._method.per_layer and (early or step % self._method.interval == 0)

    def _learn(self) -> None:
        m, by_index = self._method, self._statistics.indices is not None
        known = [site for site in self._statistics.sites if site in self._sites]
        found = effects(self._statistics.layers, known)
        self._average.update(averages(self._sites, found, m.bits, m.bn_bits, by_index))

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {
            "average": dict(self._average),
            "sites": {name: dict(vars(site)) for name, site in self._sites.items()},
            "asked": self._asked,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._average = dict(state["average"])
        self._sites = {n: CodedSite(**v) for n, v in state["sites"].items()}
        self._asked = state["asked"]


#: The same few come in every step; to check one costs more than to look it up.
_group = functools.lru_cache(maxsize=256)(Group)


def _is_average(bits: object) -> bool:
    return checks.is_number(bits) and 1 <= bits <= 8


def _is_norm(site: Site) -> bool:
    return site.op.kind is Kind.BATCH_NORM


def _is_curved(site: Site) -> bool:
    """Activations and attention; a norm's gradient is linear in x but for terms of order 1/M."""
    return site.role is Role.NONLINEAR and site.op.kind not in NORMS


def group_at(site: Site, tensor: Tensor, size: int) -> int:
    """The size of groups; those of a LayerNorm or RMSNorm do not reach over its rows.

    A row of small values (a class token at the start) beside large ones would be lost in their
    step, and its normalised values explode: 1e5 times the gradient's power was measured.
    """
    row = tensor.shape[-1] if tensor.dim() else 1
    if site.op.kind is not Kind.ROW_NORM or row % 32:
        return size
    return max(g for g in range(32, max(size, 32) + 1, 32) if row % g == 0)
