"""The variance that SGD's gradient has anyway, from two gradients of successive passes.

Two batches give g₁ and g₂ with the same mean, as far as the weights hardly moved between them, so
that E‖g₁ − g₂‖² is twice the variance of one. What codes add is in both: the variance that is found
is that of SGD and of the codes together.

A hook on each parameter sees the gradient of this backward alone, whatever it is accumulated to,
and keeps some thousand of its elements. With gradient accumulation both the SGD variance and that
of the codes are those of one pass; their ratio is the same for the sum.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle, unserializable_hook

_SAMPLE = 1 << 14  #: elements of a parameter's gradient that are kept


class GradientVariance:
    """Remembers the gradients of one pass, and compares those of the next with them."""

    def __init__(self) -> None:
        self._parameters: list[weakref.ref[nn.Parameter]] = []
        self._handles: list[RemovableHandle] = []
        self._now: dict[int, Tensor] | None = None  # of the pass that runs, by place
        self._before: dict[int, Tensor] | None = None  # of the one before

    def of(self, parameters: Iterable[nn.Parameter]) -> None:
        """These are the parameters; their places are the names they have here."""
        self._parameters = [weakref.ref(p) for p in parameters]

    @property
    def known(self) -> bool:
        return bool(self._parameters)

    def place(self, parameter: nn.Parameter) -> int | None:
        """Which of them it is."""
        found = (i for i, ref in enumerate(self._parameters) if ref() is parameter)
        return next(found, None)

    # -- passes ----------------------------------------------------------------------------

    def begin(self, watch: bool) -> None:
        """A pass begins, of whose backward something is to be kept or nothing."""
        self.stop()
        self._before, self._now = self._now, {} if watch else None
        if watch:
            for i, ref in enumerate(self._parameters):
                p = ref()
                if p is not None and p.requires_grad:
                    hook: Callable[[Tensor], None] = unserializable_hook(partial(self._keep, i))
                    self._handles.append(p.register_hook(hook))

    def stop(self) -> None:
        """No parameter has a hook any more."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _keep(self, place: int, grad: Tensor) -> None:
        """One backward gave this gradient; several of a pass add up."""
        if self._now is None or grad.layout is not torch.strided:
            return
        with torch.no_grad():
            some = _some(grad.detach())
            known = self._now.get(place)
            self._now[place] = some if known is None else known + some

    def result(self) -> tuple[dict[int, float], float]:
        """Variance of each parameter's gradient, by place, and the mean ‖g‖² of all; ({}, 0) when
        the last two passes do not tell."""
        first, second = self._before or {}, self._now or {}
        found: dict[int, float] = {}
        size = 0.0
        for i in sorted(first.keys() & second.keys()):
            p = self._parameters[i]()
            a, b = first[i].double(), second[i].double()
            if p is None or a.shape != b.shape or not a.numel():
                continue
            whole = p.numel() / a.numel()
            found[i] = float((a - b).square().sum()) / 2 * whole
            size += float(a.square().sum() + b.square().sum()) / 2 * whole
        if not (0 < size < math.inf and math.isfinite(sum(found.values()))):
            return {}, 0.0
        return found, size

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {"now": _copied(self._now), "before": _copied(self._before)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._now, self._before = _copied(state["now"]), _copied(state["before"])


def _some(grad: Tensor) -> Tensor:
    """Elements of a gradient, as float32 on the CPU; an odd stride meets all columns of a matrix"""
    every = grad.numel() // _SAMPLE | 1 if grad.numel() > _SAMPLE else 1
    return grad.reshape(-1)[::every].float().cpu().clone()


def _copied(kept: dict[int, Tensor] | None) -> dict[int, Tensor] | None:
    return None if kept is None else {i: t.clone() for i, t in kept.items()}
