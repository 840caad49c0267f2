"""Rows of convolution and matmul: gW = Σ gY·x, linear in what is stored."""

from __future__ import annotations

from dataclasses import replace

from actzip.autograd.slots.rule import Row, Rule, row
from actzip.control.error import convolution, left, right, transposed_convolution
from actzip.control.op import Channels, Kind, Op
from actzip.methods.base import Role

_WEIGHT, _LINEAR, _EXACT = Role.WEIGHT, Role.LINEAR, Role.EXACT

_CONV = Op(Kind.CONVOLUTION, Channels.SECOND, weight=1)
_input, _transposed = (Rule(_LINEAR, error=f) for f in (convolution, transposed_convolution))

_conv = row(_CONV, input=_input, weight=_WEIGHT)
_backend_conv = row(_CONV, self=_input, weight=_WEIGHT)
_backend_transposed = row(_CONV, self=_transposed, weight=_WEIGHT)

_CONVOLUTIONS: dict[str, Row] = {
    "ConvolutionBackward0": row(replace(_CONV, sliced="input"), input=_input, weight=_WEIGHT),
    "ConvolutionBackward1": _conv,
    "ConvolutionOverrideableBackward0": _conv,
    "NnpackSpatialConvolutionBackward0": _conv,
    "ConvTbcBackward0": row(
        Op(Kind.CONVOLUTION, Channels.NOWHERE), self=_LINEAR, weight=_WEIGHT, bias=_WEIGHT
    ),
    "ConvDepthwise2DBackward0": _backend_conv,
    "ConvDepthwise3DBackward0": _backend_conv,
    "CudnnConvolutionBackward0": _backend_conv,
    "CudnnConvolutionTransposeBackward0": _backend_transposed,
    "MiopenConvolutionBackward0": _backend_conv,
    "MiopenConvolutionTransposeBackward0": _backend_transposed,
    "MiopenDepthwiseConvolutionBackward0": _backend_conv,
    "MkldnnConvolutionBackward0": _backend_conv,
    "MpsConvolutionBackward0": _backend_conv,
    "MpsConvolutionTransposeBackward0": _backend_transposed,
    "SlowConv2DBackward0": _backend_conv,
    "SlowConv3DBackward0": _backend_conv,
    "SlowConvDilated2DBackward0": _backend_conv,
    "SlowConvDilated3DBackward0": _backend_conv,
    "SlowConvTranspose2DBackward0": _backend_transposed,
    "SlowConvTranspose3DBackward0": _backend_transposed,
}

_DENSE, _MATMUL, _VECTOR = Op(Kind.DENSE, Channels.LAST), Op(Kind.MATMUL), Op(Kind.VECTOR)
_BATCHED = Op(Kind.MATMUL, Channels.NOWHERE)
_left, _right = Rule(_LINEAR, error=left), Rule(_LINEAR, error=right)

_MATMULS: dict[str, Row] = {
    "AddbmmBackward0": row(_MATMUL, batch1=_LINEAR, batch2=_LINEAR),
    "AddmmBackward0": row(replace(_DENSE, weight=2), mat1=_left, mat2=_right),
    "AddmvBackward0": row(_MATMUL, mat=_LINEAR, vec=_LINEAR),
    "AddrBackward0": row(_MATMUL, vec1=_LINEAR, vec2=_LINEAR),
    "BaddbmmBackward0": row(replace(_MATMUL, weight=2), batch1=_left, batch2=_right),
    "BmmBackward0": row(replace(_BATCHED, weight=1), self=_left, mat2=_right),
    "DotBackward0": row(_VECTOR, self=_LINEAR, tensor=_LINEAR),
    "GroupedMmBackward0": row(_DENSE, self=_LINEAR, mat2=_LINEAR, offs=_EXACT),
    "LinalgCrossBackward0": row(_MATMUL, self=_LINEAR, other=_LINEAR),
    "LinearBackward0": row(replace(_DENSE, weight=1), input=_left, weight=_WEIGHT),
    "MatmulBackward0": row(_BATCHED, self=_LINEAR, other=_LINEAR),
    "MkldnnLinearBackward0": row(replace(_DENSE, weight=1), self=_left, weight=_WEIGHT),
    "MmBackward0": row(replace(_DENSE, weight=1), self=_left, mat2=_right),
    "MvBackward0": row(_VECTOR, self=_LINEAR, vec=_LINEAR),
    "TrilinearBackward0": row(_MATMUL, i1=_LINEAR, i2=_LINEAR, i3=_LINEAR),
    "VdotBackward0": row(_VECTOR, self=_LINEAR, other=_LINEAR),
}

ROWS: dict[str, Row] = {**_CONVOLUTIONS, **_MATMULS}
