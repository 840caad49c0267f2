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


def mixture(seed: int) -> Around:
    """Half of the saved tensors are cloned: a later edit reaches the others only."""

    def around() -> contextlib.AbstractContextManager[object]:
        draws = np.random.default_rng(seed)
        return hooked(lambda t: cloned(t) if draws.uniform() < 0.5 else t, lambda t: t)

    return around


@contextlib.contextmanager
def hooked(pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> Iterator[None]:
    """Hooks on all that is saved, but for what torch.func saves for its own gradients: it refuses
    to run under hooks, and what it leaves in the graph around it is packed all the same."""
    on = patch.object(torch.autograd.graph, "disable_saved_tensors_hooks", contextlib.nullcontext)
    drawn = _Drawn(pack)
    with on, drawn, saved_tensors_hooks(drawn.pack, lambda late: unpack(late.packed)):
        yield


#: Functions that only compare what they saved, for equality or with bounds: no method has an error
#: in that.
_COMPARES = {
    *("min", "max", "amin", "amax", "aminmax", "median", "nanmedian", "norm", "vector_norm"),
    *("relu", "relu_", "relu6", "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_", "threshold"),
    *("clamp", "clamp_", "clamp_min", "clamp_max", "clip", "hardshrink", "softshrink"),
}
#: Copies, which come back with the errors of what they are copies of.
_COPIES = ("to", "type", "type_as", "bfloat16", "half", "float", "double", "clone", "contiguous")
#: What a method that derives makes again from values with errors; their slopes are about 1.
_DERIVED = ("neg", "abs", "gelu", "silu", "mish", "hardswish", "elu", "celu", "softplus")


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


class _Peaks(TorchFunctionMode):
    """The peak that a code of each tensor goes by, also of what it is a copy of; None where it is
    kept exactly.

    remembers  the largest that such a tensor had so far: bounds are of steps that are over
    """

    def __init__(self, derives: bool, remembers: bool):
        super().__init__()
        self._remembers = remembers
        self._before: dict[Any, float] = {}
        self._running = ""
        self._follow = (*_COPIES, *(_DERIVED if derives else ()))
        self._known: dict[int, tuple[Tensor, float]] = {}  # by storage, which is held
        self._compares = 0

    def of(self, t: Tensor) -> float | None:
        if self._compares:
            return None
        base = t if t._base is None or t._base.dtype != t.dtype else t._base
        known = self._known.get(_storage(t), (t, 0.0))[1]
        peak = max(known, float(base.detach().double().abs().max()))
        if self._remembers:
            place = self._running, t.shape, t.dtype
            peak = self._before[place] = max(peak, self._before.get(place, 0.0))
        return peak

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        self._compares += name in _COMPARES
        before, self._running = self._running, name
        try:
            out = func(*args, **(kwargs or {}))
        finally:
            self._compares -= name in _COMPARES
            self._running = before
        x = args[0] if args else None
        if name in self._follow and _has_values(x) and _has_values(out):
            with torch.no_grad():
                self._known[_storage(out)] = out.detach(), self.of(x) or 0.0
        return out


def _storage(t: Tensor) -> int:
    return int(t.untyped_storage()._cdata)


def _has_values(t: object) -> bool:
    return (
        isinstance(t, Tensor)
        and not is_functorch_wrapped_tensor(t)
        and t.layout is torch.strided
        and not t.is_nested
        and t.is_floating_point()
        and t.numel() > 0
    )


def noise(
    seed: int,
    share: float,
    error: float,
    *,
    derives: bool = False,
    remembers: bool = False,
    all_of_it: bool = True,
) -> Around:
    """Noise on all that is saved, or on half of it: this share of each tensor's peak, and this
    error."""

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        generator = np.random.default_rng(seed)  # torch's own is refused inside vmap

        peaks = _Peaks(derives, remembers)

        def pack(t: Tensor) -> Tensor:
            if not all_of_it and generator.uniform() < 0.5:
                return t.clone()
            return _shaken(t, generator, peaks, share, error)

        with peaks, hooked(pack, lambda t: t):
            yield

    return around


def _shaken(
    t: Tensor, generator: np.random.Generator, peaks: _Peaks, share: float, error: float
) -> Tensor:
    with torch.no_grad():
        if not _has_values(t):
            return t.clone()
        peak = peaks.of(t)
        step = 0.0 if peak is None else peak * share + error
        noise = torch.from_numpy(np.asarray(generator.uniform(-1, 1, t.shape)))
        out = torch.empty_like(t)
        return out.copy_(t.double() + step * noise)
