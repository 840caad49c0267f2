"""Rows of the backward of backward formulas: gradient penalties, meta-learning.

A backward formula is linear in the gradient that came, and bends with x as the op's own backward.
"""

from __future__ import annotations

from actzip.autograd.slots import masks
from actzip.autograd.slots.rule import Row, row
from actzip.control.op import Channels, Kind, Op
from actzip.methods.base import Role

_WEIGHT, _SMALL, _INDEX = Role.WEIGHT, Role.SMALL, Role.INDEX
_LINEAR, _NONLINEAR = Role.LINEAR, Role.NONLINEAR

_CONV, _POOL = Op(Kind.CONVOLUTION, Channels.SECOND), Op(Kind.POOL, Channels.SECOND)
_BATCH, _ROWS = Op(Kind.BATCH_NORM, Channels.SECOND), Op(Kind.ROW_NORM, Channels.LAST)
_SMOOTH, _RELU, _GATE = Op(Kind.ACTIVATION), Op(Kind.RELU), Op(Kind.GATE)
_SOFTMAX, _LOSS = Op(Kind.SOFTMAX, Channels.NOWHERE), Op(Kind.LOSS)

_places = row(_POOL, indices=_INDEX)
_smooth = row(_SMOOTH, grad_output=_LINEAR, self=_NONLINEAR)
_gate = row(_GATE, grad_output=_LINEAR, output=_NONLINEAR)
_softmax = row(_SOFTMAX, grad_output=_LINEAR, output=_NONLINEAR)
_targets = row(_LOSS, target=_INDEX, weight=_SMALL)

ROWS: dict[str, Row] = {
    "AdaptiveMaxPool2DBackwardBackward0": _places,
    "AdaptiveMaxPool3DBackwardBackward0": _places,
    "ConvolutionBackwardBackward0": row(_CONV, grad_output=_LINEAR, input=_LINEAR, weight=_WEIGHT),
    "EluBackwardBackward0": row(_SMOOTH, grad_output=_LINEAR, self_or_result=_NONLINEAR),
    "EmbeddingDenseBackwardBackward0": row(Op(Kind.INDEXING, Channels.LAST), indices=_INDEX),
    "GeluBackwardBackward0": _smooth,
    "GluBackwardBackward0": row(_GATE, grad_output=_LINEAR, self=_NONLINEAR),
    "HardswishBackwardBackward0": _smooth,
    "HardtanhBackwardBackward0": row(_RELU, self=masks.HARDTANH),
    "LeakyReluBackwardBackward0": row(_RELU, self=masks.LEAKY),
    "LogSoftmaxBackwardDataBackward0": _softmax,
    "MaxPool2DWithIndicesBackwardBackward0": _places,
    "MaxPool3DWithIndicesBackwardBackward0": _places,
    "MseLossBackwardBackward0": row(_LOSS, grad_output=_LINEAR, self=_LINEAR, target=_LINEAR),
    "NativeBatchNormBackwardBackward0": row(
        _BATCH,
        grad_out=_LINEAR,
        input=_NONLINEAR,
        weight=_WEIGHT,
        running_mean=_SMALL,
        running_var=_SMALL,
        save_mean=_SMALL,
        save_invstd=_SMALL,
    ),
    "NativeLayerNormBackwardBackward0": row(
        _ROWS, grad_out=_LINEAR, input=_NONLINEAR, weight=_WEIGHT, mean=_SMALL, rstd=_SMALL
    ),
    "NllLoss2DBackwardBackward0": _targets,
    "NllLossBackwardBackward0": _targets,
    "SigmoidBackwardBackward0": _gate,
    "SoftmaxBackwardDataBackward0": _softmax,
    "SoftplusBackwardBackward0": _smooth,
    "TanhBackwardBackward0": _gate,
    "ThresholdBackwardBackward0": row(_RELU, self=masks.THRESHOLD),
}
