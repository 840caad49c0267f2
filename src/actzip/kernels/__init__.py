"""The same few functions on every backend.

`kernels.of(x, "group").encode(...)` runs the C++ library for a CPU tensor and its plain-PyTorch
twin for any other; all have the functions that forms.py asks for and write the same bytes. Each
form is a module: `reference/<form>.py`, `native/<form>.py` and `triton/<form>.py`; what a backend
does not have comes from the next.

A GPU gets Triton's kernels where Triton is installed. Each form is tried there first, on a few
values (triton/trial.py): what does not give the reference's bytes is not used.

`ACTZIP_KERNELS=reference` forces the twin. `ACTZIP_KERNELS=triton` takes Triton's kernels without
that trial, on a GPU, and on a CPU under Triton's interpreter.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Literal, overload

import torch
from torch import Tensor

from actzip import planning
from actzip.kernels import forms, native, triton, without_values
from actzip.kernels.native import library
from actzip.kernels.transfers import is_capturing

#: "reference" or "triton" forces that backend; read from the environment when actzip is imported.
FORCED = os.environ.get("ACTZIP_KERNELS")

#: The backends of each type of device, best first; a type that is not here has the reference.
BACKENDS = {"cpu": ("native", "reference"), "cuda": ("triton", "reference")}

#: All forms; the reference has every one.
FORMS = (
    *("group", "dual", "mask", "index", "window", "cast", "planes", "fixedpoint", "bounded"),
    *("bounded_entropy", "dithered", "norm", "entropy"),
)
_FORMS = {"native": native.FORMS, "triton": triton.FORMS}
#: The modules that were asked for, by what was forced, type of device and form.
_MODULES: dict[tuple[str | None, str, str], ModuleType] = {}


def backend_name(device: torch.device | str = "cpu") -> str:
    """ "native", "triton" or "reference": what a tensor on this device gets now."""
    return _backends(torch.device(device).type)[0]


def backend_of(device: torch.device | str, form: str) -> str:
    """The backend whose kernels of this form a tensor on this device gets now: the best one does
    not have all."""
    on = torch.device(device)
    order = _backends(on.type)
    found = next(b for b in order if b == "reference" or form in _FORMS[b])
    return "reference" if found == "triton" and fault_of(on, form) is not None else found


def fault_of(device: torch.device | str, form: str) -> str | None:
    """What was wrong with Triton's kernels of this form when they were tried on such a device."""
    trial = sys.modules.get(f"{__name__}.triton.trial")
    if FORCED == "triton" or trial is None:
        return None
    found: str | None = trial.fault(torch.device(device), form)
    return found


def handed_out(device: torch.device | str) -> dict[str, str]:
    """Forms whose kernels somebody in this process has asked for, for a device like this one and
    the present choice of backends, with the backend that gave them."""
    kind = torch.device(device).type
    return {form: backend_of(device, form) for form in FORMS if (FORCED, kind, form) in _MODULES}


def _backends(kind: str) -> tuple[str, ...]:
    """The backends of a type of device, best first; the reference is always the last."""
    if FORCED == "reference":
        return ("reference",)
    if FORCED == "triton" and (kind == "cpu" or (kind == "cuda" and triton.available())):
        return "triton", "reference"
    found = BACKENDS.get(kind, ("reference",))
    if found[0] == "native" and not library.available():
        return found[1:]
    return found[1:] if found[0] == "triton" and not triton.available() else found


@overload
def of(tensor: Tensor, form: Literal["group"]) -> forms.GroupForm: ...
@overload
def of(tensor: Tensor, form: Literal["dual"]) -> forms.DualForm: ...
@overload
def of(tensor: Tensor, form: Literal["mask"]) -> forms.MaskForm: ...
@overload
def of(tensor: Tensor, form: Literal["index"]) -> forms.IndexForm: ...
@overload
def of(tensor: Tensor, form: Literal["window"]) -> forms.WindowForm: ...
@overload
def of(tensor: Tensor, form: Literal["cast"]) -> forms.CastForm: ...
@overload
def of(tensor: Tensor, form: Literal["planes"]) -> forms.PlanesForm: ...
@overload
def of(tensor: Tensor, form: Literal["fixedpoint"]) -> forms.FixedPointForm: ...
@overload
def of(tensor: Tensor, form: Literal["bounded"]) -> forms.BoundedForm: ...
@overload
def of(tensor: Tensor, form: Literal["bounded_entropy"]) -> forms.BoundedEntropyForm: ...
@overload
def of(tensor: Tensor, form: Literal["dithered"]) -> forms.DitheredForm: ...
@overload
def of(tensor: Tensor, form: Literal["norm"]) -> forms.NormForm: ...
@overload
def of(tensor: Tensor, form: Literal["entropy"]) -> forms.EntropyForm: ...
def of(tensor: Tensor, form: str) -> object:
    """The module of kernels for this form that fits the tensor's device."""
    fake = planning.active and planning.is_fake(tensor)
    if fake and form in without_values.FORMS:
        return without_values
    kind = "" if fake else "cpu" if tensor.is_cpu else tensor.device.type
    module = _MODULES.get((FORCED, kind, form))
    if module is None:
        name = "reference" if fake else backend_of(tensor.device, form)
        if name == "triton" and FORCED != "triton":
            if is_capturing(tensor.device):  # nothing can be tried now
                return importlib.import_module(f"{__name__}.reference.{form}")
            from actzip.kernels.triton import trial

            name = "triton" if trial.passed(tensor.device, form) else "reference"
        module = _MODULES[FORCED, kind, form] = importlib.import_module(f"{__name__}.{name}.{form}")
    return module
