"""What this machine does at speed, found by doing a little of it."""

from __future__ import annotations

import time

import torch
from torch import nn

SLOW = 3.0  #: times as long as fp32: bf16 without instructions for it takes ten times as long
_TRIES = 4


def bf16_slowdown() -> float:
    """How many times as long as in fp32 a small convolution's step takes under bf16 autocast."""
    return _step_seconds(True) / _step_seconds(False)


def _step_seconds(bf16: bool) -> float:
    """Of the fastest of a few steps; the first builds kernels."""
    with torch.random.fork_rng(devices=()):
        layer, x = nn.Conv2d(32, 32, 3, padding=1), torch.randn(16, 32, 16, 16)
    found = []
    for _ in range(1 + _TRIES):
        began = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = layer(x).sum()
        loss.backward()
        found.append(time.perf_counter() - began)
    return min(found[1:])


def why_not(method: str) -> str:
    """Why a method is not worth its time on this machine; empty when it is."""
    if method != "bf16":
        return ""
    times = bf16_slowdown()
    if times < SLOW:
        return ""
    return f"in bf16 a step takes {times:.0f} times as long as in fp32 on this processor"
