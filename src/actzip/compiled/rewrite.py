"""Puts the ops into a partitioned graph: what forward saves is packed, backward unpacks it.

The partitioner has split the joint graph: forward returns the user's outputs and then everything
that it saves, and backward has a placeholder of the same name for each. A saved tensor is packed
after its last use in forward and unpacked before its first use in backward. Left as they are:
parameters and what is made of them alone, constants, numbers.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from actzip.codecs import BitMask, Index, Keep
from actzip.codecs.base import Codec
from actzip.codecs.serial import to_words
from actzip.compiled import names, ops
from actzip.compiled.effect import effect, hint
from actzip.compiled.graph_nodes import (
    active,
    alias_of,
    behind,
    is_written,
    mask_side,
    root,
    same,
    shapes_of_pictures,
    shares,
)
from actzip.compiled.pooling import window_of
from actzip.compiled.remade import make_again
from actzip.compiled.saved import Saved, Wish
from actzip.compiled.sites import Readers, site_of
from actzip.compiled.symbols import Symbols
from actzip.methods.base import Role, Stateless

_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def rewrite(
    fw: GraphModule,
    bw: GraphModule,
    outputs: int,
    static: list[int],
    wish: Wish,
    turned: bool = False,
) -> None:
    """Pack what these graphs save; `outputs` of forward's are the user's. `turned`: the backend
    lays out pictures in channels_last, whatever the graphs say."""
    plan = _Plan(fw, bw, outputs, static, wish)
    plan.pictures = shapes_of_pictures(fw) if turned else frozenset()
    for saved in plan.saved:
        plan.decide(saved)
    plan.cut_loose()
    if wish.derives:
        symbols = Symbols(bw, {saved.home for saved in plan.saved if saved.packs})
        stored = {saved.node for saved in plan.saved if plan.is_expressible(saved, symbols)}
        plan.left += make_again(bw, plan.saved, plan.outputs, plan.first, plan.static, stored)
    plan.carry_out()


class _Plan:
    def __init__(self, fw: GraphModule, bw: GraphModule, first: int, static: list[int], wish: Wish):
        self.fw, self.bw, self.first, self.wish = fw, bw, first, wish
        (self.out,) = fw.graph.find_nodes(op="output")
        self.outputs: list[Any] = list(self.out.args[0])
        inputs = fw.graph.find_nodes(op="placeholder")
        self.static = {inputs[i] for i in static if i < len(inputs)}
        self.active = active(fw, self.static)
        self.homes = {n.name: n for n in bw.graph.find_nodes(op="placeholder")}
        self.readers = Readers(fw, wish.root)
        self.left: list[dict[str, Any]] = []
        self.small: list[Saved] = []
        self.pictures: frozenset[str] = frozenset()  #: shapes that are in channels_last
        self._merge()
        self._look_through()
        self.saved = list(self._find())

    def _find(self) -> list[Saved]:
        found = []
        for place in range(self.first, len(self.outputs)):
            node = self.outputs[place]
            home = self.homes.get(node.name) if isinstance(node, Node) else None
            if home is None or not isinstance(node.meta.get("val"), Tensor):
                continue
            if type(node.meta["val"]).__name__ == "FakeTensor" and node not in self.static:
                found.append(Saved(place, node, home))
        return found

    def _merge(self) -> None:
        """One tensor under several names (`detach`) is saved once."""
        firsts: dict[Node, Node] = {}
        gone = []
        for place in range(self.first, len(self.outputs)):
            node = self.outputs[place]
            if not isinstance(node, Node) or not isinstance(node.meta.get("val"), Tensor):
                continue
            first = firsts.setdefault(alias_of(node), node)
            here, there = self.homes.get(node.name), self.homes.get(first.name)
            if first is not node and here is not None and there is not None:
                here.replace_all_uses_with(there)
                self.bw.graph.erase_node(here)
                gone.append(place)
        for place in reversed(gone):
            del self.outputs[place]

    def _look_through(self) -> None:
        """A view of another saved tensor is made again from it: packed by itself it would be there
        twice, while unpacked the two share their memory."""
        nodes = [n for n in self.outputs[self.first :] if isinstance(n, Node) and n in self.active]
        saved = {alias_of(node): node for node in nodes}
        for node in nodes:
            source, views = behind(node, saved)
            here, there = self.homes.get(node.name), self.homes.get(source.name)
            if not views or here is None or there is None:
                continue
            users = set(here.users)
            for user in self.bw.graph.nodes:
                if user in users:
                    with self.bw.graph.inserting_before(user):
                        for view in reversed(views):
                            there = self.bw.graph.node_copy(view, {view.args[0]: there}.__getitem__)
                    break
            here.replace_all_uses_with(there)
            self.bw.graph.erase_node(here)
            del self.homes[node.name]
            del self.outputs[self.outputs.index(node, self.first)]

    # -- what becomes of a tensor ----------------------------------------------------------

    def decide(self, saved: Saved) -> None:
        node, val = saved.node, saved.val
        nbytes = hint(val.numel()) * val.element_size()
        if nbytes < self.wish.min_bytes:
            self.small.append(saved)
            return
        if node.op != "placeholder" and node not in self.active:
            return  # a weight in another dtype, or a constant
        relu = names.function(same(node).target) == "relu"
        saved.effect = effect(saved.home, relu)
        self._name(saved, relu)
        saved.reason = self._untouchable(saved) or self._choose(saved)
        if saved.reason:
            self.left.append({**saved.site, "bytes": nbytes, "reason": saved.reason})
        else:
            saved.packs = True

    def cut_loose(self) -> None:
        """Small tensors stay, but a slice would hold all of what it was cut from: it is copied."""
        held = {root(s.node) for s in self.saved if not s.packs and s not in self.small}
        for saved in self.small:
            base, nbytes = root(saved.node), hint(saved.val.numel()) * saved.val.element_size()
            val = base.meta.get("val")
            whole = hint(val.numel()) * val.element_size() if isinstance(val, Tensor) else 0
            alone = base.op != "placeholder" and base not in held and base in self.active
            if alone and whole >= self.wish.min_bytes:
                saved.effect = effect(saved.home, relu=False)
                self._name(saved, relu=False)
                saved.packs = not self._untouchable(saved)
            if saved.packs:
                saved.site["codec"] = to_words(Keep()).decode()
                saved.site["visible"] = ops.HEAD
            else:
                self.left.append({"bytes": nbytes, "small": True})

    def _name(self, saved: Saved, relu: bool) -> None:
        found, role = saved.effect, saved.effect.role
        if not saved.val.dtype.is_floating_point:
            role = Role.MASK if saved.val.dtype is torch.bool else Role.INDEX
        module, node, slot, occurrence = self.readers.name(saved.node, found)
        saved.site = {
            "session": self.wish.key,
            "module": module,
            "node": node,
            "slot": slot,
            "input": root(saved.node).op == "placeholder",
            "occurrence": occurrence,
            "role": role.value,
            "relu": relu,
            "signs": bool(found.signs),
            "maker": names.node_name(root(saved.node).target),
        }

    def _untouchable(self, saved: Saved) -> str:
        node, val = saved.node, saved.val
        if saved.site["input"] and not val.dtype.is_floating_point:
            return "an input of the compiled graph: whoever made it holds it"
        if saved.site["input"] and is_written(root(node)):
            return "an input that the compiled graph writes to"
        if node.meta.get("saved_tensor_with_no_vc_check", False):
            return "kept on a Function's context, which the graph passes on as it is"
        if val.layout != torch.strided or shares(val):
            return "elements that share memory cannot be written back"
        if (val.dtype not in _FLOATS and val.dtype.is_floating_point) or val.dtype.is_complex:
            return f"no codec stores {val.dtype}"
        return ""

    def _choose(self, saved: Saved) -> str:
        """The codec, in words, or the reason why there is none."""
        role, visible = Role(saved.site["role"]), None
        codec: Codec | None = None
        if role is Role.MASK:
            codec = BitMask()
        elif role is Role.INDEX:
            codec = window_of(saved.node) or Index()
        elif role in (Role.LINEAR, Role.NONLINEAR):
            if isinstance(self.wish.policy, Stateless):
                here = site_of(saved.site, "")
                codec = self.wish.policy.codec(here, saved.val)
                if codec is None:
                    return self.wish.policy.reason(here)
                if saved.site["input"]:  # a weight for all that is known: the session looks at it
                    codec = None
            else:
                visible = ops.HEAD
        elif role is Role.GEOMETRY:
            codec = BitMask()
        elif role is Role.SMALL:
            return "statistics of a norm or a softmax stay as they are"
        else:
            return f"no rule for {saved.effect.why or saved.effect.node}: kept exactly"
        static = all(isinstance(n, int) for n in (*saved.val.shape, *saved.val.stride()))
        if visible is None:
            visible = ops.HEAD
            if static and codec is not None:
                signs = bool(saved.effect.signs)
                visible = ops.visible(codec, saved.val.shape, saved.val.dtype, signs)
        saved.site["codec"] = "" if codec is None else to_words(codec).decode()
        saved.site["visible"] = visible
        return ""

    # -- carrying it out -------------------------------------------------------------------

    def carry_out(self) -> None:
        chosen = [saved for saved in self.saved if saved.packs]
        symbols = Symbols(self.bw, {saved.home for saved in chosen})
        for saved in [s for s in chosen if not self.is_expressible(s, symbols)]:
            nbytes = hint(saved.val.numel()) * saved.val.element_size()
            why = "backward has no number for its dynamic size"
            self.left.append({**saved.site, "bytes": nbytes, "reason": why})
            chosen.remove(saved)
        if not chosen and not self.left:
            return
        fake = next(s.val for s in self.saved).fake_mode  # type: ignore[attr-defined]
        order = {node: i for i, node in enumerate(self.fw.graph.nodes)}
        graph = {"session": self.wish.key, "packs": len(chosen), "left": self.left}
        with fake:
            seed = self._begin(json.dumps(graph))
            for number, saved in enumerate(chosen):
                self._pack(saved, seed, number, order)
                self._unpack(saved, symbols)
            if not chosen:
                self._keep_alive(seed)
        self.out.args = (tuple(self.outputs),)
        for module in (self.fw, self.bw):
            module.graph.lint()
            module.recompile()

    def is_expressible(self, saved: Saved, symbols: Symbols) -> bool:
        return symbols.can((*saved.val.shape, *saved.val.stride()))

    def _begin(self, graph: str) -> Node:
        inputs = self.fw.graph.find_nodes(op="placeholder")
        first = next(n for n in self.fw.graph.nodes if n.op != "placeholder")
        assert inputs
        with self.fw.graph.inserting_before(first):
            return _call(self.fw, torch.ops.actzip.begin.default, (graph,))

    def _keep_alive(self, seed: Node) -> None:
        """Nothing is packed, and compilers drop an op without a reader: its number is saved."""
        place, home = next((s.place, s.home) for s in self.saved)
        self.outputs.insert(place, seed)
        with self.bw.graph.inserting_before(home):
            unused = self.bw.graph.placeholder("actzip_seed")
        unused.meta["val"] = seed.meta["val"]

    def _pack(self, saved: Saved, seed: Node, number: int, order: dict[Node, int]) -> None:
        users = [u for u in saved.node.users if u.op != "output" and u in order]
        given = [saved.node] if saved.relu is None else [saved.node, saved.relu]
        last = max([*given, *users], key=order.__getitem__)
        if order[last] < order[seed.next]:
            last = seed
        with self.fw.graph.inserting_after(last):
            op = torch.ops.actzip.pack if saved.relu is None else torch.ops.actzip.pack_sides
            args = (*given, seed, json.dumps(saved.site), number)
            packed = _call(self.fw, op.default, args)
        self.outputs[saved.place] = packed
        saved.home.meta["val"] = packed.meta["val"]
        saved.home.meta.pop("tensor_meta", None)

    def _unpack(self, saved: Saved, symbols: Symbols) -> None:
        home, val = saved.home, saved.val
        like = val
        if str(tuple(val.shape)) in self.pictures and val.is_contiguous():
            # as forward has them by then, and as backward's convolutions want them: no copies
            like = torch.empty_like(val, memory_format=torch.channels_last)
        readers = list(home.users)
        signs = set(saved.effect.signs)
        seen = mask_side(home, signs) if signs else set()
        for op, mine in (
            (torch.ops.actzip.unpack_mask.default, [u for u in readers if u in seen]),
            (torch.ops.actzip.unpack.default, [u for u in readers if u not in seen]),
        ):
            if not mine:
                continue
            first = next(n for n in self.bw.graph.nodes if n in set(mine))
            with self.bw.graph.inserting_before(first):
                size = [symbols.node(n) for n in val.shape]
                stride = [symbols.node(n) for n in like.stride()]
                back = _call(self.bw, op, (home, size, stride, val.dtype), like)
            for user in mine:
                user.replace_input_with(home, back)
            if saved.sides is not None:  # asks what is packed, too
                saved.sides.args = (home, saved.sides.args[1])


def _call(module: GraphModule, op: Any, args: tuple[Any, ...], val: Any = None) -> Node:
    node = module.graph.call_function(op, args)
    if val is None:
        val = op(*(a.meta["val"] if isinstance(a, Node) else a for a in args))
    node.meta["val"] = val
    return node
