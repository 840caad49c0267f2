"""Ops whose result costs about as much to make again as to decode: norms, activations, arithmetic.

Their results need not be stored when what they were made from is. Never a matmul or a convolution;
nothing that draws random numbers or has a memory of its own (BatchNorm in training has one).
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

from actzip.autograd.slots.lookup import op
from actzip.autograd.slots.rule import Node
from actzip.control.op import NORMS

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
#: Not for values with an error in them: slopes without bound, jumps.
_WILD = {"Exp", "Expm1", "Sqrt", "Rsqrt", "Reciprocal", "Threshold", "Lerp", "Addcmul"}
#: Their results have bounds, on one side at least, whatever they read.
_BOUNDED = {"Tanh", "Sigmoid", "Hardsigmoid", "Hardtanh", "Clamp", "ClampMin", "ClampMax"}
_BATCH = {"NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm"}


def _nodes(names: Iterable[str]) -> frozenset[str]:
    return frozenset(f"{name}Backward{i}" for name in names for i in range(4))


_NODES = _nodes(_NAMES)
_TAME = _nodes((_NAMES - _WILD) | _BATCH)
_LEVELS = _nodes(_BOUNDED)
_SUMS = _nodes({"Add", "Sub", "Rsub"})
_QUOTIENTS, _POWERS = _nodes({"Div"}), _nodes({"Pow"})

_BUILT_IN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
)


def cheap(lossy: bool) -> frozenset[str]:
    """Nodes of ops whose results are cheap to make again.

    lossy  from values that are not quite the original's
    """
    return _TAME if lossy else _NODES


def is_norm(node: Node) -> bool:
    return op(type(node).__name__).kind in NORMS


def is_relu(node: Node) -> bool:
    return type(node).__name__ == "ReluBackward0"


def is_bounded(node: Node) -> bool:
    """Whether its result may be small however large its input is."""
    return type(node).__name__ in _LEVELS


def is_tame(node: Node, args: tuple[Any, ...]) -> bool:
    """Whether an error in its first argument shows in the result about as large as it is."""
    name, second = type(node).__name__, args[1] if len(args) > 1 else None
    if name in _QUOTIENTS:
        return isinstance(second, (int, float))
    return name not in _POWERS or (isinstance(second, (int, float)) and second in (1, 2, 3))


def adds(node: str) -> bool:
    """Whether this is a sum or difference: it has the errors of both sides in full."""
    return node in _SUMS


def repeats(func: Any) -> bool:
    """Whether this function is PyTorch's own and gives the same again; dropout does not."""
    if "dropout" in getattr(func, "__name__", ""):
        return False
    return isinstance(func, _BUILT_IN) or str(getattr(func, "__module__", "")).startswith("torch.")


def drops(func: Any) -> bool:
    """Whether this is a dropout: its result is its input times the noise that its node saves."""
    return getattr(func, "__name__", "") in ("dropout", "dropout1d", "dropout2d", "dropout3d")
