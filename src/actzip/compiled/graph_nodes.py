"""What a node of a graph is: whose memory it has, what it depends on, who reads only its sign."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from actzip.compiled import functions, names
from actzip.compiled.effect import hint, whole
from actzip.torch_private import compiler


def mask_side(home: Node, signs: set[Node]) -> set[Node]:
    """Direct readers behind which there is nothing but questions for the sign."""

    def only(node: Node) -> bool:
        if node in signs:
            return True
        views = names.function(node.target) in functions.VIEWS and bool(node.users)
        return views and all(only(user) for user in node.users)

    return {user for user in home.users if only(user)}


def active(fw: GraphModule, static: set[Node]) -> set[Node]:
    """What depends on the batch or on chance."""
    found: set[Node] = set()
    for node in fw.graph.nodes:
        chance = any(word in names.function(node.target) for word in functions.NOISE)
        is_input = node.op == "placeholder" and node not in static
        if is_input or chance or any(a in found for a in node.all_input_nodes):
            found.add(node)
    return found


def same(node: Node) -> Node:
    """The tensor itself, whatever it is called and shaped now."""
    while names.function(node.target) in functions.RESHAPED and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def alias_of(node: Node) -> Node:
    """The tensor under its first name."""
    while names.function(node.target) in functions.ALIASES and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def behind(node: Node, saved: Mapping[Node, Node]) -> tuple[Node, list[Node]]:
    """Which saved tensor it is a view of, all of it, and by what; `saved`: by their first names."""
    views: list[Node] = []
    whole = node
    while names.function(node.target) in functions.RESHAPED | functions.TURNED:
        source = node.args[0]
        if not isinstance(source, Node) or len(node.all_input_nodes) > 1:  # sizes that are symbols
            break
        views.append(node)
        node = source
        if saved.get(node, whole) is not whole:
            return saved[node], views
    return whole, []


def root(node: Node) -> Node:
    """Whose memory it is."""
    while node.op == "call_function":
        name = names.function(node.target)
        source = node.args[0] if node.args else None
        if name in functions.VIEWS and isinstance(source, Node):
            node = source
        elif getattr(node.target, "__name__", "") == "getitem" and isinstance(source, Node):
            if names.function(source.target) not in functions.VIEWS:
                break
            node = source
        else:
            break
    return node


def is_written(node: Node) -> bool:
    """Whether an op of the graph writes to this tensor, or to a view of it."""
    for user in node.users:
        name = names.function(user.target)
        if name.endswith("_") and user.args and user.args[0] is node:
            return True
        if name in functions.VIEWS and is_written(user):
            return True
    return False


def shares(val: Tensor) -> bool:
    sizes = zip(val.shape, val.stride(), strict=True)
    return any(hint(stride) == 0 and hint(size) > 1 for size, stride in sizes)


def shapes_of_pictures(fw: GraphModule) -> frozenset[str]:
    """Of what two-dimensional convolutions read and give; in words, for symbols have no hash."""
    found = set()
    for node in fw.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default):
        for each in (node, node.args[0]):
            shape = tuple(each.meta["val"].shape)
            if len(shape) == 4 and all(isinstance(n, int) for n in shape):
                found.add(str(shape))
    return frozenset(found)


def save_results(joint: Graph) -> None:
    """Have backward read the results of ReLUs, exponentials and softmaxes, as it does in eager.

    Made again in backward they would be functions of decoded tensors: signs that may be wrong, and
    exponentials, whose errors have no bound. What they are made of then had to stay exact.
    """
    for node in joint.nodes:
        op = names.function(whole(node))
        last = any(whole(user) is not whole(node) for user in node.users)
        if op in ("relu", "relu_") or (op in functions.STEEP and last):
            node.meta.setdefault("recompute", compiler.must_save())
