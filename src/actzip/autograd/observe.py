"""Looks at the backward of one forward pass: what came to each op, what it gave, what it read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from actzip.autograd.identity import storage_of
from actzip.autograd.in_parts import in_parts, times
from actzip.autograd.recipe import Reader
from actzip.autograd.slopes import coded, slopes, unevenness
from actzip.autograd.slots import Node, op, slots_of
from actzip.autograd.stored import Stored
from actzip.codecs.base import Payload
from actzip.control import batchnorm_trail
from actzip.control.backward import Backward, ErrorWeights, PartialBackward, energy_of
from actzip.control.error import error_weights
from actzip.control.layers import Route
from actzip.control.op import Kind, Op
from actzip.control.propagation import nonzero
from actzip.control.reading import Groups, InParts, Reading, reading
from actzip.control.statistics import Statistics
from actzip.torch_private import DisableTorchFunction, not_compiled

_SAVED, _RAW = "_saved_", "_raw_saved_"
_OPTIONS: dict[type, tuple[str, ...]] = {}

_REACH = 256  #: nodes without a stored tensor that a gradient is followed through
_DEPTH = 64  #: nodes between a weight and its parameters; more are no weight


class Observer:
    """Hangs a look on each node that reads a stored tensor."""

    def __init__(self, statistics: Statistics, step: int):
        self._statistics = statistics
        self._step = step
        self._indices = statistics.indices
        self._nodes: dict[int, str] = {}  # sequence numbers, and the first slot's name
        self._shares: dict[str, Tensor | None] = {}  # what of a site's samples is new by now
        # what sites leave behind in the gradients of these nodes
        self._trails: dict[int, list[tuple[str, batchnorm_trail.Trail]]] = {}

    def watch(self, node: Any, readers: dict[str, Reader]) -> None:
        """These slots of a node have just been stored."""
        traits = _op(node)
        leaves = tuple(_leaf(parent) for parent, _ in node.next_functions)
        names = tuple(name for reader in readers.values() for name in _layers(reader))
        first = names[0]
        for reader in readers.values():
            for stored in coded(reader.stored):
                self._statistics.expect(stored.site)
        for name in names:
            owners = (p for p in leaves if p is not None)
            self._statistics.layers.expect(name, traits.kind, owners)
        ends = [p is not None for p in leaves]
        at = traits.weight
        if at is not None and not ends[at]:
            made, conv = node.next_functions[at][0], traits.kind is Kind.CONVOLUTION
            ends[at] = made is not None and (conv or self._is_weight(made))
        self._statistics.layers.connect(self._route(node, names, ends))
        self._nodes[int(node._sequence_nr())] = first
        node.register_hook(_Look(self, node, readers, tuple(ends)))

    def _route(self, node: Any, names: tuple[str, ...], ends: list[bool]) -> Route:
        """Through nodes that store nothing to those that do, and to parameters on the way."""
        at = _op(node).weight
        biases = sum(ends) - (at is not None and ends[at])
        inputs = zip(node.next_functions, ends, strict=True)
        stack = [parent for (parent, _), end in inputs if parent is not None and not end]
        parents: dict[str, None] = {}
        leaves, seen = 0, {id(None)}
        while stack and len(seen) < _REACH:
            node = stack.pop()
            number = int(node._sequence_nr())
            leaf = getattr(node, "variable", None)
            if leaf is not None:
                leaves += 1
            elif number in self._nodes:
                parents[self._nodes[number]] = None
            elif number not in seen:
                seen.add(number)
                stack.extend(parent for parent, _ in node.next_functions if parent is not None)
        return Route(names, tuple(parents), leaves, biases)

    def _is_weight(self, node: Node | None) -> bool:
        """Whether a tensor is made from parameters alone, as with weight or spectral norm, LoRA."""
        stack, seen = [node], 0
        while stack:
            node, seen = stack.pop(), seen + 1
            if node is None:
                continue
            kind, stores = _op(node).kind, int(node._sequence_nr()) in self._nodes
            if seen > _DEPTH or kind is Kind.INDEXING:
                return False
            if stores and kind is not Kind.VECTOR:
                return False
            leaf = getattr(node, "variable", None)
            if leaf is not None and not isinstance(leaf, nn.Parameter):
                return False
            stack.extend(parent for parent, _ in node.next_functions)
        return seen > 1

    def read(self, b: Backward, reader: Reader, number: int, makers: tuple[int, ...]) -> None:
        """Backward of node `number` read one of them; `makers` are the nodes that made it."""
        sources = coded(reader.stored)  # none: autograd keeps it after all, there is no error
        try:
            told = _read(b, reader, sources) if sources else {}
            if told is None:
                why = f"{b.node}.{b.slot}: no error formula"
                self._statistics.missing.update({stored.site: why for stored in sources})
                return
            for name, (stored, found) in zip(_layers(reader), told.items(), strict=bool(told)):
                # an overflow says nothing, and would stay in every mean; nor does a gradient of 0,
                # behind a head that starts at zero say: the next one need not be 0
                if found.is_finite() and found.is_felt():
                    self._add(found, name, stored.site)
            if told:
                self._follow(b, reader, number, makers)
        except PartialBackward:
            pass
        except Exception as error:
            # statistics only steer precision: what cannot be read must not end the user's run
            why = f"{b.node}.{b.slot}: {type(error).__name__}: {error}"
            self._statistics.missing.update({stored.site: why for stored in sources})

    def _add(self, found: Reading, layer: str, site: str) -> None:
        self._statistics.add(self._step, site, found)
        self._statistics.layers.add(self._step, layer, site, found)
        if self._indices is not None:
            known = self._shares.get(site)
            new = found.parameter + found.input
            self._shares[site] = self._statistics.remember(site, self._indices, new, known)

    def _follow(self, b: Backward, reader: Reader, number: int, makers: tuple[int, ...]) -> None:
        """Noise that is common to many positions: leave it to the makers, take what was left."""
        for site, left in self._trails.pop(number, ()):
            weight = batchnorm_trail.trail_weights(b, left)
            if weight is not None:
                self._statistics.layers.add_trail(self._step, site, reader.name, weight)
        coded_itself = isinstance(reader.stored.value, Payload)
        made = [n for n in makers if n in self._nodes] if coded_itself else []
        trail = batchnorm_trail.trail(b, unevenness(reader.stored, b.x)) if made else None
        if trail is not None:
            for n in made:
                self._trails.setdefault(n, []).append((reader.stored.site, trail))


def _layers(reader: Reader) -> list[str]:
    """The layers that a slot is: one for each tensor whose code it has the errors of."""
    sources = coded(reader.stored)
    if len(sources) < 2:
        return [reader.name]
    return [f"{reader.name} of {stored.site}" for stored in sources]


def _read(b: Backward, reader: Reader, sources: list[Stored]) -> dict[Stored, Reading] | None:
    """What this backward says of the stored tensors; None when there is no formula."""
    alone = sources == [reader.stored]
    if alone and (parts := in_parts(b, reader)) is not None:
        return {reader.stored: _reading(b, *parts, reader.stored)}
    w = error_weights(b)
    if w is None:
        return None
    x, parameter, travels = (reader.lift(t) for t in (b.x, w.parameter, w.input))
    assert x is not None, "a tensor that is there was lifted to nothing"
    if alone:
        w = type(w)(parameter, travels, w.worst_parameter, w.worst_input)
        return {reader.stored: _reading(b, w, x, reader.stored)}
    values = {stored: stored.tensor() for stored in sources}
    pulled = [slopes(reader.stored, values, each) for each in (parameter, travels)]
    each_w = {s: type(w)(pulled[0].get(s), pulled[1].get(s), None, None) for s in sources}
    found = {s: _reading(b, each_w[s], values[s], s) for s in sources}
    return {s: _as_read(r, b, w, len(sources)) for s, r in found.items()}


def _as_read(r: Reading, b: Backward, w: ErrorWeights, sources: int) -> Reading:
    """A reading of what a tensor is made from, with the power that tells what its reader's
    parameters get of noise from above (propagation.absorbed): that is the reader's own affair, and
    with several sources it is told in as many parts."""
    if w.parameter is None:
        return r
    whole = float(w.parameter.double().sum()) * (b.x.numel() / max(1, w.parameter.numel()))
    pulled = float(r.parameter.sum()) / nonzero(r)
    power = energy_of(b.x) / max(1, b.x.numel()) * whole / sources / max(pulled, 1e-300)
    return replace(r, power=torch.tensor(power if pulled > 0 else 0.0, dtype=torch.float64))


def _reading(b: Backward, w: ErrorWeights | InParts, x: Tensor, stored: Stored) -> Reading:
    assert isinstance(stored.value, Payload), "an error is a code's"
    grouping = stored.value.codec.grouping()
    uneven = unevenness(stored, x)
    if uneven is not None:
        w = times(w, x, uneven)
    groups = None if grouping is None else Groups(grouping[0], by_sample=grouping[1])
    return reading(b, w, x, groups)


class _Look:
    """A node's hook: runs once, right after the node's backward."""

    def __init__(
        self, observer: Observer, node: Any, readers: dict[str, Reader], leaves: tuple[bool, ...]
    ):
        self._observer: Observer | None = observer
        self._name, self._op = type(node).__name__, _op(node)
        self._number = int(node._sequence_nr())
        self._makers = _makers(node)
        self._leaves = leaves
        self._wanted = tuple(parent is not None for parent, _ in node.next_functions)
        self._saved = _small(node, readers)
        self._readers = readers
        self._values: dict[str, Tensor] = {}
        for slot, reader in readers.items():
            reader.seen = self._kept(slot)

    def _kept(self, slot: str) -> Callable[[Tensor], None]:
        values = self._values

        def keep(t: Tensor) -> None:
            values[slot] = t.detach()

        return keep

    @not_compiled
    def __call__(self, gave: tuple[Tensor | None, ...], came: tuple[Tensor | None, ...]) -> None:
        if not all(_is_ordinary(t) for t in (*gave, *came)):
            self._values.clear()
            return
        observer, self._observer = self._observer, None  # a second backward says nothing new
        values, outer = dict(self._values), came[0]
        saved, self._saved = {**self._saved, **values}, {}  # this hook may outlive the backward
        readers, self._readers = self._readers, {}
        self._values.clear()
        for reader in readers.values():
            reader.seen = None
        if observer is None or outer is None:
            return
        outer = outer.detach()
        given, others = (
            tuple(None if g is None else g.detach() for g in each) for each in (gave, came[1:])
        )
        # autocast: backward may run inside it, and squares overflow in 16 bits
        still = torch.autocast(outer.device.type, enabled=False)
        with torch.no_grad(), DisableTorchFunction(), still:
            for slot, reader in readers.items():
                if slot in values:
                    x = values[slot]
                    about = self._name, self._op, slot
                    kept = saved, others, self._wanted
                    b = Backward(*about, x, outer, given, self._leaves, *kept)
                    observer.read(b, reader, self._number, self._makers)


def _is_ordinary(t: Tensor | None) -> bool:
    """Not a tensor of vmap, as `is_grads_batched` makes them, or of another transform."""
    return t is None or storage_of(t) is not None


def _op(node: Node) -> Op:
    return op(type(node).__name__)


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


def _makers(node: Any) -> tuple[int, ...]:
    """The nodes that made an op's first input, looking through sums."""
    stack = [node.next_functions[0][0]] if node.next_functions else []
    found: list[int] = []
    while stack and len(found) < _DEPTH:
        parent = stack.pop()
        if parent is None:
            continue
        if _op(parent).kind is Kind.SUM:
            stack.extend(p for p, _ in parent.next_functions)
        else:
            found.append(int(parent._sequence_nr()))
    return tuple(found)


def _leaf(node: Node | None) -> Tensor | None:
    """The leaf that a gradient ends at: through views and casts, nothing else.

    Mostly a parameter, but weights may be mere tensors, and the gradient of an input may be what
    is wanted: whoever gets a gradient is told what noise it has.
    """
    while node is not None and _op(node).kind in (Kind.VIEW, Kind.COPY):
        node = node.next_functions[0][0]
    found: Tensor | None = getattr(node, "variable", None)
    return found
