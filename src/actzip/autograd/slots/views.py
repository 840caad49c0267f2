"""Nodes that only rename elements: what lies behind them is the same data."""

from __future__ import annotations

#: The output is a view of the input: one storage.
VIEWS = frozenset(
    f"{name}Backward{number}"
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
)

#: The output has the input's values in new memory, perhaps in another dtype.
COPIES = frozenset({"CloneBackward0", "ToCopyBackward0"})
