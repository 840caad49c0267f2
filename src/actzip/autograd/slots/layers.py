"""Rows of the other layers: pooling, resizing, padding, dropout, embedding, RNN."""

from __future__ import annotations

from dataclasses import replace

from actzip.autograd.slots.rule import Row, Rule, row
from actzip.control.op import Channels, Kind, Op
from actzip.control.recurrent import lstm_input, lstm_output
from actzip.methods.base import Role

_WEIGHT, _GEOMETRY, _MASK = Role.WEIGHT, Role.GEOMETRY, Role.MASK
_INDEX, _LINEAR, _NONLINEAR, _EXACT = Role.INDEX, Role.LINEAR, Role.NONLINEAR, Role.EXACT

_POOL, _RESIZE = Op(Kind.POOL, Channels.SECOND), Op(Kind.RESIZE, Channels.SECOND)
_shape = row(_POOL, self=_GEOMETRY)
_picked = row(_POOL, self=_GEOMETRY, result1=_INDEX)
_searched = row(_POOL, self=_EXACT, result=_EXACT)  # backward looks for the maxima again
_places = row(_POOL, indices=_INDEX)

_POOLS: dict[str, Row] = {
    "AdaptiveAvgPool2DBackward0": _shape,
    "AdaptiveAvgPool3DBackward0": _shape,
    "AdaptiveMaxPool2DBackward0": _picked,
    "AdaptiveMaxPool3DBackward0": _picked,
    "AvgPool2DBackward0": row(replace(_POOL, sliced="self"), self=_GEOMETRY),
    "AvgPool3DBackward0": _shape,
    "FractionalMaxPool2DBackward0": _picked,
    "FractionalMaxPool3DBackward0": _picked,
    "MaxPool2DBackward0": row(_POOL, self=_EXACT),
    "MaxPool2DWithIndicesBackward0": row(
        replace(_POOL, sliced="self", window=2), self=_GEOMETRY, result1=_INDEX
    ),
    "MaxPool3DWithIndicesBackward0": row(replace(_POOL, window=3), self=_GEOMETRY, result1=_INDEX),
    "MaxUnpool2DBackward0": _places,
    "MaxUnpool3DBackward0": _places,
    # an opaque layout: no shape to copy
    "MkldnnAdaptiveAvgPool2DBackward0": row(_POOL, self=_EXACT),
    "MkldnnMaxPool2DBackward0": _searched,
    "MkldnnMaxPool3DBackward0": _searched,
}

#: They save nothing; what they make are maps.
_RESIZES: dict[str, Row] = {
    f"{name}Backward0": row(_RESIZE)
    for name in (
        "PixelShuffle",
        "PixelUnshuffle",
        "UpsampleBicubic2D",
        "UpsampleBicubic2DAa",
        "UpsampleBilinear2D",
        "UpsampleBilinear2DAa",
        "UpsampleLanczos2DAa",
        "UpsampleLinear1D",
        "UpsampleNearest1D",
        "UpsampleNearest2D",
        "UpsampleNearest3D",
        "UpsampleNearestExact1D",
        "UpsampleNearestExact2D",
        "UpsampleNearestExact3D",
        "UpsampleTrilinear3D",
    )
}

_PADS: dict[str, Row] = {
    f"{name}Pad{dims}DBackward0": row(Op(Kind.PAD), self=_GEOMETRY)
    for name in ("Reflection", "Replication")
    for dims in (1, 2, 3)
}

# On a CPU dropout is a `mul` by its noise: see noise.py.
_DROPOUTS: dict[str, Row] = {
    "FusedDropoutBackward0": row(Op(Kind.DROPOUT), result1=_INDEX),  # uint8, 0 or 1
    "NativeDropoutBackward0": row(Op(Kind.DROPOUT), result1=_MASK),
}

_EMBEDDING = Op(Kind.INDEXING, Channels.LAST)

_EMBEDDINGS: dict[str, Row] = {
    "EmbeddingBackward0": row(_EMBEDDING, indices=_INDEX),
    "EmbeddingBagBackward0": row(
        _EMBEDDING,
        indices=_INDEX,
        offsets=_INDEX,
        per_sample_weights=_LINEAR,
        weight=_WEIGHT,
        result1=_INDEX,
        result2=_INDEX,
        result3=_INDEX,
    ),
}

_RNN = Op(Kind.RECURRENT, Channels.NOWHERE)
_gpu_rnn = row(
    _RNN,
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
        _RNN,
        input=_NONLINEAR,
        hx=_NONLINEAR,
        params=_WEIGHT,
        result3=_EXACT,
        result4=_EXACT,
        result5=_EXACT,
    ),
    "MiopenRnnBackward0": _gpu_rnn,
    "MkldnnRnnLayerBackward0": row(
        _RNN,
        input=Rule(_NONLINEAR, error=lstm_input),
        hx_=_NONLINEAR,
        cx_=_NONLINEAR,
        weight0=_WEIGHT,
        weight1=_WEIGHT,
        weight2=_WEIGHT,
        weight3=_WEIGHT,
        result0=Rule(_NONLINEAR, error=lstm_output),
        result1=_NONLINEAR,
        result2=_NONLINEAR,
        result3=_EXACT,  # oneDNN's workspace
    ),
    "PackPaddedSequenceBackward0": row(Op(), result1=_INDEX),
    "ThnnFusedGruCellBackward0": row(
        _RNN,
        input_gates=_NONLINEAR,
        hidden_gates=_NONLINEAR,
        hx=_NONLINEAR,
        input_bias=_WEIGHT,
        hidden_bias=_WEIGHT,
        result1=_NONLINEAR,
    ),
    "ThnnFusedLstmCellBackward0": row(
        _RNN,
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
    **_POOLS,
    **_RESIZES,
    **_PADS,
    **_DROPOUTS,
    **_EMBEDDINGS,
    **_RECURRENT,
}
