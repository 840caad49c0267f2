"""The same few functions on every backend.

`kernels.of(x, "group").encode(...)` runs the C++ library for a CPU tensor and its plain-PyTorch
twin for any other; both have the same signatures and write the same bytes. Each format is one
module: `reference/<format>.py` and `native/<format>.py`.

`ACTZIP_KERNELS=reference` forces the twin.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from torch import Tensor

from actzip.kernels.native import library

#: "reference" forces the twin; read from the environment when actzip is imported.
FORCED = os.environ.get("ACTZIP_KERNELS")
_MODULES: dict[tuple[str, str], ModuleType] = {}


def backend_name() -> str:
    """ "native" or "reference": what a CPU tensor gets now."""
    if FORCED == "reference":
        return "reference"
    return "native" if library.available() else "reference"


def of(tensor: Tensor, form: str) -> ModuleType:
    """The module of kernels for this number format that fits the tensor's device."""
    key = (backend_name() if tensor.device.type == "cpu" else "reference", form)
    module = _MODULES.get(key)
    if module is None:
        module = _MODULES[key] = importlib.import_module(f"{__name__}.{key[0]}.{form}")
    return module
