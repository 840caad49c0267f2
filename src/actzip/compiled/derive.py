"""What a compiled graph need not save, because it is a cheap function of what it packs.

The partitioner decides before anything is packed, and keeps a GELU's input and its result both. For
a session that derives, such a result is made again in backward from what its source decodes to, by
the ops of the forward graph, copied: under the same rules as in autograd/derive_lossy.py. Slopes
are bounded, a norm has the moments that it had, a sum has one lossy source, a product at most two,
and nothing is made from a tensor that is coded for a weaker need. A ReLU's mask is exact: what it
cuts off is made again, and the mask is in the code of what that is made from, or beside it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from actzip.autograd.derive import DEPTH, SHARE
from actzip.compiled import functions, names
from actzip.compiled.effect import hint, of_activation
from actzip.compiled.graph_nodes import is_written
from actzip.methods.base import STRENGTH, Role

_SOURCES = 2  #: lossy ones, a gate and what it gates
CODED = (Role.LINEAR, Role.NONLINEAR)
_BATCH = ("_native_batch_norm_legit_functional",)
#: Norms, and where they have their weights and biases among the arguments.
_NORMS = {"native_layer_norm": (2, 3), **dict.fromkeys(_BATCH, (1, 2))}
_aten = torch.ops.aten


@dataclass
class Made:
    """How one tensor is made again."""

    #: nodes to copy, in order, and the lossy tensors that each is a function of
    reached: dict[Node, set[Node]] = field(default_factory=dict)
    sources: list[Node] = field(default_factory=list)  #: those of the tensor itself
    small: list[Node] = field(default_factory=list)  #: weights of norms that backward has not yet
    takes: bool = False  #: any small tensor may be passed on, moments of norms too


class Derive:
    """`roles`: of what is packed, and does not come back as it was; `homes`: all that backward is
    given, by the forward's nodes; `exact`: what of it comes back bit for bit; `static`: parameters.
    """

    def __init__(
        self,
        roles: Mapping[Node, Role],
        homes: Mapping[Node, Node],
        exact: set[Node],
        static: set[Node],
    ):
        self._roles, self._homes = dict(roles), dict(homes)
        self._exact, self._static = set(exact), static

    def add(self, node: Node, home: Node) -> None:
        """Backward is given this, too."""
        self._homes[node] = home
        self._exact.add(node)

    def find(self, node: Node, role: Role) -> Made | None:
        """How the forward's graph makes this one from others that backward has."""
        made = Made()
        found = self._reach(node, made, 0, node) if role in CODED else None
        if not found or len(found) > _SOURCES:
            return None
        if any(STRENGTH[self._roles[source]] < STRENGTH[role] for source in found):
            return None
        made.sources = sorted(found, key=lambda source: source.name)
        return made

    def before(self, relu: Node) -> Made | None:
        """The same for what a ReLU cut off, from one tensor of its shape."""
        below = relu.args[0]
        assert isinstance(below, Node)
        made = Made(takes=True)
        found = self._reach(below, made, 0, relu)
        if not found or len(found) > 1:
            return None
        (source,) = made.sources = list(found)
        same = source.meta["val"].shape == relu.meta["val"].shape
        return made if same and source.meta["val"].dtype is relu.meta["val"].dtype else None

    def has(self, node: Node) -> bool:
        return node in self._homes

    def derived(self, node: Node) -> None:
        """It is no longer there to make others from."""
        del self._roles[node], self._homes[node]

    def copy(self, made: Made, graph: Graph) -> Node:
        """Copies of its nodes at the place where the graph inserts; the last of them."""
        there = dict(self._homes)
        last = there[made.sources[0]]
        for node in made.reached:  # the tensor itself comes last
            there[node] = last = _copied(node, graph, there)
        return last

    def _reach(self, node: Node, made: Made, depth: int, wanted: Node) -> set[Node] | None:
        """The lossy tensors that a node can be had from in backward; None: it cannot."""
        if node in made.reached:
            return made.reached[node]
        if node is not wanted and node in self._homes:
            return {node} if node in self._roles else set() if node in self._exact else None
        if (node in self._static or made.takes) and _is_small(node, wanted):
            made.small.append(node)
            return set()
        if depth == 2 * DEPTH or node.op != "call_function" or not _is_cheap(node):
            return None
        found: set[Node] = set()
        needs = _needs(node)
        for each in needs:
            sources = self._reach(each, made, depth + 1, wanted)
            if sources is None:
                return None
            found |= sources
        if not needs or (names.function(node.target) in functions.SUMS and len(found) > 1):
            return None
        made.reached[node] = found
        return found


