"""What a row of the table says about one slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from actzip.control.backward import Formula
from actzip.control.op import Op
from actzip.methods.base import Role

Node = Any  # torch.autograd.graph.Node; its saved attributes are made at run time


@dataclass(frozen=True)
class Mask:
    """One bit per element is all the op's backward asks of a tensor.

    `test(node, x)` gives the bits; `levels(node, x)` gives (off, on): two stand-in values for which
    the backward formula does, bit for bit, what it would have done with the original elements.
    Levels may be infinite or NaN; every floating dtype holds them.

    `fits(node, x)`, where there is one, must be asked first: False means that this tensor needs
    more than one bit per element, and has to be kept as it is.

    What backward compares, and how, is not the same in every torch: `other` is the next mask to
    try, and conventions.py picks the one that agrees with the torch that runs.
    """

    test: Callable[[Node, Tensor], Tensor]
    levels: Callable[[Node, Tensor], tuple[float, float]]
    fits: Callable[[Node, Tensor], bool] | None = None
    other: Mask | None = None


@dataclass(frozen=True)
class Rule:
    """The role of a slot, and for a mask how its bits are made.

    `role` alone is always safe. Some ops read a slot in different ways under different options
    (`x**2` is linear in x, `x**0.5` has a pole); `at(node)` gives the rule for a live node.
    """

    role: Role
    mask: Mask | None = None  #: with Role.MASK on a floating tensor: how to make the bits
    refine: Callable[[Node], Role] | None = None  #: the role under the options of this node
    error: Formula | None = None  #: how an error in the slot shows in the op's gradients

    def at(self, node: Node) -> Rule:
        return self if self.refine is None else Rule(self.refine(node), self.mask)


@dataclass(frozen=True)
class Row:
    """A row of the table: what the op is, and what each of its slots is for."""

    op: Op
    slots: Mapping[str, Rule]


def row(op: Op, /, **slots: Role | Mask | Rule) -> Row:
    """`row(Op(Kind.DENSE), input=LINEAR, weight=WEIGHT)`; a Mask stands for its Rule."""
    rules = {slot: _rule(entry) for slot, entry in slots.items()}
    errors = {slot: rule.error for slot, rule in rules.items() if rule.error is not None}
    return Row(replace(op, errors=errors), rules)


def _rule(entry: Role | Mask | Rule) -> Rule:
    if isinstance(entry, Rule):
        return entry
    return Rule(Role.MASK, entry) if isinstance(entry, Mask) else Rule(entry)
