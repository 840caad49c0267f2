"""Devices beside the CPU: the one place that asks torch about them.

`torch.cuda` (also for AMD's), `torch.xpu` and `torch.mps` name their functions alike, and whatever
one of them does not have is not known of its devices.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

TYPES = ("cpu", "cuda", "mps", "xpu")
_TOTAL = "total_memory"


def library(device: torch.device) -> Any:
    """The module of torch that speaks for this type of device; None for the CPU and others."""
    return getattr(torch, device.type, None) if device.type in TYPES[1:] else None


def choose(asked: str | None) -> torch.device:
    """The device of this name, as cuda or cuda:1, or without one the best that is there; a
    ValueError when it is not there."""
    if asked is None:
        return next(d for d in map(torch.device, ("cuda", "xpu", "mps", "cpu")) if count(d))
    device = named(asked)
    there = count(torch.device(device.type))
    if (device.index or 0) >= there:
        build = torch.__version__
        raise ValueError(
            f"the device {asked} is not there: torch {build} finds {there} of {device.type}; "
            "choose another, or install a torch that is built for it"
        )
    return device


def named(asked: str) -> torch.device:
    """The device of this name, whether it is there or not."""
    kind, _, number = asked.partition(":")
    if kind not in TYPES or (number and not number.isdecimal()):
        raise ValueError(f"unknown device: {asked!r}; allowed are {', '.join(TYPES)}, or cuda:1")
    return torch.device(asked)


def count(device: torch.device) -> int:
    """How many devices of this type torch can use."""
    if device.type == "cpu":
        return 1
    found = library(device)
    if found is None or not found.is_available():
        return 0
    return int(found.device_count())


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that was queued."""
    found = library(device)
    if found is not None:
        found.synchronize(*_index(device))


def name(device: torch.device) -> str:
    """What the vendor calls it; the type where torch does not tell."""
    told = getattr(library(device), "get_device_name", None)
    return device.type if told is None else str(told(device))


def total_memory(device: torch.device) -> int | None:
    """Bytes that the device has; None where torch does not tell."""
    properties = getattr(library(device), "get_device_properties", None)
    found = None if properties is None else getattr(properties(device), _TOTAL, None)
    return None if found is None else int(found)


def allocated(device: torch.device) -> int | None:
    """Bytes that tensors hold there now; None where torch does not tell."""
    return _statistic(device, "current")


def peak(device: torch.device) -> int | None:
    """Most bytes that tensors held there since `reset_peak`; None where torch does not tell."""
    return _statistic(device, "peak")


def _statistic(device: torch.device, which: str) -> int | None:
    told = getattr(library(device), "memory_stats", None)
    if told is None:
        return None
    # before the first allocation there are no statistics
    return int(told(device).get(f"allocated_bytes.all.{which}", 0))


def reset_peak(device: torch.device) -> None:
    reset = getattr(library(device), "reset_peak_memory_stats", None)
    if reset is not None:
        reset(device)


def limit(device: torch.device, nbytes: int) -> bool:
    """Have torch refuse this process more than so many bytes; whether it can."""
    found, total = library(device), total_memory(device)
    if total is None or not hasattr(found, "set_per_process_memory_fraction"):
        return False
    found.set_per_process_memory_fraction(min(1.0, nbytes / total), device)
    return True


def release(device: torch.device) -> None:
    """Give back memory that no tensor holds."""
    found = library(device)
    if found is not None:
        found.empty_cache()


def random_state(device: torch.device) -> Tensor | None:
    """Of the device's own random numbers; None for the CPU."""
    told = getattr(library(device), "get_rng_state", None)
    return None if told is None else told(*_index(device))


def set_random_state(device: torch.device, state: Tensor | None) -> None:
    """Go on with the random numbers of `random_state`."""
    if state is not None and library(device) is not None:
        library(device).set_rng_state(state, *_index(device))


def current(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Work that is launched inside goes to this device."""
    chosen = getattr(library(device), "device", None)
    return contextlib.nullcontext() if chosen is None else chosen(device)


def has_streams(device: torch.device) -> bool:
    """Whether a copy can be under way beside other work of the device."""
    return hasattr(library(device), "Stream")


def pinned_like(source: Tensor) -> Tensor:
    """Host memory of the same shape and strides, with which the device copies by itself."""
    return torch.empty_like(source, device="cpu", pin_memory=source.device.type != "cpu")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device refused memory; other errors of a device say other things."""
    kinds = [
        getattr(torch, "OutOfMemoryError", None),
        getattr(torch.cuda, "OutOfMemoryError", None),
    ]
    if isinstance(error, tuple(kind for kind in kinds if kind is not None)):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in REFUSALS)


#: What libraries of devices say when they get no memory; torch's own words are "out of memory".
REFUSALS = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "HIPBLAS_STATUS_ALLOC_FAILED",
    "OUT_OF_DEVICE_MEMORY",
    "OUT_OF_RESOURCES",
)


def _index(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)
