"""How large the momentum of a parameter is, in whatever buffer its optimizer keeps it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

#: Running means of the gradient, as optimizers call them: SGD, RMSprop, Muon; the Adam family.
BUFFERS = ("momentum_buffer", "exp_avg")


class Momentum:
    """Reads an optimizer's state; parameters are known by their places in it.

    Places survive a restart, as the optimizer's own state does; parameters do not.
    """

    def __init__(self, optimizer: torch.optim.Optimizer | None):
        self._optimizer = optimizer

    def place(self, parameters: Sequence[Tensor]) -> int | None:
        """Where the weight among an op's parameters, the largest of them, is in the optimizer."""
        if not parameters:
            return None
        weight = max(parameters, key=lambda p: p.numel())
        return next((i for i, p in enumerate(self._all()) if p is weight), None)

    def size(self, place: int | None) -> float | None:
        """mean |momentum| of the parameter at this place; None when there is no buffer yet."""
        held = self._all()
        if self._optimizer is None or place is None or place >= len(held):
            return None
        state = self._optimizer.state.get(held[place], {})
        for name in BUFFERS:
            buffer = state.get(name)
            if isinstance(buffer, Tensor) and buffer.numel():
                return float(buffer.abs().mean(dtype=torch.float32))
        return None

    def _all(self) -> list[Tensor]:
        if self._optimizer is None:
            return []
        return [p for group in self._optimizer.param_groups for p in group["params"]]
