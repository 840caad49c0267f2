"""Numbers on their way from a device to the host, while both go on.

A GPU copies into pinned memory behind the work that is queued already, and an event says when that
is done. Other devices copy at once. Whoever needs a number now waits in `read`; whoever can do
without it for a while asks `arrived` first.
"""

from __future__ import annotations

import torch
from torch import Tensor


def is_asynchronous(device: torch.device) -> bool:
    """Whether a copy from this device can be under way while the host goes on."""
    return device.type == "cuda"


class Transfer:
    """A copy of a tensor to the host, queued when this is made."""

    def __init__(self, source: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if is_asynchronous(source.device):
            self._host = torch.empty_like(source, device="cpu", pin_memory=True)
            self._host.copy_(source, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(source.device))
        else:
            self._host = source.to("cpu", copy=True)

    def arrived(self) -> bool:
        """Whether `read` would not wait."""
        return self._event is None or self._event.query()

    def tensor(self) -> Tensor:
        """The copy; waits for it if it is not there yet."""
        if self._event is not None:
            self._event.synchronize()
        return self._host

    def read(self) -> list[int]:
        """The numbers; waits for them if they are not there yet."""
        return [int(n) for n in self.tensor().view(-1).tolist()]


def is_capturing(device: torch.device) -> bool:
    """Whether what is launched on this device goes into a CUDA graph: nothing may be asked then."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
