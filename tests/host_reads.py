"""Counts what would make the host wait for a GPU, in code that runs on CPU tensors here."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

#: Operators that read the device, or whose result has a size that only the device knows.
_OPERATORS = {
    *("_local_scalar_dense", "is_nonzero", "item", "equal", "nonzero", "nonzero_numpy"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"),
    *("masked_select", "bincount", "repeat_interleave"),
}
#: What reads memory without an operator.
_METHODS = (
    *("item", "tolist", "numpy", "cpu", "__array__"),
    *("__bool__", "__int__", "__float__", "__index__", "__contains__"),
)


class _Operators(TorchDispatchMode):
    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in _OPERATORS or (name.startswith("index") and _by_mask(args)):
            self.found[_caller()] += 1
        if name == "_to_copy" and (kwargs or {}).get("device", args[0].device) != args[0].device:
            self.found[_caller()] += 1
        return func(*args, **(kwargs or {}))


def _by_mask(args: Any) -> bool:
    """x[mask] looks for the places of the mask, however many they are."""
    indices = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ()
    return any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)


def _caller() -> str:
    """The function of the package that asked."""
    for frame in reversed(traceback.extract_stack()):
        if "/actzip/" in frame.filename:
            return f"{frame.filename.rpartition('/actzip/')[2]}: {frame.name}"
    return "outside"


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Reads by the host, each by the place that asked."""
    found: Counter[str] = Counter()
    own = {name: Tensor.__dict__.get(name) for name in _METHODS}

    def watching(name: str) -> Any:
        method = getattr(Tensor, name)

        def read(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            found[_caller()] += 1
            with torch.utils._python_dispatch._disable_current_modes():
                return method(self, *args, **kwargs)

        return read

    replaced = {name: watching(name) for name in _METHODS}
    for name, method in replaced.items():
        setattr(Tensor, name, method)
    try:
        with _Operators(found):
            yield found
    finally:
        for name, method in own.items():
            if method is None:
                delattr(Tensor, name)
            else:
                setattr(Tensor, name, method)
