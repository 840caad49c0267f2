"""Sizes that are symbols (dynamic shapes), as nodes of the backward graph."""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node


class Symbols:
    """Finds a node for each size: a number that is saved, or a dimension of an input."""

    def __init__(self, bw: GraphModule, without: Collection[Node] = ()):
        """`without`: inputs that will have another shape."""
        self._bw = bw
        self._found: dict[Any, Node | tuple[Node, int]] = {}
        for node in bw.graph.find_nodes(op="placeholder"):
            val = None if node in without else node.meta.get("val")
            if isinstance(val, torch.SymInt):
                self._found.setdefault(val.node.expr, node)
            elif isinstance(val, Tensor):
                for dim, size in enumerate(val.shape):
                    if isinstance(size, torch.SymInt):
                        self._found.setdefault(size.node.expr, (node, dim))

    def can(self, sizes: tuple[Any, ...]) -> bool:
        return all(isinstance(n, int) or self._factors(n.node.expr) is not None for n in sizes)

    def _factors(self, expr: Any) -> list[Any] | None:
        """The size itself, or the numbers whose product it is; None: there are none."""
        if expr in self._found:
            return [expr]
        if not expr.is_Mul:
            return None
        if all(f.is_Integer or f in self._found for f in expr.args):
            return list(expr.args)
        return None

    def node(self, size: Any) -> int | Node:
        """A size as an argument, made where the graph inserts now."""
        if isinstance(size, int):
            return size
        expr = size.node.expr
        factors = self._factors(expr)
        assert factors is not None, "asked for a size that cannot be expressed"
        nodes = [int(f) if f.is_Integer else self._one(f) for f in factors]
        product = nodes[0]
        for factor in nodes[1:]:
            product = self._times(product, factor)
        return product

    def _times(self, a: int | Node, b: int | Node) -> Node:
        made = self._bw.graph.call_function(operator.mul, (a, b))
        value = [n.meta["val"] if isinstance(n, Node) else n for n in (a, b)]
        made.meta["val"] = value[0] * value[1]
        return made

    def _one(self, expr: Any) -> Node:
        found = self._found[expr]
        if isinstance(found, Node):
            return found
        source, dim = found
        made = self._bw.graph.call_function(torch.ops.aten.sym_size.int, (source, dim))
        made.meta["val"] = source.meta["val"].shape[dim]
        return made
