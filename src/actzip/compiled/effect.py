"""What a saved tensor is for: read from the backward graph.

A tensor enters the gradients linearly when no op of the backward graph multiplies it with itself or
bends it; an op that the table of ops knows says so of its arguments, and of what decompositions
left (products, sums, smooth functions) it is found out by following the tensor through the graph.
Where it is compared or divided by, and where an op is not known, it has to stay exact.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.fx import Node

from actzip.compiled import functions, names
from actzip.control.op import UNKNOWN, Kind, Op
from actzip.methods.base import Role

_NOTHING, _SHAPE, _LINEAR, _CURVED, _EXACT = range(5)

_GETITEM = operator.getitem


@dataclass
class Effect:
    """How the backward graph reads one saved tensor."""

    role: Role
    node: str = ""  #: the reader with the strongest need, as an autograd node
    slot: str = ""
    op: Op = UNKNOWN
    signs: list[Node] = field(default_factory=list)  #: readers that ask only what is above zero
    why: str = ""  #: of `exact`
    reader: Node | None = None


def effect(saved: Node, relu: bool) -> Effect:
    """The effect of a backward graph's placeholder; `relu`: a ReLU made the tensor."""
    return _Walk(saved, relu).result()


class _Walk:
    """Follows a tensor through the graph; `levels` has what depends on it, and how."""

    def __init__(self, saved: Node, relu: bool):
        self.saved, self.relu = saved, relu
        self.levels: dict[Node, int] = {saved: _LINEAR}
        self.same = {saved}  # the tensor itself under another name or shape
        self.signs: list[Node] = []
        self.strongest: tuple[int, Node | None, str] = (_NOTHING, None, "")
        self.why = ""
        self.statistic = False
        following = False
        for node in saved.graph.nodes:
            if node is saved:
                following = True
            elif following and any(a in self.levels for a in node.all_input_nodes):
                self._step(node)

    def _step(self, node: Node) -> None:
        if node.op == "output":
            return
        if node.op != "call_function":
            self._reach(node, _EXACT, "", f"{node.op} {node.target}")
            return
        if self._is_sign(node):
            self.signs.append(node)
            return
        level, slot, why = self._level(node)
        if level == _NOTHING:
            return
        if node.target is not _GETITEM and self._is_view(node):
            self.same.add(node)
            self.levels[node] = max(self.levels[a] for a in node.all_input_nodes if a in self.same)
            return
        self._spread(node)
        self._reach(node, level, slot, why)

    def _reach(self, node: Node, level: int, slot: str, why: str) -> None:
        if level != _SHAPE:
            self.levels[node] = level
        # of readers with equal needs the one whose op came first in forward: eager names that
        again = level == self.strongest[0] and any(a in self.same for a in node.all_input_nodes)
        if level > self.strongest[0] or again:
            self.strongest, self.why = (level, node, slot), why if level == _EXACT else ""

    def _is_view(self, node: Node) -> bool:
        is_view = names.function(node.target) in functions.ITSELF
        return is_view and all(a in self.same for a in node.all_input_nodes if a in self.levels)

    def _is_sign(self, node: Node) -> bool:
        """A ReLU's backward, or the comparison that it was taken apart into."""
        name = names.function(node.target)
        if not self.relu or name not in functions.SIGN:
            return False
        which, zero = (1, 2) if name == "threshold_backward" else (0, 1)
        if len(node.args) <= zero or node.args[zero] != 0 or node.args[which] not in self.same:
            return False
        return not any(
            a in self.levels for i, a in enumerate(node.args) if i != which and isinstance(a, Node)
        )

    def _spread(self, node: Node) -> None:
        """Statistics of a norm are spread over what they are the statistics of."""
        if names.function(node.target) not in functions.POINTWISE:
            return
        mine = node.meta.get("val")
        for a in node.all_input_nodes:
            val = a.meta.get("val")
            if a in self.levels and isinstance(val, Tensor) and isinstance(mine, Tensor):
                size = hint(self.saved.meta["val"].numel())
                self.statistic |= hint(val.numel()) == size < hint(mine.numel())

    def _level(self, node: Node) -> tuple[int, str, str]:
        """How the node's result depends on the tensor; the slot of it; what is not understood."""
        name = names.function(node.target)
        reached = [(i, a) for i, a in enumerate(node.args) if self._touches(a)]
        inputs = [a for a in node.all_input_nodes if a in self.levels]
        most = max(self.levels[a] for a in inputs)
        if node.target is _GETITEM:
            return (_NOTHING if self._is_free(node) else most), "", ""
        if any(self._touches(v) for v in node.kwargs.values()):
            return _EXACT, "", _named(node)
        slot = self._slot(node, reached[0][0])
        if name in functions.PLACED:
            right = all(i in functions.PLACED[name] for i, _ in reached)
            return (most if right else _EXACT), slot, _named(node)
        if names.is_backward(node.target):
            return self._table(node, reached, most)
        if name in functions.PASS:
            return most, slot, ""
        if name in functions.PRODUCT:
            touching = sum(1 for _, a in reached)
            return (_CURVED if touching > 1 else most), slot, ""
        if name in functions.QUOTIENT and of_activation(node):
            return max(most, _CURVED), slot, ""  # by 1 + exp(-x), say: smooth as a whole
        if name == "div":
            return (most if [i for i, _ in reached] == [0] else _EXACT), slot, _named(node)
        if name == "where":
            first = any(i == 0 for i, _ in reached)
            return (_EXACT if first else most), slot, _named(node)
        if name in functions.STEEP and names.function(whole(node)) in functions.STEEP:
            return _EXACT, slot, _named(node)  # made again from what was decoded
        if name in functions.SMOOTH:
            return max(most, _CURVED), slot, ""
        if name == "pow" and _is_whole_power(node):
            return max(most, _CURVED), slot, ""
        if name in functions.SHAPE:
            return _SHAPE, slot, ""
        return _EXACT, slot, _named(node)

    def _is_free(self, item: Node) -> bool:
        """Of a convolution's gradients only the weight's depends on the input."""
        source = item.args[0]
        if not isinstance(source, Node) or names.function(source.target) != "convolution_backward":
            return False
        reached = [i for i, a in enumerate(source.args) if self._touches(a)]
        return reached == [1] and bool(item.args[1] != 1)

    def _table(self, node: Node, reached: list[tuple[int, Any]], most: int) -> tuple[int, str, str]:
        """An op of the table: each argument says what it is for."""
        found = (_NOTHING, "", "")
        arguments = names.arguments(node.target)
        touching = 0
        for i, a in reached:
            argument = arguments[i]
            if argument.startswith(("grad", "_grad", "dY")):
                here = (max(self.levels[n] for n in _nodes(a) if n in self.levels), argument, "")
                touching += 1
            else:
                slot, rule = names.slot_rule(node.target, argument)
                level = _LEVEL.get(rule.role, _EXACT) if rule is not None else _EXACT
                self.statistic |= rule is not None and rule.role is Role.SMALL
                touching += level in (_LINEAR, _CURVED)
                here = (level if level == _SHAPE else max(level, most), slot, _named(node))
            found = max(found, here)
        return (max(found[0], _CURVED), *found[1:]) if touching > 1 else found

    def _touches(self, a: Any) -> bool:
        return any(n in self.levels for n in _nodes(a))

    def _slot(self, node: Node, i: int) -> str:
        try:
            return names.arguments(node.target)[i]
        except (AttributeError, IndexError):
            return str(i)

    def result(self) -> Effect:
        level, node, slot = self.strongest
        if node is None:
            if self.signs:
                return self._of(Role.MASK, self.signs[0], "result")
            return Effect(Role.GEOMETRY)
        if level == _SHAPE:
            role = Role.MASK if self.signs else Role.GEOMETRY
            return self._of(role, self.signs[0] if self.signs else node, slot)
        if level != _EXACT and self.statistic:
            return self._of(Role.SMALL, node, slot)
        role = {_LINEAR: Role.LINEAR, _CURVED: Role.NONLINEAR}.get(level, Role.EXACT)
        return self._of(role, node, slot)

    def _of(self, role: Role, node: Node, slot: str) -> Effect:
        target = whole(node)
        if target is not node.target:  # a part of it, which has other names for its arguments
            slot = names.slot_for(target, role) or slot
        return Effect(
            role, names.node_name(target), slot, names.op_of(target), self.signs, self.why, node
        )


