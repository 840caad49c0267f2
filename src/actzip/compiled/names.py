"""ATen ops by the names of the table of ops: `aten.gelu_backward` is what `GeluBackward0` runs.

The table (autograd/slots) knows ops by their autograd nodes, whose names follow from the names of
the ATen functions but for a few; the arguments of a backward function are the slots of its node,
some under other names.
"""

from __future__ import annotations

import re
from typing import Any

from actzip.autograd import slots
from actzip.autograd.slots import Rule
from actzip.autograd.slots.lookup import TABLE
from actzip.control.op import Op
from actzip.methods.base import Role

_BACKWARD = re.compile(r"_backward(_data|_input)?$")

#: Functions whose node has a name of its own.
_NODES = {
    "threshold_backward": "ReluBackward0",  # with the threshold 0; any other is not understood
    "_native_batch_norm_legit_functional": "NativeBatchNormBackward0",
    "batch_norm_backward": "NativeBatchNormBackward0",
    "_low_memory_max_pool_with_offsets": "MaxPool2DWithIndicesBackward0",
    "mkldnn_rnn_layer_backward": "MkldnnRnnLayerBackward0",
}

#: Arguments of backward functions that the table knows as results of the forward.
_SLOTS = {
    "save_mean": "result1",
    "save_invstd": "result2",
    "mean": "result1",
    "rstd": "result2",
    "indices": "result1",
    "out": "output",
    "output": "result",
}


def function(target: Any) -> str:
    """`gelu_backward` of `aten.gelu_backward.default`; "" for what is no op of torch."""
    schema = getattr(target, "_schema", None)
    return "" if schema is None else str(schema.name).split("::")[-1]


def node_name(target: Any) -> str:
    """The autograd node of a function, or of the function whose backward it is."""
    name = function(target)
    if name in _NODES:
        return _NODES[name]
    words = _BACKWARD.sub("", name).strip("_").split("_")
    camel = "".join(re.sub(r"(\d)d$", r"\1D", word).capitalize() for word in words)
    camel = re.sub(r"(\d)d(?=[A-Z]|$)", r"\1D", camel)
    return f"{camel}Backward0"


def is_backward(target: Any) -> bool:
    return _BACKWARD.search(function(target)) is not None


def op_of(target: Any) -> Op:
    """The traits of a function, or of the function whose backward it is."""
    return slots.op(node_name(target))


def arguments(target: Any) -> list[str]:
    return [argument.name for argument in target._schema.arguments]


def slot_rule(target: Any, argument: str) -> tuple[str, Rule | None]:
    """The slot that an argument of a backward function is, and what the table says of it."""
    node = node_name(target)
    if node == "ReluBackward0":
        return "result", slots.rule(node, "result")
    for slot in (argument, _SLOTS.get(argument, argument)):
        found = slots.rule(node, slot)
        if found is not None:
            return slot, found
    return argument, None


def slot_for(target: Any, role: Role) -> str:
    """The first slot of a function's node with this role; "" when there is none."""
    row = TABLE.get(node_name(target))
    found = [] if row is None else [s for s, rule in row.slots.items() if rule.role is role]
    return found[0] if found else ""
