"""Takes out of a graph's saved tensors what its backward can make again from the others."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from actzip.compiled import names
from actzip.compiled.derive import CODED, Derive, Made
from actzip.compiled.effect import hint, whole
from actzip.compiled.saved import Saved
from actzip.methods.base import Role


def make_again(
    bw: GraphModule, saved: list[Saved], outputs: list[Any], first: int, static: set[Node]
) -> list[dict[str, Any]]:
    """Change backward, and take what it makes again out of `saved` and of forward's outputs, which
    it has from `first` on; what there is to say of them."""
    given = {n.name: n for n in bw.graph.find_nodes(op="placeholder")}
    nodes = [n for n in outputs[first:] if isinstance(n, Node)]
    homes = {n: given[n.name] for n in nodes if n.name in given}
    packed = {s.node: s for s in saved if s.packs}
    roles = {n: Role(s.site["role"]) for n, s in packed.items() if not s.effect.signs}
    roles = {node: role for node, role in roles.items() if role in CODED}
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
    for each in saved:
        each.place = outputs.index(each.node, first)
    return said


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
    recipe = names.function(whole(saved.node)) or "getitem"
    return {**saved.site, "bytes": nbytes, "recipe": recipe, "from": sources}
