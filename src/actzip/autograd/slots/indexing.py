"""Rows of gathering and scattering: integers, booleans, and tensors read for their shape.

`indices` is a list slot. An element of it is int64, or bool after `x[mask]`: a role `index` asks
for the elements to come back exactly, whatever the integer type.
"""

from __future__ import annotations

from actzip.autograd.slots.rule import Node, Row, Rule, row
from actzip.control.op import Kind, Op
from actzip.methods.base import Role

_GEOMETRY, _MASK, _INDEX, _EXACT = Role.GEOMETRY, Role.MASK, Role.INDEX, Role.EXACT


def _reduced(node: Node) -> Role:
    """Sums and means only need shapes; products and extrema compare and divide."""
    return _GEOMETRY if node._saved_reduce in ("sum", "mean") else _EXACT


_PICK = Op(Kind.INDEXING)
_how = Rule(_EXACT, refine=_reduced)
_index = row(_PICK, index=_INDEX)
_indices = row(_PICK, indices=_INDEX)
_source = row(_PICK, index=_INDEX, source=_GEOMETRY)
_taken = row(_PICK, index=_INDEX, self=_GEOMETRY)

ROWS: dict[str, Row] = {
    "FftR2CBackward0": row(Op(), self=_GEOMETRY),
    "GatherBackward0": _taken,
    "IndexAddBackward0": _source,
    "IndexBackward0": _indices,
    "IndexCopyBackward0": _source,
    "IndexFillBackward0": _index,
    "IndexFillBackward1": _index,
    "IndexPutBackward0": _indices,
    "IndexPutImplBackward0": _indices,
    "IndexReduceBackward0": row(_PICK, index=_INDEX, self=_EXACT, source=_EXACT, result=_EXACT),
    "IndexSelectBackward0": _index,
    "MaskedScatterBackward0": row(_PICK, mask=_MASK),
    "MaskedSelectBackward0": row(_PICK, mask=_MASK, self=_GEOMETRY),
    "PutBackward0": _source,
    "ScatterAddBackward0": _index,
    "ScatterBackward0": _index,
    "ScatterBackward1": _index,
    "ScatterReduceBackward0": row(_PICK, index=_INDEX, self=_how, src=_how, result=_how),
    "SegmentReduceBackward0": row(
        _PICK, data=_EXACT, lengths=_INDEX, offsets=_INDEX, result=_EXACT
    ),
    "TakeBackward0": _taken,
    "UnsafeIndexBackward0": _indices,
    "UnsafeIndexPutBackward0": _indices,
    "UnsafeMaskedIndexBackward0": row(_PICK, mask=_MASK, indices=_INDEX),
    "UnsafeMaskedIndexPutAccumulateBackward0": row(_PICK, mask=_MASK, indices=_INDEX),
}
