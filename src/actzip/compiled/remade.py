"""Takes out of a graph's saved tensors what its backward can make again from the others."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from actzip.compiled import names
from actzip.compiled.derive import CODED, Derive, Made, rectified
from actzip.compiled.effect import hint, whole
from actzip.compiled.graph_nodes import alias_of, same
from actzip.compiled.saved import Saved
from actzip.control.op import Kind
from actzip.methods.base import STRENGTH, Role


def make_again(
    bw: GraphModule,
    saved: list[Saved],
    outputs: list[Any],
    first: int,
    static: set[Node],
    stored: set[Node],
) -> list[dict[str, Any]]:
    """Change backward, and take what it makes again out of `saved` and of forward's outputs, which
    it has from `first` on; what there is to say of them. `stored`: what is sure to be packed."""
    given = {n.name: n for n in bw.graph.find_nodes(op="placeholder")}
    nodes = [n for n in outputs[first:] if isinstance(n, Node)]
    homes = {n: given[n.name] for n in nodes if n.name in given}
    packed = {s.node: s for s in saved if s.packs}
    roles = {n: Role(s.site["role"]) for n, s in packed.items() if not s.effect.signs}
    roles = {node: role for node, role in roles.items() if role in CODED and node in stored}
    masks = {n for n, s in packed.items() if s.site["role"] == Role.MASK.value}
    search = Derive(roles, homes, masks | (homes.keys() - packed.keys()), static)
    said = []
    order = {node: i for i, node in enumerate(saved[0].node.graph.nodes)} if saved else {}
    for each in sorted(packed.values(), key=lambda s: order[s.node]):
        found = search.find(each.node, roles[each.node]) if each.node in roles else None
        if found is not None and not each.site["input"]:
            for node in found.small:
                _pass_on(bw, each, node, outputs, first, search)
            _replace(bw, each, found, search)
            del outputs[outputs.index(each.node, first)]
            saved.remove(each)
            said.append(_said(each, [packed[source].site for source in found.sources]))
            for source in found.sources:
                packed[source].site["makes"] = True
    left = [s for s in saved if s.packs and names.function(alias_of(s.node).target) == "relu"]
    for each in left:
        below = _rectified(bw, each, packed, roles, outputs, first, search)
        if below is not None:
            saved.remove(each)
            said.append(_said(each, [below.site]))
    for each in saved:
        each.place = outputs.index(each.node, first)
    return said


def _rectified(
    bw: GraphModule,
    saved: Saved,
    packed: dict[Node, Saved],
    roles: dict[Node, Role],
    outputs: list[Any],
    first: int,
    search: Derive,
) -> Saved | None:
    """Make a ReLU's result from what it cut off, and that from another packed tensor, whose code
    has the mask or gets it; that tensor."""
    relu = alias_of(saved.node)
    made = search.before(relu)
    source = None if made is None else packed[made.sources[0]]
    role = Role(saved.site["role"])
    if made is None or source is None or source.relu is not None or source.site["input"]:
        return None
    if source.node not in roles or STRENGTH[roles[source.node]] < STRENGTH[role]:
        return None
    if role not in CODED and not (saved.effect.signs and _is_batch_norm(relu.args[0])):
        return None  # a mask alone: the bits of it, if there is no chance that they are free
    for node in made.small:
        _pass_on(bw, saved, node, outputs, first, search)
    readers = set(saved.home.users)
    begin = next(n for n in bw.graph.nodes if n in readers)
    with bw.graph.inserting_before(begin), saved.val.fake_mode:  # type: ignore[attr-defined]
        y = search.copy(made, bw.graph)
        on = bw.graph.call_function(torch.ops.actzip.sides.default, (source.home, source.home))
        on.meta["val"] = torch.empty_like(source.val, dtype=torch.bool)
        again = rectified(y, on, bw.graph, saved.node)
    saved.home.replace_all_uses_with(again)
    bw.graph.erase_node(saved.home)
    del outputs[outputs.index(saved.node, first)]
    source.relu, source.sides, source.site["makes"] = saved.node, on, True
    return source


def _is_batch_norm(node: Any) -> bool:
    return isinstance(node, Node) and names.op_of(whole(_maker(node))).kind is Kind.BATCH_NORM


def _maker(node: Node) -> Node:
    given = node.args[0] if node.target is operator.getitem else node
    return given if isinstance(given, Node) else node


def _pass_on(
    bw: GraphModule, saved: Saved, node: Node, outputs: list[Any], first: int, search: Derive
) -> None:
    """A copy of a small parameter: the parameter itself may be changed before backward."""
    if search.has(node):
        return
    graph = node.graph
    with graph.inserting_before(graph.find_nodes(op="output")[0]):
        copied = graph.call_function(torch.ops.aten.clone.default, (node,))
    copied.meta["val"] = node.meta["val"]
    outputs.insert(outputs.index(saved.node, first), copied)
    with bw.graph.inserting_before(saved.home):
        home = bw.graph.placeholder(copied.name)
    home.meta["val"] = node.meta["val"]
    search.add(node, home)


def _replace(bw: GraphModule, saved: Saved, made: Made, search: Derive) -> None:
    readers = set(saved.home.users)
    begin = next(n for n in bw.graph.nodes if n in readers)
    with bw.graph.inserting_before(begin), saved.val.fake_mode:  # type: ignore[attr-defined]
        again = search.copy(made, bw.graph)
    saved.home.replace_all_uses_with(again)
    bw.graph.erase_node(saved.home)
    search.derived(saved.node)


def _said(saved: Saved, sources: list[dict[str, Any]]) -> dict[str, Any]:
    nbytes = hint(saved.val.numel()) * saved.val.element_size()
    recipe = names.function(whole(_maker(same(saved.node))))
    return {**saved.site, "bytes": nbytes, "recipe": recipe, "from": sources}
