"""Rows of the norms."""

from __future__ import annotations

from dataclasses import replace

from actzip.autograd.slots.rule import Node, Row, Rule, row
from actzip.control.curves import rms_norm
from actzip.control.error import batch_norm, group_norm, layer_norm
from actzip.control.op import Channels, Kind, Op
from actzip.methods.base import Role

_WEIGHT, _SMALL, _EXACT = Role.WEIGHT, Role.SMALL, Role.EXACT
_LINEAR, _NONLINEAR = Role.LINEAR, Role.NONLINEAR

_BATCH = Op(Kind.BATCH_NORM, Channels.SECOND)
_GROUPS = Op(Kind.GROUP_NORM, Channels.SECOND)
_ROWS = Op(Kind.ROW_NORM, Channels.LAST)


def _mode(node: Node) -> Role:
    """With frozen statistics the input only enters the gradient of the weight, linearly."""
    return _NONLINEAR if node._saved_training else _LINEAR


_moments = {"weight": _WEIGHT, "result1": _SMALL, "result2": _SMALL}
_running = {**_moments, "running_mean": _SMALL, "running_var": _SMALL}
_input = Rule(_NONLINEAR, refine=_mode, error=batch_norm)
_trained = Rule(_NONLINEAR, error=batch_norm)

ROWS: dict[str, Row] = {
    # result3: the backend's private bytes
    "BatchNormNoUpdateBackward0": row(_BATCH, **_running, result3=_EXACT, input=_LINEAR),
    "BatchNormWithUpdateBackward0": row(_BATCH, **_running, result3=_EXACT, input=_trained),
    "CudnnBatchNormBackward0": row(_BATCH, **_running, result3=_EXACT, input=_input),
    "FusedRmsNormBackward0": row(
        _ROWS, input=Rule(_NONLINEAR, error=rms_norm), weight=_WEIGHT, result1=_SMALL
    ),
    "MiopenBatchNormBackward0": row(_BATCH, **_running, input=_input),
    "NativeBatchNormBackward0": row(replace(_BATCH, sliced="input"), **_running, input=_input),
    "NativeBatchNormLegitBackward0": row(_BATCH, **_running, input=_input),
    "NativeBatchNormLegitBackward1": row(_BATCH, **_moments, input=_input),
    "NativeBatchNormLegitNoTrainingBackward0": row(_BATCH, **_running, input=_LINEAR),
    "NativeGroupNormBackward0": row(_GROUPS, **_moments, input=Rule(_NONLINEAR, error=group_norm)),
    "NativeLayerNormBackward0": row(
        _ROWS, **_moments, input=Rule(_NONLINEAR, error=layer_norm), bias=_WEIGHT
    ),
    "WeightNormInterfaceBackward0": row(Op(), g=_WEIGHT, v=_WEIGHT, result1=_SMALL),
}
