"""Rows of the activations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor

from actzip.autograd.slots import masks
from actzip.autograd.slots.rule import Mask, Row, Rule, row
from actzip.control import curves
from actzip.control.backward import Backward
from actzip.control.op import Kind, Op
from actzip.methods.base import Role

_WEIGHT, _LINEAR, _NONLINEAR = Role.WEIGHT, Role.LINEAR, Role.NONLINEAR

_SMOOTH, _RELU, _GATE = Op(Kind.ACTIVATION), Op(Kind.RELU), Op(Kind.GATE)
_SLICED = replace(_SMOOTH, sliced="self")


def curved(op: Op, f: Callable[[Tensor, Backward], Tensor]) -> Row:
    """y = f(x), saved by x."""
    return row(op, self=Rule(_NONLINEAR, error=curves.elementwise(f)))


def of_result(op: Op, slope: Callable[[Tensor], Tensor], role: Role = _NONLINEAR) -> Row:
    """y = f(x), saved by y, of which the slope is a function."""
    return row(op, result=Rule(role, error=curves.of_result(slope)))


def _pieces(mask: Mask, sliced: str = "") -> Row:
    """Saved by x, of which one bit per element is read."""
    return row(replace(_RELU, sliced=sliced), self=mask)


# training multiplies by the noise; otherwise the slope is one number and only the sign is read
_rrelu = row(_RELU, self=masks.LEAKY, noise=_LINEAR)

ROWS: dict[str, Row] = {
    "CeluBackward0": curved(_SMOOTH, curves.celu),
    "CeluBackward1": row(_SMOOTH, result=_NONLINEAR),
    "EluBackward0": curved(_SMOOTH, curves.elu),
    "EluBackward1": row(_SMOOTH, result=_NONLINEAR),
    "GeluBackward0": curved(_SLICED, curves.gelu),
    "GluBackward0": row(_GATE, self=Rule(_NONLINEAR, error=curves.gate)),
    "HardshrinkBackward0": _pieces(masks.SHRINK),
    "HardsigmoidBackward0": _pieces(masks.HARDSIGMOID),
    "HardswishBackward0": curved(_SLICED, lambda x, b: F.hardswish(x)),
    "HardtanhBackward0": _pieces(masks.HARDTANH, "self"),
    "LeakyReluBackward0": _pieces(masks.LEAKY, "self"),
    "LeakyReluBackward1": row(_RELU, result=masks.LEAKY),
    "LogSigmoidBackward0": row(_GATE, self=_NONLINEAR, buffer=_NONLINEAR),
    "MishBackward0": curved(_SMOOTH, lambda x, b: F.mish(x)),
    # not linear: a rounded value may change its sign, and with it the branch
    "PreluKernelBackward0": row(_RELU, self=_NONLINEAR, weight=_WEIGHT),
    "ReluBackward0": row(replace(_RELU, sliced="result"), result=masks.RELU),
    "RreluWithNoiseBackward0": _rrelu,
    "RreluWithNoiseBackward1": row(_RELU, result=masks.LEAKY, noise=_LINEAR),
    "RreluWithNoiseFunctionalBackward0": _rrelu,
    "SigmoidBackward0": of_result(_GATE, lambda y: y * (1 - y)),
    "SiluBackward0": curved(_SLICED, lambda x, b: F.silu(x)),
    "SoftplusBackward0": curved(_SMOOTH, curves.softplus),
    "SoftshrinkBackward0": _pieces(masks.SHRINK),
    "TanhBackward0": of_result(_GATE, lambda y: 1 - y * y),
    "ThresholdBackward0": _pieces(masks.THRESHOLD),
    "ThresholdBackward1": _pieces(masks.THRESHOLD),
}