def _is_small(node: Node, wanted: Node) -> bool:
    val = node.meta.get("val")
    if not isinstance(val, Tensor) or not val.dtype.is_floating_point:
        return False
    return not is_written(node) and SHARE * hint(val.numel()) <= hint(wanted.meta["val"].numel())


def _needs(node: Node) -> list[Node]:
    """What it is made from: of a norm its moments, too, and of a dropout its mask."""
    if node.target is not operator.getitem:
        return list(node.all_input_nodes)
    (whole, item) = node.args
    assert isinstance(whole, Node)
    if item != 0:
        return []
    kept = {user.args[1]: user for user in whole.users if user.target is operator.getitem}
    name = names.function(whole.target)
    more = (1, 2) if name in _NORMS else (1,)
    if not all(each in kept for each in more):
        return []
    given = whole.all_input_nodes
    if name in _NORMS:
        wanted = [whole.args[at] for at in (0, *_NORMS[name])]
        given = [each for each in wanted if isinstance(each, Node)]
    return [*given, *(kept[each] for each in more)]


def _is_cheap(node: Node) -> bool:
    val = node.meta.get("val")
    if not isinstance(val, Tensor):
        return False
    if node.target is operator.getitem:
        whole = node.args[0]
        name = names.function(whole.target) if isinstance(whole, Node) else ""
        floats = val.dtype.is_floating_point and val.is_contiguous()
        dense = floats or (val.dtype.is_floating_point and name in _BATCH)
        return dense if name in _NORMS else name == "native_dropout" and floats
    name, second = names.function(node.target), node.args[1] if len(node.args) > 1 else None
    if of_activation(node):
        return True
    if name == "div":
        return isinstance(second, (int, float))
    if name == "pow":
        return isinstance(second, (int, float)) and second in (1, 2, 3)
    return name in functions.TAME


def _copied(node: Node, graph: Graph, there: Mapping[Node, Node]) -> Node:
    if node.target is not operator.getitem:
        return graph.node_copy(node, there.__getitem__)
    call = _Calls(graph, node)
    whole = node.args[0]
    assert isinstance(whole, Node)
    if names.function(whole.target) == "native_dropout":
        x, mask = (there[each] for each in _needs(node))
        share: Any = whole.args[1]
        return call(_aten.mul.Scalar, call(_aten.mul.Tensor, x, mask), 1 / (1 - share))
    name = names.function(whole.target)
    source, weight, bias = (whole.args[at] for at in (0, *_NORMS[name]))
    mean, rstd = (there[each] for each in _needs(node)[-2:])
    assert isinstance(source, Node)
    dims = node.meta["val"].dim()

    def spread(t: Node) -> Node:
        """A value of each channel beside the elements."""
        shape = [1, t.meta["val"].numel(), *[1] * (dims - 2)]
        return call(_aten.view.default, t, shape) if name in _BATCH else t

    y = call(_aten.sub.Tensor, there[source], spread(mean))
    y = call(_aten.mul.Tensor, y, spread(rstd))
    for factor, function in ((weight, _aten.mul.Tensor), (bias, _aten.add.Tensor)):
        y = call(function, y, spread(there[factor])) if isinstance(factor, Node) else y
    dtype = node.meta["val"].dtype
    return y if y.meta["val"].dtype is dtype else call(_aten._to_copy.default, y, dtype=dtype)


def rectified(y: Node, on: Node, graph: Graph, relu: Node) -> Node:
    """A ReLU's result: positive exactly where its mask is on."""
    call, dtype = _Calls(graph, relu), relu.meta["val"].dtype
    device = relu.meta["val"].device
    zero, least = (
        call(_aten.full.default, [], value, dtype=dtype, device=device)
        for value in (0.0, torch.finfo(dtype).tiny)
    )
    return call(_aten.where.self, on, call(_aten.maximum.default, y, least), zero)


class _Calls:
    """Ops of backward that stand for one node of forward, whose names in the model they have."""

    def __init__(self, graph: Graph, like: Node):
        self._graph, self._like = graph, like

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        made = self._graph.call_function(function, args, kwargs)
        made.meta.update({k: v for k, v in self._like.meta.items() if k == "nn_module_stack"})
        made.meta["val"] = function(
            *(a.meta["val"] if isinstance(a, Node) else a for a in args), **kwargs
        )
        return made
