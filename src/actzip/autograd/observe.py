"""Looks at the backward of one forward pass: what came to each op, what it gave, what it read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from actzip.autograd.saved import Reader
from actzip.autograd.slots import COPIES, VIEWS, Node, slots_of
from actzip.control.backward import Backward
from actzip.control.error import weights
from actzip.control.reading import reading
from actzip.control.statistics import Statistics

_SAVED, _RAW = "_saved_", "_raw_saved_"
_OPTIONS: dict[type, tuple[str, ...]] = {}


class Observer:
    """Hangs a look on each node that reads a stored tensor."""

    def __init__(self, statistics: Statistics, step: int):
        self._statistics = statistics
        self._step = step
        self._indices = statistics.indices

    def watch(self, node: Any, readers: dict[str, Reader]) -> None:
        """These slots of a node have just been stored."""
        for reader in readers.values():
            self._statistics.expect(reader.stored.site)
        node.register_hook(_Look(self, node, readers))

    def tell(self, b: Backward, reader: Reader) -> None:
        """Backward read one of them."""
        site = reader.stored.site
        try:
            w = weights(b)
            if w is None:
                return
            lifted = reader.lift(b.x), reader.lift(w.parameter), reader.lift(w.input)
            x, parameter, travels = lifted
            assert x is not None
            w = type(w)(parameter, travels, w.worst_parameter, w.worst_input)
            found = reading(b, w, x)
        except (RuntimeError, ValueError, KeyError, IndexError) as error:
            # statistics only steer precision: what cannot be told must not end the user's run
            self._statistics.missing[site] = f"{b.node}.{b.slot}: {error}"
            return
        self._statistics.add(self._step, site, found)
        if self._indices is not None:
            self._statistics.remember(site, self._indices, found)


class _Look:
    """A node's hook: runs once, right after the node's backward."""

    def __init__(self, observer: Observer, node: Any, readers: dict[str, Reader]):
        self._observer: Observer | None = observer
        self._name = type(node).__name__
        self._leaves = tuple(_is_leaf(parent) for parent, _ in node.next_functions)
        self._saved = _small(node, readers)
        self._readers = readers
        self._values: dict[str, Tensor] = {}
        for slot, reader in readers.items():
            reader.seen = self._see(slot)

    def _see(self, slot: str) -> Callable[[Tensor], None]:
        values = self._values

        def see(t: Tensor) -> None:
            values[slot] = t.detach()

        return see

    def __call__(self, gave: tuple[Tensor | None, ...], came: tuple[Tensor | None, ...]) -> None:
        observer, self._observer = self._observer, None  # a second backward tells nothing new
        values, outer = dict(self._values), came[0]
        self._values.clear()
        for reader in self._readers.values():
            reader.seen = None
        if observer is None or outer is None:
            return
        with torch.no_grad(), torch._C.DisableTorchFunction():
            saved = {**self._saved, **values}
            for slot, reader in self._readers.items():
                if slot in values:
                    given = tuple(None if g is None else g.detach() for g in gave)
                    b = Backward(
                        self._name, slot, values[slot], outer.detach(), given, self._leaves, saved
                    )
                    observer.tell(b, reader)
        self._readers = {}


def _small(node: Any, readers: dict[str, Reader]) -> dict[str, Any]:
    """The node's options, and the tensors that autograd holds itself: weights, statistics."""
    kind = type(node)
    if kind not in _OPTIONS:
        tensors = {_SAVED + slot for slot in slots_of(node)}
        names = (n for n in dir(kind) if n.startswith(_SAVED) and n not in tensors)
        _OPTIONS[kind] = tuple(names)
    found = {name.removeprefix(_SAVED): getattr(node, name) for name in _OPTIONS[kind]}
    for slot in slots_of(node):
        raw = getattr(node, _RAW + slot)
        if slot in readers or type(raw) is tuple or raw is None or raw.unpack_hook is not None:
            continue
        t = raw.data
        if isinstance(t, Tensor):
            found[slot] = t.detach()
    return found


def _is_leaf(node: Node | None) -> bool:
    """Whether a gradient ends at a parameter: through views and casts, nothing else."""
    while node is not None and (node.name() in VIEWS or node.name() in COPIES):
        node = node.next_functions[0][0]
    return node is not None and isinstance(getattr(node, "variable", None), nn.Parameter)
