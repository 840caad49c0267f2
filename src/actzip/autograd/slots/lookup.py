"""Questions to the table: what is this slot for, and which slots does a live node have?"""

from __future__ import annotations

from typing import NamedTuple

from actzip.autograd.slots import (
    activations,
    attention,
    double_backward,
    indexing,
    layers,
    losses,
    norms,
    pointwise,
    products,
    reductions,
    views,
)
from actzip.autograd.slots.rule import Node, Row, Rule
from actzip.control.op import UNKNOWN, Op
from actzip.methods.base import Role

#: The table of ops: {node: what it is, and what its slots are for}.
TABLE: dict[str, Row] = {
    **products.ROWS,
    **norms.ROWS,
    **layers.ROWS,
    **attention.ROWS,
    **activations.ROWS,
    **pointwise.ROWS,
    **reductions.ROWS,
    **indexing.ROWS,
    **losses.ROWS,
    **double_backward.ROWS,
    **views.ROWS,
}
_ADDED: dict[str, dict[str, Rule]] = {}  # by `register`; read first
#: The traits of the ops that have a row.
TRAITS = {node: row.op for node, row in TABLE.items()}
_SLOTS: dict[type, tuple[str, ...]] = {}
#: What `plan` said of the kinds of nodes that were looked at.
PLANS: dict[type, Plan] = {}
#: Kinds of nodes that were looked at and have nothing to look at: views, sums.
IDLE: set[type] = set()

_PREFIX, _SAVED = "_raw_saved_", "saved_"


class Slot(NamedTuple):
    """A slot of a kind of node."""

    name: str
    raw: str  #: the node's attribute that is autograd's handle of the slot
    saved: str  #: the one that gives the tensor, or raises if it was edited
    rule: Rule | None


class Plan(NamedTuple):
    """What there is to look at in a kind of node."""

    node: str  #: its name
    op: Op
    slots: tuple[Slot, ...]
    copies: bool  #: it copies its input, and saves nothing


def rule(node_name: str, slot: str) -> Rule | None:
    """What the table says about a slot; None when it says nothing, and nothing is guessed.

    An element of a list slot may be asked for as `indices[2]`: its own row, or the list's.
    """
    slot = slot.removeprefix(_SAVED)
    found = _ADDED.get(node_name, {}).get(slot)
    if found is None and node_name in TABLE:
        found = TABLE[node_name].slots.get(slot)
    if found is None and slot.endswith("]"):
        return rule(node_name, slot[: slot.rindex("[")])
    return found


def op(node_name: str) -> Op:
    """The traits of an op by the name of its node; those of `UNKNOWN` when it has no row."""
    return TRAITS.get(node_name, UNKNOWN)


def register(node: str, slot: str, role: Role | str) -> None:
    """Add or replace a slot's role for the rest of this process.

    A mask registered here is one of a boolean slot: stand-ins for a floating one cannot be given.
    The tensors of a custom `autograd.Function` are the slots `saved_tensors[0]`, `[1]`, …, or
    `saved_tensors` for all of them at once (`tensors` is the same: `saved_` may be left out).
    """
    if not node or not slot:
        raise ValueError(
            f"register_slot got node {node!r} and slot {slot!r}; both must be names, as in "
            "register_slot('ReluBackward0', 'result', 'mask')"
        )
    try:
        wanted = Role(role)
    except ValueError:
        allowed = ", ".join(repr(r.value) for r in Role)
        raise ValueError(
            f"register_slot({node!r}, {slot!r}, …) got role {role!r}; allowed are {allowed}"
        ) from None
    _ADDED.setdefault(node, {})[slot.removeprefix(_SAVED)] = Rule(wanted)
    PLANS.clear()


def plan(node: Node) -> Plan:
    """What there is to look at in a live node."""
    kind = type(node)
    found = PLANS.get(kind)
    if found is None:
        name = kind.__name__
        each = tuple(_slot(name, slot) for slot in slots_of(node))
        found = PLANS[kind] = Plan(name, op(name), each, not each and name in views.COPIES)
        if not each and not found.copies:
            IDLE.add(kind)
    return found


def element(plan: Plan, slot: Slot, i: int) -> Slot:
    """An element of a list slot."""
    return _slot(plan.node, f"{slot.name}[{i}]")


def _slot(node_name: str, slot: str) -> Slot:
    whole = slot.split("[")[0]
    saved = "saved_tensors" if whole == "tensors" else f"_saved_{whole}"
    return Slot(slot, _PREFIX + whole, saved, rule(node_name, slot))


def slots_of(node: Node) -> tuple[str, ...]:
    """The names of the tensor slots that a live node has, saved or not; one dict lookup.

    `getattr(node, "_raw_saved_" + name)` is a SavedTensor, or for a list slot a tuple of them:
    `indices` of the indexing nodes, `weight` of the cuDNN RNN, and `tensors` of a custom
    `autograd.Function`. The elements of a list are named `indices[0]`, `indices[1]`, … in `rule`;
    one that was None is an element whose data is None.
    """
    kind = type(node)
    found = _SLOTS.get(kind)
    if found is None:
        found = tuple(n[len(_PREFIX) :] for n in dir(kind) if n.startswith(_PREFIX))
        _SLOTS[kind] = found
    return found
