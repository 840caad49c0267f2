"""Payloads that wait for backward in host memory, while a GPU needs its own for other things."""

from __future__ import annotations

import functools

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from actzip import accelerator
from actzip.codecs.base import Payload
from actzip.kernels.transfers import is_capturing
from actzip.memory.host_copies import Away, Lane


def send(payload: Payload, lane: Lane) -> Payload:
    """The same payload with its bytes in host memory; one that is there already stays as it is."""
    device = payload.data.device
    if accelerator.library(device) is None or is_capturing(device):
        return payload
    if payload.lengths:
        payload.used()  # memory of the worst case would take its time on the way
    away = lane.send(payload.data)
    for name, value in (("data", away.host), ("away", away)):
        object.__setattr__(payload, name, value)
    return payload


def bring(payload: Payload) -> Payload:
    """One with its bytes on their own device, to be decoded there; all else is as it is."""
    away: Away | None = payload.__dict__.get("away")
    # one whose word was bad (codecs/unsettled.py) keeps its tensor, on the device
    if away is None or payload.data is not away.host:
        return payload
    # not a copy of the usual kind, which is a payload from outside and asks the device
    back = object.__new__(type(payload))
    back.__dict__.update(payload.__dict__, data=away.get())
    del back.__dict__["away"]
    return back


class save_on_host(saved_tensors_hooks):
    """What autograd saves waits in pinned host memory, as with `torch.autograd.graph.save_on_cpu`,
    copied beside the computation and fetched before it is needed.

        with save_on_host():
            loss = model(x).sum()
        loss.backward()

    Tensors of the CPU, and those of less than `min_bytes`, stay as they are.
    """

    def __init__(self, min_bytes: int = 1 << 16) -> None:
        super().__init__(functools.partial(_pack, Lane(), min_bytes), _unpack)


def _pack(lane: Lane, min_bytes: int, t: Tensor) -> Tensor | Away:
    device = t.device
    if accelerator.library(device) is None or t.nbytes < min_bytes or is_capturing(device):
        return t
    return lane.send(t.detach())


def _unpack(saved: Tensor | Away) -> Tensor:
    return saved.get() if isinstance(saved, Away) else saved
