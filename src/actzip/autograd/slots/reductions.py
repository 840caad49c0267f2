"""Rows of reductions, scans, sorting and distances."""

from __future__ import annotations

from actzip.autograd.slots import masks
from actzip.autograd.slots.rule import Node, Row, Rule, row
from actzip.control.op import Kind, Op
from actzip.methods.base import Role

_SMALL, _GEOMETRY, _INDEX = Role.SMALL, Role.GEOMETRY, Role.INDEX
_LINEAR, _NONLINEAR, _EXACT = Role.LINEAR, Role.NONLINEAR, Role.EXACT

_REDUCTION = Op(Kind.REDUCTION)


def _order(node: Node) -> Role:
    """The 2-norm's gradient is x over the norm; others ask for signs, maxima or powers of x."""
    order = node._saved_ord if hasattr(node, "_saved_ord") else node._saved_p
    return _LINEAR if order is None or order == 2 else _EXACT


_norm = row(_REDUCTION, self=Rule(_EXACT, refine=_order), result=_SMALL)
_picked = row(_REDUCTION, indices=_INDEX)
_searched = row(_REDUCTION, self=_EXACT, result=_EXACT)  # backward looks for `self == result`
_scanned = row(_REDUCTION, self=_GEOMETRY, indices=_INDEX)

ROWS: dict[str, Row] = {
    "AmaxBackward0": _searched,
    "AminBackward0": _searched,
    "AminmaxBackward0": row(_REDUCTION, self=_EXACT, min=_EXACT, max=_EXACT),
    "CummaxBackward0": _scanned,
    "CumminBackward0": _scanned,
    "CumprodBackward0": _searched,
    "KthvalueBackward0": _picked,
    "LinalgVectorNormBackward0": _norm,
    "LogcumsumexpBackward0": _searched,
    "LogsumexpBackward0": row(_REDUCTION, self=_NONLINEAR, result=_SMALL),
    "MaxBackward0": _picked,
    "MaxBackward1": _searched,
    "MedianBackward0": _searched,
    "MedianBackward1": _picked,
    "MinBackward0": _picked,
    "MinBackward1": _searched,
    "ModeBackward0": _picked,
    "NanmedianBackward0": _searched,
    "NanmedianBackward1": _picked,
    "NansumBackward0": row(_REDUCTION, self=masks.NANSUM),
    "NormBackward0": _norm,
    "NormBackward1": _norm,
    "NormBackward2": _norm,
    "NormBackward3": _norm,
    "ProdBackward0": _searched,
    "ProdBackward1": _searched,
    "RenormBackward0": row(_REDUCTION, self=_EXACT),
    "SortBackward0": _picked,
    "SortBackward1": _picked,
    "StdBackward0": row(_REDUCTION, self=_LINEAR, result=_SMALL),
    "StdMeanBackward0": row(_REDUCTION, self=_LINEAR, result0=_SMALL),
    "TopkBackward0": _picked,
    "VarBackward0": row(_REDUCTION, self=_LINEAR),
    "VarMeanBackward0": row(_REDUCTION, self=_LINEAR),
    "CdistBackward0": row(_REDUCTION, x1=_EXACT, x2=_EXACT, result=_EXACT),
    "DistBackward0": row(_REDUCTION, self=_EXACT, other=_EXACT, result=_SMALL),
    "EuclideanDistBackward0": row(_REDUCTION, x1=_LINEAR, x2=_LINEAR, result=_EXACT),
    "PdistBackward0": row(_REDUCTION, self=_EXACT, result=_EXACT),
}
