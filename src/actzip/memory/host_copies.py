"""Tensors of a GPU that wait for backward in host memory.

Each is copied into pinned memory by a stream beside the one that computes, so that neither the host
nor the GPU waits. Backward asks for them in the opposite order: when one is asked for, those that
were sent before it are already fetched, as many as `AHEAD` bytes. Devices without streams copy at
once.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from actzip import accelerator

#: Bytes that are fetched before they are asked for; one tensor is, however large.
AHEAD = 64 << 20

_SIDES: dict[torch.device, Any] = {}


def _side(device: torch.device) -> Any:
    """The stream that copies, of this device."""
    if device not in _SIDES:
        _SIDES[device] = accelerator.library(device).Stream(device)
    return _SIDES[device]


class Away:
    """A tensor in host memory that belongs to a device."""

    __slots__ = ("__weakref__", "_back", "_lane", "_place", "home", "host")

    def __init__(self, source: Tensor, lane: Lane, place: int) -> None:
        self.home, self._lane, self._place = source.device, lane, place
        self._back: tuple[Tensor, Any] | None = None
        if not accelerator.has_streams(self.home):
            self.host = source.to("cpu", copy=True)
            return
        library, side = accelerator.library(self.home), _side(self.home)
        self.host = accelerator.pinned_like(source)
        side.wait_stream(library.current_stream(self.home))  # what computes it comes first
        with library.stream(side):
            self.host.copy_(source, non_blocking=True)
        source.record_stream(side)  # its memory is not given to others before it is copied

    def start(self) -> None:
        """Fetch it, if nobody has asked for that yet; waits for nothing."""
        if self._back is not None or not accelerator.has_streams(self.home):
            return
        library, side = accelerator.library(self.home), _side(self.home)
        with library.stream(side):  # the stream that took it away: that is done before
            back = torch.empty_like(self.host, device=self.home)
            back.copy_(self.host, non_blocking=True)
            done = library.Event()
            done.record(side)
        self._back = back, done

    def get(self) -> Tensor:
        """The tensor on its device again; the host does not wait. May be asked for again."""
        if not accelerator.has_streams(self.home):
            return self.host.to(self.home, copy=True)
        self.start()
        self._lane.fetch_before(self._place)
        assert self._back is not None, "started above"
        (back, done), self._back = self._back, None
        now = accelerator.library(self.home).current_stream(self.home)
        now.wait_event(done)
        back.record_stream(now)  # it is of the side stream's memory, and used by this one
        return back


class Lane:
    """What one forward pass sent away, in that order."""

    def __init__(self) -> None:
        self._sent: list[weakref.ref[Away]] = []

    def send(self, source: Tensor) -> Away:
        """Copy a tensor to the host; it may be dropped or overwritten by later work at once."""
        away = Away(source, self, len(self._sent))
        self._sent.append(weakref.ref(away))
        return away

    def fetch_before(self, place: int) -> None:
        """Start to fetch those that were sent before this place: backward asks for them next."""
        room = AHEAD
        for i in range(place - 1, -1, -1):
            away = self._sent[i]()
            if away is not None:
                away.start()
                room -= away.host.nbytes
                if room <= 0:
                    return
