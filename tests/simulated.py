"""A device that is not here: CPU tensors, whose copies are done when somebody waits for them.

It stands in for `torch.cuda` at the one place that asks torch for devices, `accelerator.library`.
What is copied on a side stream happens when the computing stream waits for an event behind it, so
who forgets to wait reads memory that nobody has written.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from actzip import accelerator
from actzip.memory import host_copies


class Stream:
    """Work in order; a stream that computes does everything at once."""

    def __init__(self, device: Any = None) -> None:
        self.queue: list[Callable[[], object]] = []
        self.waited_for: list[Stream] = []

    def wait_stream(self, other: Stream) -> None:
        self.waited_for.append(other)

    def wait_event(self, event: Event) -> None:
        event.finish()


class Event:
    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.behind = 0

    def record(self, stream: Stream) -> None:
        self.stream, self.behind = stream, len(stream.queue)

    def finish(self) -> None:
        assert self.stream is not None, "waited for an event that nobody recorded"
        for i in range(self.behind):
            self.stream.queue[i]()
            self.stream.queue[i] = lambda: None


class Device:
    """The functions of `torch.cuda` that are used."""

    Stream, Event = Stream, Event

    def __init__(self, total: int = 1 << 30) -> None:
        self.main = self.now = Stream()
        self.total, self.fraction = total, 1.0
        self.held = self.most = 0
        self.calls: Counter[str] = Counter()
        self.recorded: list[tuple[int, Stream]] = []

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.now = self.now, stream
        yield
        self.now = before

    def current_stream(self, device: Any = None) -> Stream:
        return self.now

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def get_device_name(self, device: Any) -> str:
        return "a simulated device"

    def get_device_properties(self, device: Any) -> Any:
        return type("Properties", (), {"total_memory": self.total})

    def synchronize(self, *_: Any) -> None:
        self.calls["synchronize"] += 1

    def empty_cache(self) -> None:
        self.calls["empty_cache"] += 1

    def set_per_process_memory_fraction(self, fraction: float, device: Any) -> None:
        self.fraction = fraction

    def memory_stats(self, device: Any) -> dict[str, int]:
        return {"allocated_bytes.all.current": self.held, "allocated_bytes.all.peak": self.most}

    def reset_peak_memory_stats(self, device: Any) -> None:
        self.most = self.held

    def take(self, nbytes: int) -> None:
        """Hold so many bytes more."""
        self.held += nbytes
        self.most = max(self.most, self.held)


def simulate(monkeypatch: pytest.MonkeyPatch) -> Device:
    """CPU tensors are of a device that works by itself."""
    device, copy = Device(), Tensor.copy_

    def copy_(self: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if device.now is device.main:
            return copy(self, source, non_blocking)
        assert non_blocking, "the host would wait"
        device.now.queue.append(lambda: copy(self, source))
        return self

    def record_stream(self: Tensor, stream: Stream) -> None:
        device.recorded.append((self.data_ptr(), stream))

    monkeypatch.setattr(accelerator, "library", lambda device_: device)
    monkeypatch.setattr(host_copies, "_SIDES", {})
    monkeypatch.setattr(Tensor, "copy_", copy_)
    monkeypatch.setattr(Tensor, "record_stream", record_stream)
    torch.manual_seed(0)
    return device
