"""Rows of the losses."""

from __future__ import annotations

from actzip.autograd.slots.rule import Row, row
from actzip.control.op import Kind, Op
from actzip.methods.base import Role

_SMALL, _GEOMETRY, _INDEX = Role.SMALL, Role.GEOMETRY, Role.INDEX
_LINEAR, _NONLINEAR, _EXACT = Role.LINEAR, Role.NONLINEAR, Role.EXACT

_LOSS = Op(Kind.LOSS)

_nll = row(_LOSS, self=_GEOMETRY, target=_INDEX, weight=_SMALL, total_weight=_SMALL)
_bounded = row(_LOSS, self=_NONLINEAR, target=_NONLINEAR)
# the gradient itself, made in forward
_ready_ctc = row(_LOSS, result0=_SMALL, result1=_LINEAR)
# sums of exponentials of sums over time: an error in any term is multiplied without bound
_ctc = row(_LOSS, log_probs=_EXACT, targets=_INDEX, result0=_SMALL, result1=_EXACT)

# what a custom op of PyTorch's own saves has no names: input, weight, target, bias, class weights
_CHUNKED = (
    "GeneratedBackwardFor_torch_nn__linear_cross_entropy_batch_chunked_no_reduction_defaultBackward"
)

ROWS: dict[str, Row] = {
    # the probability stands under 1 / (p (1 - p))
    "BinaryCrossEntropyBackward0": row(_LOSS, self=_EXACT, target=_LINEAR, weight=_LINEAR),
    "BinaryCrossEntropyWithLogitsBackward0": row(
        _LOSS, self=_NONLINEAR, target=_LINEAR, weight=_LINEAR, pos_weight=_LINEAR
    ),
    # chunked linear_cross_entropy makes its gradients in forward, or everything in backward again
    "GeneratedBackwardFor_torch_nn__linear_cross_entropy_batch_chunked_defaultBackward": row(_LOSS),
    _CHUNKED: row(
        _LOSS,
        **{"tensors[0]": _NONLINEAR, "tensors[1]": Role.WEIGHT, "tensors[2]": _INDEX},
        **{"tensors[3]": Role.WEIGHT, "tensors[4]": _SMALL},
    ),
    "CtcLossBackward0": _ctc,
    "CtcLossBackward1": row(_LOSS, **_ctc.slots, input_lengths=_INDEX, target_lengths=_INDEX),
    "CudnnCtcLossBackward0": _ready_ctc,
    "CudnnCtcLossBackward1": _ready_ctc,
    "HuberLossBackward0": _bounded,
    "MiopenCtcLossBackward0": _ready_ctc,
    "MiopenCtcLossBackward1": _ready_ctc,
    "MseLossBackward0": row(_LOSS, self=_LINEAR, target=_LINEAR),
    "MultiMarginLossBackward0": row(_LOSS, self=_NONLINEAR, target=_INDEX, weight=_SMALL),
    "MultilabelMarginLossBackward0": row(_LOSS, self=_NONLINEAR, target=_INDEX, is_target=_EXACT),
    "NllLoss2DBackward0": _nll,
    "NllLossBackward0": _nll,
    "SmoothL1LossBackward0": _bounded,
    "SoftMarginLossBackward0": _bounded,
}
