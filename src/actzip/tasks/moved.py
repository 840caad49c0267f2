"""Batches on the device that computes with them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor


def moved(value: Any, device: torch.device) -> Any:
    """A tensor, or a list of what has tensors, on the device; what is there already is not copied.

    The host does not wait for other work of the device, unless it is the host that is moved to.
    """
    if isinstance(value, list):
        return [moved(each, device) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        own = {field.name: moved(getattr(value, field.name), device) for field in fields(value)}
        return replace(value, **own)
    if not isinstance(value, Tensor):
        return value
    return value.to(device, non_blocking=device.type != "cpu")
