"""What a bug report needs to say: the device, the kernels it gets, versions, settings."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import warnings
from pathlib import Path
from typing import Any

import torch

import actzip
from actzip import accelerator, kernels
from actzip.doctor.finding import REPORT, Finding
from actzip.kernels import triton
from actzip.kernels.native import library

_PACKAGES = ("numpy", "triton", "pytorch-triton", "pytorch-triton-rocm")
_SETTINGS = ("ACTZIP_", "TRITON_", "PYTORCH_", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


def backends(device: torch.device) -> dict[str, str]:
    """Which kernels a tensor on this device gets, for each number format."""
    found: dict[str, str] = {}
    for form in kernels.FORMS:
        try:
            kernels.of(torch.empty(0, device=device), form)  # type: ignore[call-overload]
        except Exception as error:  # Triton's kernels without a Triton that works, say
            found[form] = f"{type(error).__name__}: {error}"
        else:
            fault = kernels.fault_of(device, form)
            found[form] = kernels.backend_of(device, form) if fault is None else f"refused: {fault}"
    return found


def facts(device: torch.device) -> dict[str, Any]:
    """Of this machine and installation, as JSON-ready values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that there is no library is found below
        native, of_form = library.available(), backends(device)
    return {
        "device": str(device),
        "name": accelerator.name(device) if device.type != "cpu" else _processor(),
        "memory": accelerator.total_memory(device),
        "capability": _capability(device),
        "backend": kernels.backend_name(device),
        "forms": of_form,
        "native_library": native,
        "instruction_set": library.ISA[library.isa_level()] if native else None,
        "threads": torch.get_num_threads(),
        "versions": {
            "actzip": actzip.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
            **_installed(),
        },
        "system": platform.platform(),
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_SETTINGS)},
    }


def installation(found: dict[str, Any]) -> list[Finding]:
    """What is wrong with the installation, and what could be better."""
    kind = torch.device(found["device"]).type
    said = []
    if kind == "cpu" and not found["native_library"]:
        why = f"the C++ library is not there or does not load on {platform.machine()}"
        advice = "build it: make setup, or pip install actzip where a C++ compiler is"
        said.append(Finding("C++ library", False, why, advice))
    if kind != "cpu" and found["backend"] == "reference":
        why, advice = "plain PyTorch kernels run on this device, which are slow", ""
        if kind == "cuda":
            advice = "leave ACTZIP_KERNELS unset to use the Triton kernels"
            if not triton.available():
                advice = "install Triton: pip install 'actzip[triton]'"
        said.append(Finding("kernels", True, why, advice))
    for form, given in found["forms"].items():
        if given not in ("native", "triton", "reference"):
            said.append(Finding(f"kernels of {form}", False, given, REPORT))
    return said


def _capability(device: torch.device) -> str | None:
    told = getattr(accelerator.library(device), "get_device_capability", None)
    return None if told is None else str(told(device))


def _installed() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
