"""The model's own tensors: parameters and buffers, frozen ones too, are never stored."""

from __future__ import annotations

import weakref

from torch import Tensor, nn

from actzip.autograd.identity import storage_of

_USUAL = (Tensor, nn.Parameter)


class Weights:
    """Names of the storages that a model's parameters and buffers live in, as they are when
    somebody first asks: most passes of a small model never do."""

    __slots__ = ("_root", "_storages")

    def __init__(self, root: nn.Module | None):
        self._root = None if root is None else weakref.ref(root)
        self._storages: set[int] | None = None

    @property
    def storages(self) -> set[int]:
        if self._storages is None:
            root = None if self._root is None else self._root()
            self._storages = set() if root is None else _storages(root)
        return self._storages


def _storages(root: nn.Module) -> set[int]:
    # not parameters() or modules(), whose generators cost more than all the rest
    found, seen, waiting = set(), {root}, [root]
    while waiting:
        module = waiting.pop()
        for t in (*module._parameters.values(), *module._buffers.values()):
            if t is None:
                continue
            try:  # `storage_of`, written out: a call for each would cost more
                usual = type(t) in _USUAL and not t.is_nested
                storage = t.untyped_storage() if usual else storage_of(t)
            except RuntimeError:
                continue
            if storage is not None:
                found.add(storage._cdata)
        for child in module._modules.values():
            if child is not None and child not in seen:
                seen.add(child)
                waiting.append(child)
    return found