_LEVEL = {
    Role.GEOMETRY: _SHAPE,
    Role.SMALL: _LINEAR,
    Role.LINEAR: _LINEAR,
    Role.NONLINEAR: _CURVED,
}


def whole(node: Node) -> Any:
    """The function that was called, or the one that this is a part of after decomposition."""
    original = node.meta.get("original_aten")
    return original if original is not None and names.function(original) else node.target


def _nodes(a: Any) -> list[Node]:
    if isinstance(a, Node):
        return [a]
    if isinstance(a, (list, tuple)):
        return [n for each in a for n in _nodes(each)]
    return []


def of_activation(node: Node) -> bool:
    """Whether it is a part of an activation, or of its backward, taken apart."""
    target = whole(node)
    return target is not node.target and names.op_of(target).kind is Kind.ACTIVATION


def _named(node: Node) -> str:
    return names.function(node.target) or str(node.target)


def _is_whole_power(node: Node) -> bool:
    power = node.args[1] if len(node.args) > 1 else None
    return isinstance(power, (int, float)) and power >= 0 and power == int(power)  # x² has 1.0


def hint(size: Any) -> int:
    """A size, or the one that a symbol had when it was met first."""
    if isinstance(size, int):
        return size
    found = getattr(size.node, "hint", None)
    return int(found) if found is not None else 0
