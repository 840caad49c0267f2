"""The most bytes that tensors hold in one forward and backward pass, weights and all.

On the CPU: what the model, its gradients and its optimizer hold when the pass begins, and above it
the live peak of `measure` until an optimizer steps or the next pass begins: a profiler cannot be
stopped inside of a backward, whose end brings back its state. Tensors that the program holds beside
these, the batch for one, are not seen. On a GPU the allocator knows it all.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle, unserializable_hook

from actzip import accelerator
from actzip.memory.measure import Measurement, measure
from actzip.torch_private import not_compiled


def held(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of the tensors' storages, each counted once."""
    found: dict[int, int] = {}
    for t in tensors:
        if t is not None and t.layout is torch.strided:
            storage = t.untyped_storage()
            found[storage._cdata] = storage.nbytes()
    return sum(found.values())


def held_by(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> int:
    """Parameters, buffers, gradients, and the state of the optimizer."""
    parameters = list(model.parameters())
    state = [] if optimizer is None else [v for s in optimizer.state.values() for v in s.values()]
    grads = [p.grad for p in parameters]
    tensors = [t for t in state if isinstance(t, Tensor)]
    return held([*parameters, *model.buffers(), *grads, *tensors])


class StepPeak:
    """Measures one pass at a time, where that can be done; never raises."""

    def __init__(self) -> None:
        self._handles: list[RemovableHandle] = []
        self._open: contextlib.ExitStack | None = None
        self._found: Measurement | None = None
        self._device: torch.device | None = None
        self._base = 0
        self._peak: int | None = None
        self._seen = False  # a gradient

    def begin(self, model: nn.Module, optimizer: torch.optim.Optimizer | None, stored: int) -> None:
        """A pass begins, and `stored` bytes of earlier ones are still held."""
        self.end()
        trained = [p for p in model.parameters() if p.requires_grad]
        if not trained:
            return
        self._base = held_by(model, optimizer) + stored
        self._device = trained[0].device
        if accelerator.peak(self._device) is not None:
            accelerator.reset_peak(self._device)
        else:
            stack = contextlib.ExitStack()
            try:
                self._found = stack.enter_context(measure())
            except RuntimeError:  # a profiler of the user's is running
                return
            self._open = stack
        me = weakref.ref(self)

        @not_compiled
        def backward(_: Tensor) -> None:
            if (this := me()) is not None:
                this._seen = True

        def stepped(*_: object) -> None:
            if (this := me()) is not None:
                this._stop()

        hook = unserializable_hook(backward)
        self._handles = [p.register_hook(hook) for p in trained]
        self._handles.append(register_optimizer_step_pre_hook(stepped))

    def end(self) -> int | None:
        """The peak of the last pass; None when it was not measured or had no backward."""
        self._stop()
        peak, self._peak = self._peak, None
        return peak

    def _stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        seen, self._seen = self._seen, False
        if self._open is not None:
            self._open.close()
            self._open = None
            if seen and self._found is not None:
                self._peak = self._base + self._found.live_peak
        elif seen and self._device is not None:
            self._peak = accelerator.peak(self._device)
