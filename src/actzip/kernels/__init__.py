"""The same few functions on every backend.

`kernels.of(x, "group").encode(...)` runs the C++ library for a CPU tensor and its plain-PyTorch
twin for any other; all have the same signatures and write the same bytes. Each format is a module:
`reference/<format>.py`, `native/<format>.py` and `triton/<format>.py`; what a backend does not have
comes from the reference.

`ACTZIP_KERNELS=reference` forces the twin. `ACTZIP_KERNELS=triton` asks for Triton's kernels on a
GPU, and on a CPU under Triton's interpreter: no GPU has run them yet, so nobody gets them unasked.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import torch
from torch import Tensor

from actzip.kernels import triton
from actzip.kernels.native import library

#: "reference" or "triton" forces that backend; read from the environment when actzip is imported.
FORCED = os.environ.get("ACTZIP_KERNELS")
#: Formats that the native library does not have.
_PLAIN = ("cast",)
_MODULES: dict[tuple[str, str], ModuleType] = {}


def backend_name(device: torch.device | str = "cpu") -> str:
    """ "native", "triton" or "reference": what a tensor on this device gets now."""
    return _backend(torch.device(device).type)


def _backend(kind: str) -> str:
    if FORCED == "reference":
        return "reference"
    if FORCED == "triton" and (kind == "cpu" or (kind == "cuda" and triton.available())):
        return "triton"
    return "native" if kind == "cpu" and library.available() else "reference"


def of(tensor: Tensor, form: str) -> ModuleType:
    """The module of kernels for this number format that fits the tensor's device."""
    key = (_backend(tensor.device.type), form)
    module = _MODULES.get(key)
    if module is None:
        lacks = form not in triton.FORMS if key[0] == "triton" else form in _PLAIN
        name = "reference" if lacks else key[0]
        module = _MODULES[key] = importlib.import_module(f"{__name__}.{name}.{form}")
    return module
