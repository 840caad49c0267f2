"""Rows of element-by-element functions: activations, arithmetic, comparisons."""

from __future__ import annotations

from actzip.autograd.slots import masks
from actzip.autograd.slots.rule import Node, Row, Rule, row
from actzip.methods.base import Role

_WEIGHT, _MASK, _LINEAR, _NONLINEAR = Role.WEIGHT, Role.MASK, Role.LINEAR, Role.NONLINEAR
_EXACT, _GEOMETRY, _INDEX = Role.EXACT, Role.GEOMETRY, Role.INDEX


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


_curved = row(self=_NONLINEAR)
_of_result = row(result=_NONLINEAR)
_pole = row(self=_EXACT)
_both_exact = row(self=_EXACT, other=_EXACT)
_in_range = row(mask=_MASK)
# training multiplies by the noise; otherwise the slope is one number and only the sign is read
_rrelu = row(self=masks.LEAKY, noise=_LINEAR)

_ACTIVATIONS: dict[str, Row] = {
    "CeluBackward0": _curved,
    "CeluBackward1": _of_result,
    "EluBackward0": _curved,
    "EluBackward1": _of_result,
    "GeluBackward0": _curved,
    "GluBackward0": _curved,
    "HardshrinkBackward0": row(self=masks.SHRINK),
    "HardsigmoidBackward0": row(self=masks.HARDSIGMOID),
    "HardswishBackward0": _curved,
    "HardtanhBackward0": row(self=masks.HARDTANH),
    "LeakyReluBackward0": row(self=masks.LEAKY),
    "LeakyReluBackward1": row(result=masks.LEAKY),
    "LogSigmoidBackward0": row(self=_NONLINEAR, buffer=_NONLINEAR),
    "MishBackward0": _curved,
    # not linear: a rounded value may change its sign, and with it the branch
    "PreluKernelBackward0": row(self=_NONLINEAR, weight=_WEIGHT),
    "ReluBackward0": row(result=masks.RELU),
    "RreluWithNoiseBackward0": _rrelu,
    "RreluWithNoiseBackward1": row(result=masks.LEAKY, noise=_LINEAR),
    "RreluWithNoiseFunctionalBackward0": _rrelu,
    "SigmoidBackward0": _of_result,
    "SiluBackward0": _curved,
    "SoftplusBackward0": _curved,
    "SoftshrinkBackward0": row(self=masks.SHRINK),
    "TanhBackward0": _of_result,
    "ThresholdBackward0": row(self=masks.THRESHOLD),
    "ThresholdBackward1": row(self=masks.THRESHOLD),
}

_ARITHMETIC: dict[str, Row] = {
    "AddcdivBackward0": row(tensor1=_LINEAR, tensor2=_EXACT),
    "AddcmulBackward0": row(tensor1=_LINEAR, tensor2=_LINEAR),
    "DivBackward0": row(self=_LINEAR, other=_EXACT),
    "DivBackward2": row(self=_LINEAR, other=_EXACT),
    "Exp2Backward0": row(result=_LINEAR),
    "ExpBackward0": row(result=_LINEAR),
    "Expm1Backward0": row(result=_LINEAR),
    "FmodBackward1": _both_exact,
    "FrexpBackward0": row(exponent=_INDEX),
    "HypotBackward0": row(self=_LINEAR, other=_LINEAR, result=_EXACT),
    "LdexpBackward0": row(other=_EXACT, result=_LINEAR),
    "LerpBackward1": row(self=_LINEAR, end=_LINEAR, weight=_LINEAR),
    "MulBackward0": row(self=_LINEAR, other=_LINEAR),
    "PowBackward0": row(self=Rule(_EXACT, refine=_power)),
    "PowBackward1": row(self=_EXACT, exponent=_EXACT, result=_EXACT),
    "PowBackward2": row(
        exponent=Rule(_EXACT, refine=_exponent), result=Rule(_EXACT, refine=_exponential)
    ),
    "ReciprocalBackward0": _of_result,
    "RemainderBackward1": _both_exact,
    "RsqrtBackward0": _of_result,
    "SqrtBackward0": row(result=_EXACT),
}

_FUNCTIONS: dict[str, Row] = {
    "AcosBackward0": _pole,
    "AcoshBackward0": _pole,
    "AsinBackward0": _pole,
    "AsinhBackward0": _curved,
    "Atan2Backward0": _both_exact,
    "AtanBackward0": _curved,
    "AtanhBackward0": _pole,
    "CosBackward0": _curved,
    "CoshBackward0": _curved,
    "DigammaBackward0": _pole,
    "ErfBackward0": _curved,
    "ErfcBackward0": _curved,
    "ErfinvBackward0": _pole,
    "LgammaBackward0": _pole,
    "Log10Backward0": _pole,
    "Log1PBackward0": _pole,
    "Log2Backward0": _pole,
    "LogBackward0": _pole,
    "Logaddexp2Backward0": row(self=_NONLINEAR, other=_NONLINEAR),
    "LogaddexpBackward0": row(self=_NONLINEAR, other=_NONLINEAR),
    "LogitBackward0": _pole,
    "SinBackward0": _curved,
    "SincBackward0": _pole,
    "SinhBackward0": _curved,
    "SpecialEntrBackward0": _pole,
    "TanBackward0": _of_result,
    "XlogyBackward0": _both_exact,
    "XlogyBackward1": row(other=_EXACT),
    "XlogyBackward2": row(self=_EXACT),
}

_COMPARISONS: dict[str, Row] = {
    "AbsBackward0": row(self=_EXACT),  # three answers: -1, 0, 1; neither one bit nor a code
    "ClampBackward0": row(self=_EXACT, min=_EXACT, max=_EXACT),
    "ClampBackward1": row(self=masks.CLAMP),
    "ClampMaxBackward0": row(self=masks.CLAMP_MAX),
    "ClampMaxBackward1": row(self=_EXACT, max=_EXACT),
    "ClampMinBackward0": row(self=masks.CLAMP_MIN),
    "ClampMinBackward1": row(self=_EXACT, min=_EXACT),
    "CopysignBackward0": row(self=_EXACT, result=_EXACT),
    "CopysignBackward1": row(self=_EXACT, result=_EXACT),
    "FakeQuantizeLearnablePerChannelAffineBackward0": row(
        self=_EXACT, scale=_EXACT, zero_point=_EXACT
    ),
    "FakeQuantizeLearnablePerTensorAffineBackward0": row(
        self=_EXACT, scale=_EXACT, zero_point=_EXACT
    ),
    "FakeQuantizePerChannelAffineCachemaskBackward0": _in_range,
    "FakeQuantizePerTensorAffineCachemaskBackward0": _in_range,
    "FakeQuantizePerTensorAffineCachemaskTensorQparamsBackward0": _in_range,
    "FmaxBackward0": _both_exact,
    "FminBackward0": _both_exact,
    "FusedMovingAvgObsFqHelperBackward0": _in_range,
    "MaskedFillBackward0": row(mask=_MASK),
    "MaskedFillBackward1": row(mask=_MASK),
    "MaximumBackward0": _both_exact,
    "MinimumBackward0": _both_exact,
    "NanToNumBackward0": row(self=masks.NAN_TO_NUM),
    "SgnBackward0": row(self=_GEOMETRY, result=_GEOMETRY),
    "WhereBackward0": row(condition=_MASK),
}

ROWS: dict[str, Row] = {**_ACTIVATIONS, **_ARITHMETIC, **_FUNCTIONS, **_COMPARISONS}
