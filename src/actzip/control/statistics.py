"""What backward tells: how much an error in each stored tensor would show in the gradients."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Reading:
    """One stored tensor as the backward of one step saw it; small tensors in float64.

    With s²ₙ the mean error variance of the elements of sample n that are not zero,

        E‖Δg‖² = Σₙ s²ₙ·parameter[n]    over the gradients of parameters, which end here, and
        E‖Δg‖² = Σₙ s²ₙ·input[n]        over the gradients that travel on to other layers;

    `channel_parameter` and `channel_input` say the same channel by channel. `zeros` is the share
    of those sums that elements which are exactly zero would add, were they not kept exactly.
    `worst_parameter` and `worst_input` are ‖Δg‖² at most, for an error of at most 1 in every
    element of a channel. Several ops that read one tensor add up.
    """

    parameter: Tensor
    input: Tensor
    channel_parameter: Tensor
    channel_input: Tensor
    worst_parameter: Tensor
    worst_input: Tensor
    peak: Tensor  #: max |x| of each channel
    zeros: Tensor
    power: Tensor  #: mean of x² over all elements
    parameter_signal: Tensor  #: ‖g‖² of the parameters' gradients
    parameter_count: Tensor  #: how many numbers those gradients have
    input_signal: Tensor  #: ‖g‖² of the gradients that travel on

    def __add__(self, other: Reading) -> Reading:
        """Both of two ops that read one tensor."""
        summed = {f.name: _sum(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        a, b = _total(self), _total(other)
        share = (self.zeros * a + other.zeros * b) / (a + b).clamp(min=torch.finfo(a.dtype).tiny)
        summed["zeros"] = share
        summed["peak"] = _largest(self.peak, other.peak)
        summed["power"] = torch.maximum(self.power, other.power)
        return Reading(**summed)


def _total(reading: Reading) -> Tensor:
    return reading.parameter.sum() + reading.input.sum()


def _sum(a: Tensor, b: Tensor) -> Tensor:
    """Per-sample or per-channel numbers of equal count add; else they are spread evenly."""
    if a.shape == b.shape or not a.dim():
        return a + b
    return a + b.sum() / a.numel()


def _largest(a: Tensor, b: Tensor) -> Tensor:
    return torch.maximum(a, b if a.shape == b.shape else b.max())


def _mean(tensors: list[Tensor]) -> Tensor:
    """The mean over passes; a batch of another size is left out of the per-sample numbers."""
    same = [t for t in tensors if t.shape == tensors[-1].shape]
    return torch.stack(same).mean(0)


class Statistics:
    """The last readings of every site, in the order of the forward pass."""

    def __init__(self, history: int = 1):
        self.history = history
        self._readings: dict[str, deque[tuple[int, Reading]]] = {}
        self._table: dict[str, Tensor] = {}
        self.indices: Tensor | None = None  #: places in the data set of the samples at hand
        self.missing: dict[str, str] = {}  #: sites of which nothing could be told, and why

    @property
    def sites(self) -> list[str]:
        """The sites that were read, in the order in which forward meets them."""
        return list(self._readings)

    def expect(self, site: str) -> None:
        """A forward pass will have this site read; fixes its place in the order."""
        self._readings.setdefault(site, deque(maxlen=self.history))

    def add(self, step: int, site: str, reading: Reading) -> None:
        """One op of the pass `step` read this site's tensor."""
        self.expect(site)
        rows = self._readings[site]
        if rows and rows[-1][0] == step:
            rows[-1] = (step, rows[-1][1] + reading)
        else:
            rows.append((step, reading))

    def of(self, site: str) -> Reading | None:
        """The mean of the site's last readings; None before the first."""
        rows = self._readings.get(site)
        if not rows:
            return None
        kept = [reading for _, reading in rows]
        return Reading(
            **{f.name: _mean([getattr(r, f.name) for r in kept]) for f in fields(Reading)}
        )

    # -- a table per sample of the data set ------------------------------------------------

    def remember(self, site: str, indices: Tensor, reading: Reading) -> None:
        """The samples of this batch, by their places in the data set: half old, half new."""
        new = reading.parameter + reading.input
        if new.shape != indices.shape:
            return
        table = self._table.get(site, torch.empty(0, dtype=torch.float64))
        if int(indices.max()) >= table.numel():
            grown = torch.full((int(indices.max()) + 1,), float("nan"), dtype=torch.float64)
            grown[: table.numel()] = table
            table = grown
        old = table[indices]
        table[indices] = torch.where(old.isnan(), new, (old + new) / 2)
        self._table[site] = table

    def recall(self, site: str, indices: Tensor) -> Tensor | None:
        """What is known of these samples; one not seen yet counts as the mean of the others."""
        table = self._table.get(site)
        if table is None:
            return None
        known = table[indices.clamp(max=table.numel() - 1)]
        known = torch.where(indices < table.numel(), known, torch.nan)
        mean = table[~table.isnan()].mean()
        return torch.where(known.isnan(), mean, known)

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain dictionaries and tensors."""
        readings = {
            site: [(step, {f.name: getattr(r, f.name) for f in fields(r)}) for step, r in rows]
            for site, rows in self._readings.items()
        }
        return {"readings": readings, "table": {k: v.clone() for k, v in self._table.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._readings = {
            site: deque(((step, Reading(**r)) for step, r in rows), maxlen=self.history)
            for site, rows in state["readings"].items()
        }
        self._table = {k: v.clone() for k, v in state["table"].items()}
