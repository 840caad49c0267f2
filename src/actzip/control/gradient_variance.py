"""The variance V that SGD's gradient has anyway, from the gradients of three successive passes.

Two batches give g₁ and g₂ with the same mean, as long as the weights hardly move, so that
D₁₂ = ‖g₁ − g₂‖²/2 is V on average. But weights do move: a gradient that drifts adds to D₁₂ and four
times as much to D₁₃, one that swings from step to step adds to D₁₂ and nothing to D₁₃. So

    V = D₁₃ when that is the smaller one, else D₁₂ − (D₁₃ − D₁₂)/3,   D₁₂ the mean of both pairs.

A small decoder that begins to learn with Adam had D₁₂ at twice V, and at ten times for its biases.
What codes add is in all gradients: what is found is the variance of SGD and of the codes together.

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
from torch import Tensor
from torch.utils.hooks import RemovableHandle, unserializable_hook

from actzip.kernels.transfers import Transfer
from actzip.torch_private import not_compiled

PASSES = 3
Kept = dict[int, Tensor]

_SAMPLE = 1 << 14  #: elements of a parameter's gradient that are kept


class GradientVariance:
    """Remembers the gradients of the last passes, and compares them."""

    def __init__(self) -> None:
        self._parameters: list[weakref.ref[Tensor]] = []
        self._handles: list[RemovableHandle] = []
        # elements of gradients by the parameter's place, of the last passes, that which runs at the
        # end; None: nothing is kept of it
        self._passes: list[Kept | _Sent | None] = [None] * PASSES

    def of(self, parameters: Iterable[Tensor]) -> None:
        """These are the parameters; their places are the names they have here."""
        self._parameters = [weakref.ref(p) for p in parameters]

    @property
    def known(self) -> bool:
        return bool(self._parameters)

    def place(self, parameter: Tensor) -> int | None:
        """Which of them it is."""
        found = (i for i, ref in enumerate(self._parameters) if ref() is parameter)
        return next(found, None)

    # -- passes ----------------------------------------------------------------------------

    def begin(self, watch: bool) -> None:
        """A pass begins, of whose backward something is to be kept or nothing."""
        self.stop()
        last = self._passes[-1]
        if isinstance(last, dict) and last:
            self._passes[-1] = _Sent(last)
        self._passes = [*self._passes[1:], {} if watch else None]
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

    @not_compiled
    def _keep(self, place: int, grad: Tensor) -> None:
        """One backward gave this gradient; several of a pass add up."""
        now = self._passes[-1]
        if not isinstance(now, dict) or not _has_memory(grad):
            return
        with torch.no_grad():
            some = _some(grad.detach())
            known = now.get(place)
            now[place] = some if known is None else known + some

    def result(self) -> tuple[dict[int, float], float]:
        """Variance of each parameter's gradient, by place, and the mean ‖g‖² of all; ({}, 0) when
        the last passes do not tell."""
        kept = [_arrived(each) or {} for each in self._passes]
        found: dict[int, float] = {}
        size = 0.0
        for i in sorted(set.intersection(*(set(each) for each in kept))):
            p = self._parameters[i]()
            g = [each[i].double() for each in kept]
            if p is None or not g[0].numel() or any(other.shape != g[0].shape for other in g):
                continue
            whole = p.numel() / g[0].numel()
            found[i] = _variance(g) * whole
            size += sum(float(each.square().sum()) for each in g) / len(g) * whole
        if not (0 < size < math.inf and math.isfinite(sum(found.values()))):
            return {}, 0.0
        return found, size

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {"passes": [_copied(_arrived(kept)) for kept in self._passes]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._passes = [_copied(kept) for kept in state["passes"]]


class _Sent:
    """Elements of a pass that is over, on their way to the host: one copy from each device."""

    def __init__(self, kept: Kept) -> None:
        self._sent: list[tuple[list[int], list[int], Transfer]] = []
        for device in dict.fromkeys(t.device for t in kept.values()):
            mine = {place: t for place, t in kept.items() if t.device == device}
            sizes = [t.numel() for t in mine.values()]
            self._sent.append(([*mine], sizes, Transfer(torch.cat([*mine.values()]))))

    def arrived(self) -> Kept:
        """Waits for what is not there yet."""
        return {
            place: t
            for places, sizes, transfer in self._sent
            for place, t in zip(places, transfer.tensor().split(sizes), strict=True)
        }


def _arrived(kept: Kept | _Sent | None) -> Kept | None:
    """On the host; those of the pass that runs are brought over one by one."""
    if isinstance(kept, _Sent):
        return kept.arrived()
    return None if kept is None else {i: t.cpu() for i, t in kept.items()}


def _variance(g: list[Tensor]) -> float:
    """V of one parameter, from three gradients."""
    near = float((g[0] - g[1]).square().sum() + (g[1] - g[2]).square().sum()) / 4
    far = float((g[0] - g[2]).square().sum()) / 2
    return min(far, max(0.0, near - (far - near) / 3))


def _has_memory(grad: Tensor) -> bool:
    """Not a sparse one, and not one of vmap, which `is_grads_batched` makes."""
    try:
        return grad.layout is torch.strided and grad.untyped_storage() is not None
    except RuntimeError:
        return False


def _some(grad: Tensor) -> Tensor:
    """Elements of a gradient, as float32; an odd stride meets all columns of a matrix"""
    every = grad.numel() // _SAMPLE | 1 if grad.numel() > _SAMPLE else 1
    return grad.reshape(-1)[::every].to(torch.float32, copy=True)


def _copied(kept: Kept | None) -> Kept | None:
    return None if kept is None else {i: t.clone() for i, t in kept.items()}
