"""Tensors that are exact copies of others: casts and reorderings seen being made.

Attention's output is saved by attention and again, reordered, by the projection that follows;
under autocast three projections save three bf16 casts of one input. One of each is enough.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

from actzip.autograd.identity import (
    Key,
    Place,
    key_of,
    node_of,
    source_of,
    storage_of,
    tensors_in,
    unit_of,
)
from actzip.autograd.recipe import remake
from actzip.autograd.slots import COPIES, RESHAPES, Node


@dataclass(frozen=True)
class Origin:
    """A tensor that was copied, and the part of it that was read."""

    key: Key
    place: Place | None
    numel: int
    unit: weakref.ref[Tensor]

    @staticmethod
    def of(t: Tensor) -> Origin:
        unit, place = unit_of(t)
        return Origin(key_of(unit), place, t.numel(), weakref.ref(unit))

    def gives(self, copy: Tensor) -> bool:
        """Whether making it again gives these values; edits through `.data` leave no trace."""
        source = self.unit()
        if source is None or source._version != self.key[1]:
            return False
        layout = Place.of(copy, origin=int(copy.storage_offset()))
        return torch.equal(remake(source, self.place, layout, copy.dtype), copy)


class Copies:
    """What was copied into what, by the clone and cast nodes of this pass."""

    def __init__(self) -> None:
        self.pending: dict[int, Origin] = {}  #: by the nodes of the call that runs now
        self._outputs: dict[Key, Origin] = {}  # of earlier ones
        self.some = False  #: whether anything was copied
        self._first: dict[tuple[object, ...], Origin] = {}

    def made(self, number: int, node: Node, args: object) -> Tensor | None:
        """A copy node was made by a call with these arguments; gives back what it copied."""
        source = source_of(node, tensors_in(args))
        if source is None or storage_of(source) is None:
            return None
        self.pending[number] = Origin.of(source)
        self.some = True
        return source

    def returned(self, tensors: list[Tensor]) -> None:
        """The call that made the copies gave these to the user: from now on its key tells whether a
        tensor is still that copy; its node would not (edits under no_grad leave it)."""
        for t in tensors:
            unit = t if t._base is None else t._base
            origin = self._by_node(unit)
            if origin is not None:
                self._outputs[key_of(unit)] = origin
        self.pending.clear()

    def inner(self, unit: Tensor) -> Origin | None:
        """What unit is a copy of, if the running call made it for itself (autocast does)."""
        return self._by_node(unit)

    def outer(self, key: Key) -> Origin | None:
        """What the tensor of this key is a copy of, if an earlier call gave it to the user; a thin
        slice of a copy, which stands for itself, is none."""
        return self._outputs.get(key)

    def first(self, origin: Origin, unit: Tensor) -> Origin | None:
        """An earlier inner copy of the same values, dtype and layout; None if unit is the first."""
        kind = (origin.key, origin.place, unit.dtype, unit.size(), unit.stride(), unit.device)
        first = self._first.setdefault(kind, Origin.of(unit))
        return None if first.key == key_of(unit) else first

    def _by_node(self, unit: Tensor) -> Origin | None:
        """By the node that made unit: a copy, or a reshape that copies (UnsafeView over Clone)."""
        node = node_of(unit)
        reshaped = False
        while node is not None and type(node).__name__ in RESHAPES:
            node, reshaped = node.next_functions[0][0], True
        if node is None or type(node).__name__ not in COPIES:
            return None
        origin = self.pending.get(node._sequence_nr())
        if origin is None or origin.numel != unit.numel():
            return None
        source = origin.unit()
        if source is None or source.device != unit.device:
            return None
        return None if reshaped and not unit.is_contiguous() else origin
