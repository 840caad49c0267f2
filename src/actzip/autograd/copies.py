"""Tensors that are exact copies of others: casts and reorderings seen being made.

Attention's output is saved by attention and again, reordered, by the projection that follows;
under autocast three projections save three bf16 casts of one input. One of each is enough.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from torch import Tensor

from actzip.autograd.identity import Key, Place, key_of, source_of, tensors_in, unit_of
from actzip.autograd.slots import COPIES, Node


@dataclass(frozen=True)
class Origin:
    """A tensor seen earlier in this pass, and the part of it that was read."""

    key: Key
    place: Place | None
    numel: int
    unit: weakref.ref[Tensor]

    @staticmethod
    def of(t: Tensor) -> Origin:
        unit, place = unit_of(t)
        return Origin(key_of(unit), place, t.numel(), weakref.ref(unit))


class Copies:
    """What each clone and cast node of this pass copied, and the first copy of each kind."""

    def __init__(self) -> None:
        self._origins: dict[int, Origin] = {}
        self._first: dict[tuple[object, ...], Origin] = {}

    def made(self, number: int, node: Node, args: object) -> Tensor | None:
        """A copy node was made by a call with these arguments; gives back what it copied."""
        source = source_of(node, tensors_in(args))
        if source is not None:
            self._origins[number] = Origin.of(source)
        return source

    def origin(self, unit: Tensor) -> Origin | None:
        """What unit is a copy of, if that was seen.

        A reshape that copies is a clone in logical order under a new shape; its node chain is
        UnsafeView over Clone.
        """
        node = unit.grad_fn
        reshaped = False
        while node is not None and type(node).__name__ == "UnsafeViewBackward0":
            node, reshaped = node.next_functions[0][0], True
        if node is None or type(node).__name__ not in COPIES:
            return None
        origin = self._origins.get(node._sequence_nr())
        if origin is None or origin.numel != unit.numel():
            return None
        if reshaped and not unit.is_contiguous():
            return None
        source = origin.unit()
        return None if source is not None and source.device != unit.device else origin

    def first(self, origin: Origin, unit: Tensor) -> Origin | None:
        """An earlier copy with the same values, dtype and layout; None if unit is the first."""
        kind = (origin.key, origin.place, unit.dtype, unit.size(), unit.stride(), unit.device)
        first = self._first.setdefault(kind, Origin.of(unit))
        return None if first.key == key_of(unit) else first
