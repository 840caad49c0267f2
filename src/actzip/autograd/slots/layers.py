"""Rows of the layers: convolution, matmul, norms, pooling, padding, dropout, embedding, RNN."""

from __future__ import annotations

from actzip.autograd.slots.rule import Node, Row, Rule, row
from actzip.methods.base import Role

_WEIGHT, _SMALL, _GEOMETRY, _MASK = Role.WEIGHT, Role.SMALL, Role.GEOMETRY, Role.MASK
_INDEX, _LINEAR, _NONLINEAR, _EXACT = Role.INDEX, Role.LINEAR, Role.NONLINEAR, Role.EXACT

_conv = row(input=_LINEAR, weight=_WEIGHT)
_backend_conv = row(self=_LINEAR, weight=_WEIGHT)

_CONVOLUTIONS: dict[str, Row] = {
    "ConvolutionBackward0": _conv,
    "ConvolutionBackward1": _conv,
    "ConvolutionOverrideableBackward0": _conv,
    "NnpackSpatialConvolutionBackward0": _conv,
    "ConvTbcBackward0": row(self=_LINEAR, weight=_WEIGHT, bias=_WEIGHT),
    "ConvDepthwise2DBackward0": _backend_conv,
    "ConvDepthwise3DBackward0": _backend_conv,
    "CudnnConvolutionBackward0": _backend_conv,
    "CudnnConvolutionTransposeBackward0": _backend_conv,
    "MiopenConvolutionBackward0": _backend_conv,
    "MiopenConvolutionTransposeBackward0": _backend_conv,
    "MiopenDepthwiseConvolutionBackward0": _backend_conv,
    "MkldnnConvolutionBackward0": _backend_conv,
    "MpsConvolutionBackward0": _backend_conv,
    "MpsConvolutionTransposeBackward0": _backend_conv,
    "SlowConv2DBackward0": _backend_conv,
    "SlowConv3DBackward0": _backend_conv,
    "SlowConvDilated2DBackward0": _backend_conv,
    "SlowConvDilated3DBackward0": _backend_conv,
    "SlowConvTranspose2DBackward0": _backend_conv,
    "SlowConvTranspose3DBackward0": _backend_conv,
}

_MATMULS: dict[str, Row] = {
    "AddbmmBackward0": row(batch1=_LINEAR, batch2=_LINEAR),
    "AddmmBackward0": row(mat1=_LINEAR, mat2=_LINEAR),
    "AddmvBackward0": row(mat=_LINEAR, vec=_LINEAR),
    "AddrBackward0": row(vec1=_LINEAR, vec2=_LINEAR),
    "BaddbmmBackward0": row(batch1=_LINEAR, batch2=_LINEAR),
    "BmmBackward0": row(self=_LINEAR, mat2=_LINEAR),
    "DotBackward0": row(self=_LINEAR, tensor=_LINEAR),
    "GroupedMmBackward0": row(self=_LINEAR, mat2=_LINEAR, offs=_EXACT),
    "LinalgCrossBackward0": row(self=_LINEAR, other=_LINEAR),
    "LinearBackward0": row(input=_LINEAR, weight=_WEIGHT),
    "MatmulBackward0": row(self=_LINEAR, other=_LINEAR),
    "MkldnnLinearBackward0": row(self=_LINEAR, weight=_WEIGHT),
    "MmBackward0": row(self=_LINEAR, mat2=_LINEAR),
    "MvBackward0": row(self=_LINEAR, vec=_LINEAR),
    "TrilinearBackward0": row(i1=_LINEAR, i2=_LINEAR, i3=_LINEAR),
    "VdotBackward0": row(self=_LINEAR, other=_LINEAR),
}


def _mode(node: Node) -> Role:
    """With frozen statistics the input only enters the gradient of the weight, linearly."""
    return _NONLINEAR if node._saved_training else _LINEAR


_moments = row(weight=_WEIGHT, result1=_SMALL, result2=_SMALL)
_affine = {**_moments, **row(input=_NONLINEAR)}
_running = {**_moments, **row(running_mean=_SMALL, running_var=_SMALL)}
_batch = {**_running, **row(input=Rule(_NONLINEAR, refine=_mode))}
_frozen = {**_running, **row(input=_LINEAR)}
_reserve = row(result3=_EXACT)  # the backend's private bytes

_NORMS: dict[str, Row] = {
    "BatchNormNoUpdateBackward0": {**_frozen, **_reserve},
    "BatchNormWithUpdateBackward0": {**_running, **_reserve, **row(input=_NONLINEAR)},
    "CudnnBatchNormBackward0": {**_batch, **_reserve},
    "FusedRmsNormBackward0": row(input=_NONLINEAR, weight=_WEIGHT, result1=_SMALL),
    "MiopenBatchNormBackward0": _batch,
    "NativeBatchNormBackward0": _batch,
    "NativeBatchNormLegitBackward0": _batch,
    "NativeBatchNormLegitBackward1": {**_moments, **row(input=Rule(_NONLINEAR, refine=_mode))},
    "NativeBatchNormLegitNoTrainingBackward0": _frozen,
    "NativeGroupNormBackward0": _affine,
    "NativeLayerNormBackward0": {**_affine, **row(bias=_WEIGHT)},
    "WeightNormInterfaceBackward0": row(g=_WEIGHT, v=_WEIGHT, result1=_SMALL),
}

