"""Rows of element-by-element functions: arithmetic, special functions, comparisons."""

from __future__ import annotations

import math

from actzip.autograd.slots import masks
from actzip.autograd.slots.activations import curved, of_result
from actzip.autograd.slots.rule import Node, Row, Rule, row
from actzip.control.curves import elementwise, factor, power
from actzip.control.op import Kind, Op
from actzip.methods.base import Role

_MASK, _LINEAR, _NONLINEAR = Role.MASK, Role.LINEAR, Role.NONLINEAR
_EXACT, _GEOMETRY, _INDEX = Role.EXACT, Role.GEOMETRY, Role.INDEX

_POINT = Op(Kind.POINTWISE)


def _power(node: Node) -> Role:
    """x**p gives p·x**(p-1): a constant, linear, a polynomial, or a function with a pole."""
    p = node._saved_exponent
    if p in (0, 1):
        return _GEOMETRY
    if p == 2:
        return _LINEAR
    return _NONLINEAR if float(p).is_integer() and p > 2 else _EXACT


def _exponent(node: Node) -> Role:
    """base**x is kept as its result; x itself is only looked at when the base is 0."""
    return _EXACT if node._saved_self == 0 else _GEOMETRY


def _exponential(node: Node) -> Role:
    """The gradient of base**x is the result times log(base), which a base of 0 does not have."""
    return _EXACT if node._saved_self == 0 else _LINEAR


_pole = row(_POINT, self=_EXACT)
_both_exact = row(_POINT, self=_EXACT, other=_EXACT)
_in_range = row(_POINT, mask=_MASK)

_ARITHMETIC: dict[str, Row] = {
    "AddcdivBackward0": row(_POINT, tensor1=_LINEAR, tensor2=_EXACT),
    "AddcmulBackward0": row(_POINT, tensor1=_LINEAR, tensor2=_LINEAR),
    "DivBackward0": row(_POINT, self=_LINEAR, other=_EXACT),
    "DivBackward2": row(_POINT, self=_LINEAR, other=_EXACT),
    "Exp2Backward0": of_result(_POINT, lambda y: y * math.log(2), _LINEAR),
    "ExpBackward0": of_result(_POINT, lambda y: y, _LINEAR),
    "Expm1Backward0": of_result(_POINT, lambda y: y + 1, _LINEAR),
    "FmodBackward1": _both_exact,
    "FrexpBackward0": row(_POINT, exponent=_INDEX),
    "HypotBackward0": row(_POINT, self=_LINEAR, other=_LINEAR, result=_EXACT),
    "LdexpBackward0": row(_POINT, other=_EXACT, result=_LINEAR),
    "LerpBackward1": row(_POINT, self=_LINEAR, end=_LINEAR, weight=_LINEAR),
    "MulBackward0": row(
        _POINT, self=Rule(_LINEAR, error=factor(1)), other=Rule(_LINEAR, error=factor(0))
    ),
    "PowBackward0": row(_POINT, self=Rule(_EXACT, refine=_power, error=elementwise(power))),
    "PowBackward1": row(_POINT, self=_EXACT, exponent=_EXACT, result=_EXACT),
    "PowBackward2": row(
        _POINT, exponent=Rule(_EXACT, refine=_exponent), result=Rule(_EXACT, refine=_exponential)
    ),
    "ReciprocalBackward0": of_result(_POINT, lambda y: -y * y),
    "RemainderBackward1": _both_exact,
    "RsqrtBackward0": of_result(_POINT, lambda y: -y * y * y / 2),
    "SqrtBackward0": row(_POINT, result=_EXACT),
}

_FUNCTIONS: dict[str, Row] = {
    "AcosBackward0": _pole,
    "AcoshBackward0": _pole,
    "AsinBackward0": _pole,
    "AsinhBackward0": curved(_POINT, lambda x, b: x.asinh()),
    "Atan2Backward0": _both_exact,
    "AtanBackward0": curved(_POINT, lambda x, b: x.atan()),
    "AtanhBackward0": _pole,
    "CosBackward0": curved(_POINT, lambda x, b: x.cos()),
    "CoshBackward0": curved(_POINT, lambda x, b: x.cosh()),
    "DigammaBackward0": _pole,
    "ErfBackward0": curved(_POINT, lambda x, b: x.erf()),
    "ErfcBackward0": curved(_POINT, lambda x, b: x.erfc()),
    "ErfinvBackward0": _pole,
    "LgammaBackward0": _pole,
    "Log10Backward0": _pole,
    "Log1PBackward0": _pole,
    "Log2Backward0": _pole,
    "LogBackward0": _pole,
    "Logaddexp2Backward0": row(_POINT, self=_NONLINEAR, other=_NONLINEAR),
    "LogaddexpBackward0": row(_POINT, self=_NONLINEAR, other=_NONLINEAR),
    "LogitBackward0": _pole,
    "SinBackward0": curved(_POINT, lambda x, b: x.sin()),
    "SincBackward0": _pole,
    "SinhBackward0": curved(_POINT, lambda x, b: x.sinh()),
    "SpecialEntrBackward0": _pole,
    "TanBackward0": of_result(_POINT, lambda y: 1 + y * y),
    "XlogyBackward0": _both_exact,
    "XlogyBackward1": row(_POINT, other=_EXACT),
    "XlogyBackward2": row(_POINT, self=_EXACT),
}

_COMPARISONS: dict[str, Row] = {
    "AbsBackward0": row(_POINT, self=_EXACT),  # three answers: -1, 0, 1; neither one bit nor a code
    "ClampBackward0": row(_POINT, self=_EXACT, min=_EXACT, max=_EXACT),
    "ClampBackward1": row(_POINT, self=masks.CLAMP),
    "ClampMaxBackward0": row(_POINT, self=masks.CLAMP_MAX),
    "ClampMaxBackward1": row(_POINT, self=_EXACT, max=_EXACT),
    "ClampMinBackward0": row(_POINT, self=masks.CLAMP_MIN),
    "ClampMinBackward1": row(_POINT, self=_EXACT, min=_EXACT),
    "CopysignBackward0": row(_POINT, self=_EXACT, result=_EXACT),
    "CopysignBackward1": row(_POINT, self=_EXACT, result=_EXACT),
    "FakeQuantizeLearnablePerChannelAffineBackward0": row(
        _POINT, self=_EXACT, scale=_EXACT, zero_point=_EXACT
    ),
    "FakeQuantizeLearnablePerTensorAffineBackward0": row(
        _POINT, self=_EXACT, scale=_EXACT, zero_point=_EXACT
    ),
    "FakeQuantizePerChannelAffineCachemaskBackward0": _in_range,
    "FakeQuantizePerTensorAffineCachemaskBackward0": _in_range,
    "FakeQuantizePerTensorAffineCachemaskTensorQparamsBackward0": _in_range,
    "FmaxBackward0": _both_exact,
    "FminBackward0": _both_exact,
    "FusedMovingAvgObsFqHelperBackward0": _in_range,
    "MaskedFillBackward0": row(_POINT, mask=_MASK),
    "MaskedFillBackward1": row(_POINT, mask=_MASK),
    "MaximumBackward0": _both_exact,
    "MinimumBackward0": _both_exact,
    "NanToNumBackward0": row(_POINT, self=masks.NAN_TO_NUM),
    "SgnBackward0": row(_POINT, self=_GEOMETRY, result=_GEOMETRY),
    "WhereBackward0": row(_POINT, condition=_MASK),
}

ROWS: dict[str, Row] = {**_ARITHMETIC, **_FUNCTIONS, **_COMPARISONS}
