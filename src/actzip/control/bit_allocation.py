"""Bits over sites: one problem over all samples of all of them; a site's share is its average.

An item is a sample of a site, or a site whose samples have no bits of their own. An item of b bits
has the error C/(2^b − 1)² with C = w·range²/12, and Σ elements·b stays within the budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from actzip import planning
from actzip.codecs.memory_order import by_sample
from actzip.control import allocate
from actzip.control.propagation import Effect, nonzero

Floats = NDArray[np.float64]

_LOOK = 4  #: groups of a sample whose ranges are looked at; all of them would cost a pass over x
_CURVED = 3  #: fewest bits of a curved site, where the budget allows


@dataclass
class CodedSite:
    """A site that is to have bits, as its tensor was in the last forward."""

    elements: int
    relu: bool
    norm: bool
    split: bool  #: its samples have bits of their own
    curved: bool  #: a coarse code would bias the gradient, which no number of steps averages out
    ranges: Tensor  #: mean squared range of the groups of each sample


@dataclass
class _Problem:
    """Ladders of some items, all of one site and of those that follow it."""

    names: list[str]
    curved: bool
    cost: Floats
    error: Floats

    def join(self, name: str, other: _Problem) -> None:
        """The site `name` gets the bits that the first one gets."""
        n = len(self.cost)
        same = len(other.cost) == n
        self.names.append(name)
        self.cost = self.cost + (other.cost if same else other.cost.sum(0) / n)
        self.error = self.error + (other.error if same else other.error.sum(0) / n)


def averages(
    sites: Mapping[str, CodedSite],
    effects: Mapping[str, list[Effect]],
    bits: float,
    bn_bits: float | str | None = None,
    by_sample: bool = False,
) -> dict[str, float]:
    """Bits of each site such that Σ elements·bits is within the budget, and the error least.

    bn_bits None: BatchNorm inputs as all others. A number: they have it, and `bits` is the average
    of the others. "conv": each has the bits of the site before it, and both are one item.
    by_sample: the samples of the next batch will be known; else their weights are the mean.
    A site of which no error would show has the average: it may be another tensor in the next pass.
    Empty when the sensitivities overflow.
    """
    found: dict[str, float] = {}
    problems: list[_Problem] = []
    for name, read in effects.items():
        site = sites[name]
        if site.norm and isinstance(bn_bits, (int, float)):
            found[name] = float(bn_bits)
            continue
        c = _sensitivities(site, read, by_sample)
        if not np.isfinite(c).all():
            return {}
        if not c.any():
            # all values were equal, or no gradient came: the next ones need not be so
            found[name] = bits
            continue
        ladder = _ladder(name, site, c, zero=site.relu and bits >= 2)
        if site.norm and bn_bits == "conv" and problems:
            problems[-1].join(name, ladder)
        else:
            problems.append(ladder)
    if problems:
        budget = bits * sum(sites[n].elements for p in problems for n in p.names)
        found.update(_solve(problems, budget))
    return found


def _solve(problems: list[_Problem], budget: float) -> dict[str, float]:
    cost = np.concatenate([p.cost for p in problems])
    error = np.concatenate([p.error for p in problems])
    curved = np.concatenate([np.full(len(p.cost), p.curved) for p in problems])
    rung = allocate.least_error(cost, _without_coarse(cost, error, curved, budget), budget)
    found, start = {}, 0
    for p in problems:
        mean = float(np.mean(rung[start : start + len(p.cost)] + 1))
        found.update(dict.fromkeys(p.names, mean))
        start += len(p.cost)
    return found


def _sensitivities(site: CodedSite, effects: list[Effect], by_sample: bool) -> Floats:
    """C of the site's items."""
    samples = site.ranges.numel()
    w = torch.zeros(samples, dtype=torch.float64)
    for effect in effects:
        each = effect.weights()
        if not site.relu:  # zeros get an error like all others; a ReLU's are known
            each = each / nonzero(effect.reading)
        w += each if by_sample and each.numel() == samples else each.mean()
    c: Floats = (w * site.ranges / 12).numpy()
    return c if site.split else c.sum(keepdims=True)


def _ladder(name: str, site: CodedSite, c: Floats, zero: bool) -> _Problem:
    cost, error = allocate.bits_ladder(c, np.full(len(c), site.elements / len(c)), zero=zero)
    return _Problem([name], site.curved, cost, error)


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


def squared_ranges(x: Tensor, group: int) -> Tensor:
    """The mean squared range of groups of each sample, from a few groups of each; float64."""
    if planning.is_fake(x):  # unequal, as those of real samples are
        each = 4.0 ** np.linspace(-1, 1, x.shape[0] if x.dim() > 1 else 1)
        with planning.real():
            return torch.tensor(each.tolist(), dtype=torch.float64)
    if not x.numel():
        return torch.zeros(x.shape[0] if x.dim() > 1 else 1, dtype=torch.float64)
    rows = by_sample(x)
    samples = rows.shape[0]
    if rows.shape[1] < group:  # groups reach over samples
        rows = rows.reshape(1, -1)
    count, group = rows.shape[0], min(group, rows.shape[1])
    whole = rows.shape[1] // group
    look = _LOOK * max(1, samples // count)
    rows = rows[:, : whole * group].view(count, whole, group)[:, :: max(1, whole // look)][:, :look]
    lo, hi = rows.amin(-1), rows.amax(-1)  # ten times as fast as aminmax
    # numpy for the few numbers that are left: a call costs a fifth of torch's
    with np.errstate(invalid="ignore"):  # inf - inf
        squares = (hi.double().cpu().numpy() - lo.double().cpu().numpy()) ** 2
    squares[~np.isfinite(squares)] = 0.0
    means = squares.mean(1)
    return torch.from_numpy(means if len(means) == samples else means.repeat(samples))