_shape = row(self=_GEOMETRY)
_picked = row(self=_GEOMETRY, result1=_INDEX)
_searched = row(self=_EXACT, result=_EXACT)  # backward looks for the maxima again

_POOLS_AND_PADS: dict[str, Row] = {
    "AdaptiveAvgPool2DBackward0": _shape,
    "AdaptiveAvgPool3DBackward0": _shape,
    "AdaptiveMaxPool2DBackward0": _picked,
    "AdaptiveMaxPool3DBackward0": _picked,
    "AvgPool2DBackward0": _shape,
    "AvgPool3DBackward0": _shape,
    "FractionalMaxPool2DBackward0": _picked,
    "FractionalMaxPool3DBackward0": _picked,
    "MaxPool2DBackward0": row(self=_EXACT),
    "MaxPool2DWithIndicesBackward0": _picked,
    "MaxPool3DWithIndicesBackward0": _picked,
    "MaxUnpool2DBackward0": row(indices=_INDEX),
    "MaxUnpool3DBackward0": row(indices=_INDEX),
    "MkldnnAdaptiveAvgPool2DBackward0": row(self=_EXACT),  # an opaque layout: no shape to copy
    "MkldnnMaxPool2DBackward0": _searched,
    "MkldnnMaxPool3DBackward0": _searched,
    "ReflectionPad1DBackward0": _shape,
    "ReflectionPad2DBackward0": _shape,
    "ReflectionPad3DBackward0": _shape,
    "ReplicationPad1DBackward0": _shape,
    "ReplicationPad2DBackward0": _shape,
    "ReplicationPad3DBackward0": _shape,
}

# On a CPU dropout is a `mul` by its noise: see noise.py.
_DROPOUTS: dict[str, Row] = {
    "FusedDropoutBackward0": row(result1=_INDEX),  # uint8, 0 or 1
    "NativeDropoutBackward0": row(result1=_MASK),
}

_EMBEDDINGS: dict[str, Row] = {
    "EmbeddingBackward0": row(indices=_INDEX),
    "EmbeddingBagBackward0": row(
        indices=_INDEX,
        offsets=_INDEX,
        per_sample_weights=_LINEAR,
        weight=_WEIGHT,
        result1=_INDEX,
        result2=_INDEX,
        result3=_INDEX,
    ),
}

_gpu_rnn = row(
    input=_NONLINEAR,
    hx=_NONLINEAR,
    cx=_NONLINEAR,
    weight=_WEIGHT,
    result0=_NONLINEAR,
    result3=_EXACT,  # the backend's reserve: bytes with a meaning of their own
    result4=_WEIGHT,  # all weights in one flat buffer
    dropout_state=_EXACT,
)

_RECURRENT: dict[str, Row] = {
    "CudnnRnnBackward0": _gpu_rnn,
    "LstmMpsBackward0": row(
        input=_NONLINEAR,
        hx=_NONLINEAR,
        params=_WEIGHT,
        result3=_EXACT,
        result4=_EXACT,
        result5=_EXACT,
    ),
    "MiopenRnnBackward0": _gpu_rnn,
    "MkldnnRnnLayerBackward0": row(
        input=_NONLINEAR,
        hx_=_NONLINEAR,
        cx_=_NONLINEAR,
        weight0=_WEIGHT,
        weight1=_WEIGHT,
        weight2=_WEIGHT,
        weight3=_WEIGHT,
        result0=_NONLINEAR,
        result1=_NONLINEAR,
        result2=_NONLINEAR,
        result3=_EXACT,  # oneDNN's workspace
    ),
    "PackPaddedSequenceBackward0": row(result1=_INDEX),
    "ThnnFusedGruCellBackward0": row(
        input_gates=_NONLINEAR,
        hidden_gates=_NONLINEAR,
        hx=_NONLINEAR,
        input_bias=_WEIGHT,
        hidden_bias=_WEIGHT,
        result1=_NONLINEAR,
    ),
    "ThnnFusedLstmCellBackward0": row(
        input_gates=_NONLINEAR,
        hidden_gates=_NONLINEAR,
        cx=_NONLINEAR,
        input_bias=_WEIGHT,
        hidden_bias=_WEIGHT,
        result1=_NONLINEAR,
        result2=_NONLINEAR,
    ),
}

ROWS: dict[str, Row] = {
    **_CONVOLUTIONS,
    **_MATMULS,
    **_NORMS,
    **_POOLS_AND_PADS,
    **_DROPOUTS,
    **_EMBEDDINGS,
    **_RECURRENT,
}
