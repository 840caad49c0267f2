"""Plain runs with hooks on all that is saved: what gradients are without edits, and with noise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from actzip.autograd.identity import storage_of
from fuzz.program import Around


def snapshots() -> contextlib.AbstractContextManager[object]:
    """Every saved tensor is cloned when it is saved: no later edit reaches it."""
    return hooked(cloned, lambda t: t)


@contextlib.contextmanager
def hooked(pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> Iterator[None]:
    """Hooks on all that is saved, but for what torch.func saves for its own gradients: it refuses
    to run under hooks, and what it leaves in the graph around it is packed all the same."""
    on = patch.object(torch.autograd.graph, "disable_saved_tensors_hooks", contextlib.nullcontext)
    drawn = _Drawn(pack)
    with on, drawn, saved_tensors_hooks(drawn.pack, lambda late: unpack(late.packed)):
        yield


class _Late:
    packed: Any


class _Drawn(TorchFunctionMode):
    """RReLU's noise is given to hooks before it is drawn: it is packed when RReLU has run."""

    def __init__(self, pack: Callable[[Tensor], Any]):
        super().__init__()
        self._pack = lambda t: t if is_functorch_wrapped_tensor(t) else pack(t)
        self._waiting: list[tuple[_Late, Tensor]] | None = None

    def pack(self, t: Tensor) -> _Late:
        late = _Late()
        if self._waiting is None:
            late.packed = self._pack(t)
        else:
            self._waiting.append((late, t.detach()))
        return late

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func not in (F.rrelu, torch.rrelu, torch.rrelu_):
            return func(*args, **(kwargs or {}))
        self._waiting = waiting = []
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._waiting = None
            for late, t in waiting:
                late.packed = self._pack(t)


def cloned(t: Tensor) -> Tensor:
    """A copy that is laid out as t is: other strides give gradients another rounding."""
    with torch.no_grad():
        if storage_of(t) is None or t.is_conj() or t.is_neg() or t._is_zerotensor():
            return t.clone()
        out = torch.empty(0, dtype=t.dtype)
        return out.set_(t.untyped_storage().clone(), t.storage_offset(), t.size(), t.stride())


def noise(seed: int, share: float, error: float) -> Around:
    """Noise on all that is saved: this share of each tensor's peak, and this error."""

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        generator = np.random.default_rng(seed)  # torch's own is refused inside vmap

        def pack(t: Tensor) -> Tensor:
            return _shaken(t, generator, share, error)

        with hooked(pack, lambda t: t):
            yield

    return around


def _shaken(t: Tensor, generator: np.random.Generator, share: float, error: float) -> Tensor:
    with torch.no_grad():
        if not t.is_floating_point() or not t.numel() or t.layout is not torch.strided:
            return t.clone()
        base = t if t._base is None or t._base.dtype != t.dtype else t._base
        step = base.double().abs().max() * share + error
        noise = torch.from_numpy(np.asarray(generator.uniform(-1, 1, t.shape)))
        out = torch.empty_like(t)
        return out.copy_(t.double() + step * noise)
