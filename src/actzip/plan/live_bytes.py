"""Bytes that the tensors of a plan would hold, op by op."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from actzip import planning
from actzip.plan.workspace import workspace
from actzip.torch_private import TorchDispatchMode, tree_leaves

_aten = torch.ops.aten
_RANDOM = (_aten.bernoulli_, _aten.bernoulli, _aten.native_dropout)
#: oneDNN's recurrent layers keep a workspace for backward; fake tensors have none in its place.
_UNTOLD = (_aten.mkldnn_rnn_layer.default,)


class LiveBytes(TorchDispatchMode):
    """Counts the storages that ops make, from their making to their end.

    Also answers what only values could: two tensors that are compared are equal.
    """

    def __init__(self, before: list[Tensor], device: str = "cpu") -> None:
        """`before`: tensors that were there, and are not counted. `device`: the type of the one
        that the ops are to run on."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._device = device
        self.untold: set[str] = set()  #: ops that keep memory of a size that nobody tells
        self.levels: list[int] = [0]  #: after each op
        storages = [t.untyped_storage() for t in before]
        self._alive = {int(each._cdata): weakref.ref(each) for each in storages}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is _aten.equal.default:
            return args[0].shape == args[1].shape
        out = func(*args, **(kwargs or {}))
        made = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        for t in made:
            self._add(t)
        if func in _UNTOLD:
            self.untold.add(func.overloadpacket.__name__)
        if func.overloadpacket in _RANDOM:
            planning.draws(made[0])
        beside = workspace(func, args, made) if self._device == "cpu" else 0
        self.peak = max(self.peak, self.now + beside)
        self.levels.append(self.now)
        return out

    def _add(self, t: Tensor) -> None:
        storage = t.untyped_storage()
        name, nbytes = storage._cdata, storage.nbytes()
        if name in self._alive:
            return

        def gone(_: object) -> None:
            self._alive.pop(name, None)
            self.now -= nbytes

        self._alive[name] = weakref.ref(storage, gone)
        self.now += nbytes
