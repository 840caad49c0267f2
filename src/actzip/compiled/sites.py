"""Where in the model a saved tensor of a compiled graph is, in words and as a site.

The names are those that the eager front end has for the same tensor, as far as graphs tell: methods
that learn do so from eager passes (uncompiled.py), and look up what they learned by these names.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from typing import Any

from torch.fx import GraphModule, Node

from actzip.autograd import slots
from actzip.autograd.slots.lookup import TABLE
from actzip.compiled import functions, names
from actzip.compiled.effect import Effect, whole
from actzip.methods.base import Role, Site, site

#: Added to the occurrence of a tensor that eager does not save there (a norm's input already
#: normalized, say): steps that were learned for the other one do not fit it.
_WITHIN = 1000


def site_of(said: dict[str, Any], prefix: str) -> Site:
    """A site as its words say; `prefix` is the path of the module whose code was compiled."""
    module = ".".join(part for part in (prefix, said["module"]) if part)
    maker = slots.op(said["maker"])
    relu = bool(said["relu"])
    where = (module, said["node"], said["slot"], int(said["occurrence"]))
    return site(*where, Role(said["role"]), relu, slots.op(said["node"]), maker)


class Readers:
    """The autograd nodes that a graph was traced from, by the numbers that backward's have, too."""

    def __init__(self, fw: GraphModule, root: type | None):
        self._root = root
        self._ops: dict[int, Node] = {}
        self._places: dict[int, int] = {}  # among the ops of its kind in its module
        self._taken: set[tuple[str, str, str, int]] = set()
        seen: Counter[tuple[str, str]] = Counter()
        for node in fw.graph.nodes:
            number = node.meta.get("seq_nr")
            moves = names.function(node.target) in ("", *functions.VIEWS)
            if node.op != "call_function" or number is None or moves or number in self._ops:
                continue
            where = module_path(node, root), names.node_name(whole(node))
            self._ops[number], self._places[number] = node, seen[where]
            seen[where] += 1

    def name(self, saved: Node, found: Effect) -> tuple[str, str, str, int]:
        """Module, node, slot and occurrence of what reads a saved tensor; no two are the same."""
        number = -1 if found.reader is None else found.reader.meta.get("seq_nr", -1)
        op = self._ops.get(number)
        if op is None:
            module = module_path(found.reader, self._root) or module_path(saved, self._root)
        else:
            module = module_path(op, self._root)
        node, slot, known = (found.node, found.slot, False)
        if op is not None:
            node, slot, known = _slot(saved, found, op)
        place = self._places.get(number, 0) + (0 if known else _WITHIN)
        while (module, node, slot, place) in self._taken:
            place += 1
        self._taken.add((module, node, slot, place))
        return module, node or "Unused", slot, place


def _slot(saved: Node, found: Effect, op: Node) -> tuple[str, str, bool]:
    """The node of a forward op, the slot in which it has the tensor, and whether eager has the same
    tensor there, not something on the way to it."""
    target = whole(op)
    node = names.node_name(target)
    known = TABLE.get(node)
    if known is None:
        return found.node, found.slot, False
    tensor = _itself(saved)
    for argument, given in zip(names.arguments(op.target), op.args, strict=False):
        if isinstance(given, Node) and _itself(given) is tensor and argument in known.slots:
            return node, argument, True
    made = tensor.args[0] if tensor.target is operator.getitem else tensor
    if made is op or _is_result(tensor, op):
        mine = _read_as(saved, found.reader)  # of several results it may be another than the first
        results = [slot for slot in (*mine, "output", "result", "result0") if slot in known.slots]
        return node, results[0] if results else found.slot, True
    slot = found.slot if found.slot in known.slots else names.slot_for(target, found.role)
    alone = sum(rule.role is found.role for rule in known.slots.values()) == 1
    if slot and alone and target is not op.target and not _is_inside(tensor, op):
        return node, slot, True  # the input of an op that was taken apart
    return (node, slot, False) if slot else (found.node, found.slot, False)


def _read_as(saved: Node, reader: Node | None) -> list[str]:
    """The slots in which a backward function has a saved tensor."""
    if reader is None or not names.is_backward(reader.target):
        return []
    given = zip(names.arguments(reader.target), reader.args, strict=False)
    mine = [a for a, node in given if isinstance(node, Node) and _itself(node).name == saved.name]
    return [names.slot_rule(reader.target, argument)[0] for argument in mine]


def _is_inside(tensor: Node, op: Node) -> bool:
    """Whether it is made on the way to the result of an op that was taken apart."""
    return _part_of(tensor) == _part_of(op)


def _is_result(tensor: Node, op: Node) -> bool:
    """Whether it is the last of the nodes that an op was taken apart into."""
    mine = _part_of(op)
    return [n for n in (tensor, *tensor.users) if _part_of(n) == mine] == [tensor]


def _part_of(node: Node) -> tuple[str, Any]:
    """The call that a node is a part of: by its name, for copies of an op are not equal to it."""
    return str(whole(node)), node.meta.get("seq_nr")


def _itself(node: Node) -> Node:
    """The tensor, before it was turned around or cast."""
    while names.function(node.target) in (*functions.ITSELF, "expand"):
        source = node.args[0]
        if not isinstance(source, Node):
            break
        node = source
    return node


def module_path(node: Node | None, root: type | None) -> str:
    """The module that ran the op, from the session's model on if it is in the graph."""
    meta = {} if node is None else node.meta
    stack = meta.get("fwd_nn_module_stack") or meta.get("nn_module_stack") or {}
    entries = [(str(e[0]), e[1]) for e in stack.values() if isinstance(e, tuple)]
    if not entries:
        return ""
    path = _path(entries[-1][0])
    for name, kind in entries:
        if root is not None and (kind is root or kind == f"{root.__module__}.{root.__qualname__}"):
            return path.removeprefix(_path(name)).strip(".")
    return path


def _path(name: str) -> str:
    name = re.sub(r"^\w+\['[^']*'\]", "", name)
    name = re.sub(r"\._modules\['([^']+)'\]", r".\1", name)
    name = re.sub(r"\['?(\w+)'?\]", r".\1", name)
    return name.replace("_orig_mod", "").replace("..", ".").strip(".")
