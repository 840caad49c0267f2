"""Of which order is an op: does it compute values, their gradients, the gradients of those, …?

With `create_graph=True` backward makes a graph, and under `with compress():` it begins a new pass.
Its ops, and those of the user that read gradients, are named after others of the same kind in the
graph of the values, but have other values: what a method learned of one is of no use to the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from actzip.autograd.slots import Node

_KEPT = 8  #: graphs that backward made; older ones are of steps that are over


class GradientGraphs:
    """Graphs that the backward passes of one thread made, by their nodes' sequence numbers."""

    def __init__(self) -> None:
        self._made: list[tuple[range, int]] = []
        self._known: dict[int, int] = {}  # orders of nodes that were asked for

    def __bool__(self) -> bool:
        return bool(self._made)

    def begin(self) -> None:
        """A new pass: its nodes are others."""
        self._known.clear()

    def made(self, numbers: range, differentiated: Iterable[Any]) -> None:
        """A backward from these nodes made the nodes with these numbers."""
        order = 1 + max((self.order(n) for n in differentiated if n is not None), default=0)
        self._made = [*self._made[1 - _KEPT :], (numbers, order)]
        self._known.clear()

    def order(self, node: Node) -> int:
        """0 of what reads no gradients."""
        if not self._made:
            return 0
        first, known = self._made[0][0].start, self._known
        stack = [node]
        while stack:  # parents first; PyTorch's graphs are deeper than Python's stack
            top = stack[-1]
            number = int(top._sequence_nr())
            parents = [p for p, _ in top.next_functions if p is not None]
            # older than all that backward made, which a leaf's is not
            parents = [p for p in parents if p.next_functions and p._sequence_nr() >= first]
            open_ = [p for p in parents if p._sequence_nr() not in known]
            own = next((order for numbers, order in self._made if number in numbers), 0)
            if own or not open_:
                above = (known[p._sequence_nr()] for p in parents if not own)
                known[number] = max(own, *above, 0)
                stack.pop()
            else:
                stack += open_
        return known[int(node._sequence_nr())]
