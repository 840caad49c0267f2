"""Gradients of a run under compression against the exact ones of the same batch, layer by layer."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn


@dataclass
class Checks:
    """Relative squared gradient errors at every check: of each layer, and of all together."""

    totals: list[float] = field(default_factory=list)
    worst: list[float] = field(default_factory=list)  #: of all layers, at each check
    layers: dict[str, list[float]] = field(default_factory=dict)

    def add(self, ours: nn.Module, exact: nn.Module) -> None:
        error: dict[str, float] = {}
        signal: dict[str, float] = {}
        for (name, p), q in zip(ours.named_parameters(), exact.parameters(), strict=True):
            if p.grad is None or q.grad is None:
                continue
            layer = name.rpartition(".")[0] or name
            off = float((p.grad - q.grad).double().square().sum())
            error[layer] = error.get(layer, 0.0) + off
            signal[layer] = signal.get(layer, 0.0) + float(q.grad.double().square().sum())
        found = {name: error[name] / signal[name] for name in error if signal[name] > 0}
        for name, value in found.items():
            self.layers.setdefault(name, []).append(value)
        self.worst.append(max(found.values()))
        self.totals.append(sum(error.values()) / sum(signal.values()))

    def summary(self, e2: float | None) -> dict[str, Any]:
        """Figures for the table; `above` counts layers above e2 among all that were checked."""
        values = [v for found in self.layers.values() for v in found]
        summary = {
            "checks": len(self.totals),
            "total_mean": statistics.fmean(self.totals),
            "total_worst": max(self.totals),
            "layer_mean": statistics.fmean(values),
            "layer_worst": max(values),
            "layers_checked": len(values),
        }
        if e2 is not None:
            summary["layers_above_e2"] = sum(v > e2 for v in values)
            summary["e2_over_total_mean"] = e2 / summary["total_mean"]
        return summary

    def plain(self) -> dict[str, Any]:
        return asdict(self)
