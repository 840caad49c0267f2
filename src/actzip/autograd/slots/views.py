"""Rows of nodes that store nothing and pass elements on: views, copies, sums."""

from __future__ import annotations

from actzip.autograd.slots.rule import Row, row
from actzip.control.op import Kind, Op

_VIEWS: dict[str, Row] = {
    f"{name}Backward{number}": row(Op(Kind.VIEW))
    for name, numbers in {
        "Alias": (0,),
        "AsStrided": (0, 1),
        "Diagonal": (0,),
        "Expand": (0,),
        "LiftFresh": (0,),
        "Permute": (0,),
        "ReshapeAlias": (0,),
        "Select": (0,),
        "Slice": (0,),
        "Split": (0,),
        "SplitWithSizes": (0,),
        "Squeeze": (0, 1, 2, 3, 4, 5),
        "T": (0, 1),
        "Transpose": (0, 1),
        "Unbind": (0,),
        "Unfold": (0,),
        "UnsafeSplit": (0,),
        "UnsafeSplitWithSizes": (0,),
        "UnsafeView": (0,),
        "Unsqueeze": (0, 1),
        "View": (0,),
    }.items()
    for number in numbers
}
_COPIES = {name: row(Op(Kind.COPY)) for name in ("CloneBackward0", "ToCopyBackward0")}
_SUMS = {name: row(Op(Kind.SUM)) for name in ("AddBackward0",)}

ROWS: dict[str, Row] = {**_VIEWS, **_COPIES, **_SUMS}

#: The output is a view of the input: one storage.
VIEWS = frozenset(_VIEWS)
#: The output has the input's values in new memory, perhaps in another dtype.
COPIES = frozenset(_COPIES)
#: A reshape that may have copied: a view of a clone that nobody else has.
RESHAPES = frozenset({"UnsafeViewBackward0"})
