"""What backward says: how much an error in each stored tensor would show in the gradients."""

from __future__ import annotations

from collections import deque
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from actzip.control.layers import Layers
from actzip.control.reading import Reading, mean

__all__ = ["Reading", "Statistics", "sample_indices"]


def sample_indices(given: object) -> Tensor:
    """A row of places in the data set, or a ValueError that says what came instead."""
    try:
        found = torch.as_tensor(given).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        what = type(given).__name__
    else:
        what = f"{found.dtype} of shape {tuple(found.shape)}"
        whole = not (found.is_floating_point() or found.is_complex() or found.dtype is torch.bool)
        if whole and found.dim() == 1 and found.numel() and int(found.long().min()) >= 0:
            return found.long().clone()
    raise ValueError(
        f"samples needs a row of indices into the data set, whole numbers from 0 on, got {what}"
    )


class Statistics:
    """The last readings of every site, in the order of the forward pass."""

    def __init__(self, history: int = 1):
        self.history = history
        self.layers = Layers(history)  #: the same for each op that reads a site, by itself
        self._readings: dict[str, deque[tuple[int, Reading]]] = {}
        self._table: dict[str, Tensor] = {}
        self.indices: Tensor | None = None  #: places in the data set of the samples at hand
        self.together = False  #: several processes train one model, in step
        self.missing: dict[str, str] = {}  #: sites of which nothing is known, and why

    @property
    def sites(self) -> list[str]:
        """The sites that were read, in the order of forward."""
        return list(self._readings)

    @property
    def newest(self) -> int:
        """The last pass of which there is a reading; -1 before the first."""
        return max((rows[-1][0] for rows in self._readings.values() if rows), default=-1)

    def expect(self, site: str) -> None:
        """A forward pass will have this site read; fixes its place in the order."""
        self._readings.setdefault(site, deque(maxlen=self.history))

    def add(self, step: int, site: str, reading: Reading) -> None:
        """One op of the pass `step` read this site's tensor.

        Several passes may have their backward in one: their readings come in any order, and the
        last passes count.
        """
        self.expect(site)
        rows = self._readings[site]
        for i, (at, known) in enumerate(rows):
            if at == step:
                rows[i] = (step, known + reading)
                return
        if not rows or rows[-1][0] < step:
            rows.append((step, reading))

    def of(self, site: str) -> Reading | None:
        """The mean of the site's last readings; None before the first."""
        return mean([reading for _, reading in self._readings.get(site, ())])

    # -- a table per sample of the data set ------------------------------------------------

    def remember(
        self, site: str, indices: Tensor, new: Tensor, share: Tensor | None = None
    ) -> Tensor | None:
        """The samples of this batch, by their places in the data set: half old, half new.

        Gives back how much `new` counted for each sample, 1 where nothing was known. With that as
        `share` a second op that read the tensor in the same pass adds to what the first one said.
        """
        if new.shape != indices.shape:
            return None  # a tensor that has no row for each of these samples
        table = self._table.get(site, torch.empty(0))
        if int(indices.max()) >= table.numel():
            grown = torch.full((int(indices.max()) + 1,), torch.nan)
            grown[: table.numel()] = table
            table = self._table[site] = grown
        old = table[indices]
        if share is None:
            share = torch.where(old.isnan(), 1.0, 0.5)
            old = old.nan_to_num() / 2
        table[indices] = (old + share * new).float()
        return share

    def recall(self, site: str, indices: Tensor) -> Tensor | None:
        """What is known of these samples; one not seen yet counts as the mean of the others.

        None where all of them are new.
        """
        table = self._table.get(site)
        if table is None:
            return None
        known = table[indices.clamp(max=table.numel() - 1)].double()
        known = torch.where(indices < table.numel(), known, torch.nan)
        mean = known.nanmean()
        return None if mean.isnan() else torch.where(known.isnan(), mean, known)

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain dictionaries and tensors."""
        readings = {
            site: [(step, {f.name: getattr(r, f.name) for f in fields(r)}) for step, r in rows]
            for site, rows in self._readings.items()
        }
        table = {k: v.clone() for k, v in self._table.items()}
        rest = {"missing": dict(self.missing), "layers": self.layers.state_dict()}
        return {"readings": readings, "table": table, **rest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._readings = {
            site: deque(((step, Reading(**r)) for step, r in rows), maxlen=self.history)
            for site, rows in state["readings"].items()
        }
        self._table = {k: v.clone() for k, v in state["table"].items()}
        self.missing = dict(state["missing"])
        self.layers.load_state_dict(state["layers"])
