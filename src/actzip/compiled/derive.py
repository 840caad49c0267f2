"""What a compiled graph need not save, because it is a cheap function of what it packs.

The partitioner decides before anything is packed, and keeps a GELU's input and its result both. For
a session that derives, such a result is made again in backward from what its source decodes to, by
the ops of the forward graph, copied: under the same rules as in autograd/derive_lossy.py. Slopes
are bounded, a norm has the moments that it had, a sum has one lossy source, a product at most two,
and nothing is made from a tensor that is coded for a weaker need. No ReLUs: their masks are exact.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from actzip.autograd.derive import DEPTH
from actzip.compiled import functions, names
from actzip.methods.base import STRENGTH, Role

_SOURCES = 2  #: lossy ones, a gate and what it gates
CODED = (Role.LINEAR, Role.NONLINEAR)
_aten = torch.ops.aten


@dataclass
class Made:
    """How one tensor is made again: nodes to copy, in order, and the lossy tensors at the end."""

    nodes: list[Node] = field(default_factory=list)
    sources: set[Node] = field(default_factory=set)


class Derive:
    """`roles`: of what is packed, and comes back as it was or not quite; `homes`: all that backward
    is given, by the forward's nodes."""

    def __init__(self, roles: Mapping[Node, Role], homes: Mapping[Node, Node], exact: set[Node]):
        self._roles, self._homes, self._exact = dict(roles), dict(homes), exact

    def find(self, node: Node, role: Role) -> Made | None:
        """How the forward's graph makes this one from others that backward has."""
        made = Made()
        if role not in CODED or not self._reach(node, made, 0, node):
            return None
        if not made.sources or len(made.sources) > _SOURCES:
            return None
        if any(STRENGTH[self._roles[source]] < STRENGTH[role] for source in made.sources):
            return None
        return made

    def derived(self, node: Node) -> None:
        """It is no longer there to make others from."""
        del self._roles[node], self._homes[node]

    def copy(self, made: Made, graph: Graph) -> Node:
        """Copies of its nodes at the place where the graph inserts; the last of them."""
        there = dict(self._homes)
        for node in made.nodes:
            there[node] = _copied(node, graph, there)
        return there[made.nodes[-1]]

    def _reach(self, node: Node, made: Made, depth: int, wanted: Node) -> bool:
        """Whether a node can be had in backward; what it takes is added to `made`."""
        if node in made.nodes:
            return True
        if node is not wanted and node in self._homes:
            if node in self._roles:
                made.sources.add(node)
                return True
            return node in self._exact
        if depth == 2 * DEPTH or node.op != "call_function" or not _is_cheap(node):
            return False
        before = len(made.sources)
        needs = _needs(node)
        if not needs or not all(self._reach(each, made, depth + 1, wanted) for each in needs):
            return False
        if names.function(node.target) in functions.SUMS and len(made.sources) - before > 1:
            return False
        made.nodes.append(node)
        return True


def _needs(node: Node) -> list[Node]:
    """What it is made from: of a norm its moments, too, and of a dropout its mask."""
    if node.target is not operator.getitem:
        return list(node.all_input_nodes)
    (whole, item) = node.args
    assert isinstance(whole, Node)
    if item != 0:
        return []
    kept = {user.args[1]: user for user in whole.users if user.target is operator.getitem}
    more = (1, 2) if names.function(whole.target) == "native_layer_norm" else (1,)
    if not all(each in kept for each in more):
        return []
    return [*whole.all_input_nodes, *(kept[each] for each in more)]


def _is_cheap(node: Node) -> bool:
    val = node.meta.get("val")
    if not isinstance(val, Tensor):
        return False
    if node.target is operator.getitem:
        whole = node.args[0]
        name = names.function(whole.target) if isinstance(whole, Node) else ""
        floats = val.dtype.is_floating_point and val.is_contiguous()
        return name in ("native_layer_norm", "native_dropout") and floats
    name, second = names.function(node.target), node.args[1] if len(node.args) > 1 else None
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
    source, weight, bias = whole.args[0], whole.args[2], whole.args[3]
    mean, rstd = (there[each] for each in _needs(node)[-2:])
    assert isinstance(source, Node)
    y = call(_aten.mul.Tensor, call(_aten.sub.Tensor, there[source], mean), rstd)
    for factor, function in ((weight, _aten.mul.Tensor), (bias, _aten.add.Tensor)):
        y = call(function, y, there[factor]) if isinstance(factor, Node) else y
    dtype = node.meta["val"].dtype
    return y if y.meta["val"].dtype is dtype else call(_aten._to_copy.default, y, dtype=dtype)


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
