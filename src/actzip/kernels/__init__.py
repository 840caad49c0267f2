"""The same few functions on every backend.

`kernels.of(x, "group").encode(...)` runs the C++ library for a CPU tensor, Triton's kernels for one
on a GPU, and their plain-PyTorch twin for any other; all have the same signatures and write the
same bytes. Each format is one module: `reference/<format>.py`, `native/<format>.py` and
`triton/<format>.py`; what a backend does not have comes from the reference.

`ACTZIP_KERNELS=reference` forces the twin; `triton`, under Triton's interpreter, its kernels.
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
_MODULES: dict[tuple[str, str], ModuleType] = {}


def backend_name(device: torch.device | str = "cpu") -> str:
    """ "native", "triton" or "reference": what a tensor on this device gets now."""
    kind = torch.device(device).type
    if FORCED == "reference":
        return "reference"
    if kind == "cpu":
        if FORCED == "triton":
            return "triton"
        return "native" if library.available() else "reference"
    return "triton" if kind == "cuda" and triton.available() else "reference"


def of(tensor: Tensor, form: str) -> ModuleType:
    """The module of kernels for this number format that fits the tensor's device."""
    key = (backend_name(tensor.device), form)
    module = _MODULES.get(key)
    if module is None:
        lacks = form not in triton.FORMS if key[0] == "triton" else form == "cast"
        name = "reference" if lacks else key[0]
        module = _MODULES[key] = importlib.import_module(f"{__name__}.{name}.{form}")
    return module
