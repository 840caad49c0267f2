"""Ops whose result costs about as much to make again as to decode: norms, activations, arithmetic.

Their results need not be stored when what they were made from is. Never a matmul or a convolution;
nothing that draws random numbers or has a memory of its own (BatchNorm in training has one).
"""

from __future__ import annotations

import types
from typing import Any

_NAMES = {
    # norms
    *("NativeLayerNorm", "NativeGroupNorm", "FusedRmsNorm"),
    # activations
    *("Relu", "LeakyRelu", "Elu", "Celu", "Gelu", "Silu", "Sigmoid", "Tanh", "Hardswish"),
    *("Hardsigmoid", "Hardtanh", "LogSigmoid", "Mish", "Softplus", "Glu", "Threshold"),
    # arithmetic
    *("Add", "Sub", "Rsub", "Mul", "Div", "Neg", "Pow", "Addcmul", "Lerp", "Abs", "Clamp"),
    *("Exp", "Expm1", "Sqrt", "Rsqrt", "Reciprocal", "Sin", "Cos", "Erf", "ClampMin", "ClampMax"),
    # copies
    *("Clone", "ToCopy"),
}
_NODES = frozenset(f"{name}Backward{i}" for name in _NAMES for i in range(4))

_BUILT_IN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
)

_KNOWN: dict[type, bool] = {}


def derives(kind: type) -> bool:
    """Whether results of the op with this node are cheap to make again."""
    found = _KNOWN.get(kind)
    if found is None:
        found = _KNOWN[kind] = kind.__name__ in _NODES
    return found


def repeats(func: Any) -> bool:
    """Whether this function is PyTorch's own and gives the same again; dropout does not."""
    if "dropout" in getattr(func, "__name__", ""):
        return False
    return isinstance(func, _BUILT_IN) or str(getattr(func, "__module__", "")).startswith("torch.")


def drops(func: Any) -> bool:
    """Whether this is a dropout: its result is its input times the noise that its node saves."""
    return getattr(func, "__name__", "") in ("dropout", "dropout1d", "dropout2d", "dropout3d")
