"""How much memory a piece of code needs: live tensor bytes and resident bytes.

The two answer different questions. *Live* bytes are what tensors hold: exact, the same in
every run. *Resident* bytes are what the process takes from the machine: allocator, oneDNN
scratch and fragmentation included; they differ a little from run to run.

    with actzip.measure() as m:
        loss = model(x).sum()
        loss.backward()
    print(m)

Live bytes come from the profiler's ``[memory]`` events. It does not report the release of
memory that was taken before any measurement began: code that frees such tensors (gradients of
an earlier step, say) shows a higher level than it has. Free them before, or measure from the
first step on.

``measure("cuda")`` measures the tensors of a GPU: the peak is that of torch's allocator
(``torch.cuda.memory_stats``), whose own peak is set back at the borders of the block.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from actzip import accelerator
from actzip.memory.fresh_process import call_fresh, resolve
from actzip.torch_private import profiler_enabled

_PROC = Path("/proc/self")


@dataclass
class Measurement:
    """What `measure` found; all bytes are relative to the level at the start.

    Filled when the ``with`` block ends, also when it ends with an exception.
    """

    live_peak: int = 0  #: most bytes that tensors held at one time
    live_end: int = 0  #: bytes that tensors still held at the end; negative when more was freed
    resident_peak: int | None = None  #: growth of the process; None where /proc does not tell
    seconds: float = 0.0  #: wall time, the profiler's own work included
    #: (seconds since the start, live bytes) after each allocation and release
    timeline: list[tuple[float, int]] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        resident = "not known here" if self.resident_peak is None else size(self.resident_peak)
        return (
            f"live peak {size(self.live_peak)}, at the end {size(self.live_end)}; "
            f"resident peak {resident}; {self.seconds:.3f} s"
        )


def size(nbytes: float) -> str:
    """Bytes for people: 1536 gives "1.50 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.2f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.2f} GiB"


def live_peak(function: Callable[[], object], device: torch.device | str = "cpu") -> int:
    """Most bytes that tensors held at one time while `function` ran, above the start level.

    Exact and repeatable: a function that does the same twice gives the same number twice.
    """
    with measure(device) as found:
        function()
    return found.live_peak


@contextlib.contextmanager
def measure(device: torch.device | str = "cpu") -> Iterator[Measurement]:
    """Measure the code of a ``with`` block; see `Measurement` for what is found.

    device: whose tensors are counted. Blocks may be nested. The profiler sees one thread: the one
    that entered the block; the allocator of a GPU sees all.
    """
    found = Measurement()
    frame = _Frame(torch.device(device))
    _RECORDER.enter(frame)
    try:
        yield found
    finally:
        _RECORDER.leave(frame)
        frame.fill(found)


@dataclass(eq=False)
class _Frame:
    """One open ``with measure()`` block."""

    device: torch.device
    began: int = 0  #: time.time_ns, the profiler's clock
    seconds: float = 0.0
    resident_start: int | None = None
    resident_high: int | None = None
    events: list[tuple[int, int]] = field(default_factory=list)  #: (time in ns, ± bytes)
    start: int | None = None  #: what the device's allocator had given out; None: it does not tell
    high: int = 0

    def open(self) -> None:
        """Begin anew to watch the allocator of the device; a border of a nested block."""
        accelerator.reset_peak(self.device)

    def see(self) -> None:
        """What the allocator says since the last border."""
        self.high = max(self.high, accelerator.peak(self.device) or 0)

    def fill(self, found: Measurement) -> None:
        found.seconds = self.seconds
        level = 0
        for when, nbytes in self.events:
            level += nbytes
            found.timeline.append((max(0, when - self.began) / 1e9, level))
            found.live_peak = max(found.live_peak, level)
        found.live_end = level
        if self.start is not None:  # the allocator knows; the profiler saw one thread
            found.live_peak = max(0, self.high - self.start)
            found.live_end = (accelerator.allocated(self.device) or 0) - self.start
        if self.resident_start is not None and self.resident_high is not None:
            found.resident_peak = max(0, self.resident_high - self.resident_start)


class _Recorder:
    """Owns the process's one profiler and shares it between nested blocks.

    The profiler cannot be nested and gives its events only when stopped, so it is stopped
    and started again at each border; every open block receives the events in between.
    """

    def __init__(self) -> None:
        self.frames: list[_Frame] = []
        self.owner: int | None = None
        self.profiler: profile | None = None

    def enter(self, frame: _Frame) -> None:
        if self.frames and self.owner != threading.get_ident():
            raise RuntimeError(
                "measure() is already running in another thread, and a process has one "
                "profiler; measure in one thread at a time"
            )
        # A second profiler would end the first one without a word.
        if not self.frames and profiler_enabled():
            raise RuntimeError(
                "measure() needs the profiler, but a torch profiler is already running; "
                "measure outside of it"
            )
        self._collect()
        self.owner = threading.get_ident()
        self.frames.append(frame)
        frame.resident_start = reset_resident_peak()
        frame.start = accelerator.allocated(frame.device)
        self._start()
        frame.began = time.time_ns()

    def leave(self, frame: _Frame) -> None:
        frame.seconds = (time.time_ns() - frame.began) / 1e9
        self._collect()
        self.frames.remove(frame)
        if self.frames:
            self._start()

    def _start(self) -> None:
        for frame in self.frames:
            frame.open()
        # Kineto otherwise writes a line to stderr at each start and stop.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        # Without acc_events, which makes an object of every op at once and takes many times as long
        # as the ops themselves; torch 2.10 then warns of a second cycle, of which there is none.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
            self.profiler.start()

    def _collect(self) -> None:
        """Stop the profiler and hand what it saw to every open block."""
        if self.profiler is None:
            return
        stopped, self.profiler = self.profiler, None
        stopped.stop()
        high = resident("VmHWM")
        events = _memory_events(stopped)
        for frame in self.frames:
            frame.see()
            frame.events += events.get(frame.device.type, [])
            if high is not None:
                frame.resident_high = max(high, frame.resident_high or 0)


_RECORDER = _Recorder()


def _memory_events(stopped: profile) -> dict[str, list[tuple[int, int]]]:
    """(time in ns, ± bytes) in order of time, for each type of device."""
    # profile.events() adds memory up per operator; only the raw trace has the order in time.
    trace: Any = stopped.profiler
    events: dict[str, list[tuple[int, int]]] = {}
    for event in trace.kineto_results.events():
        if event.name() == "[memory]":
            kind = event.device_type().name.lower()
            events.setdefault(kind, []).append((event.start_ns(), event.nbytes()))
    return {kind: sorted(each, key=lambda event: event[0]) for kind, each in events.items()}


def resident(name: str) -> int | None:
    """A field of /proc/self/status in bytes, None where there is no such thing."""
    try:
        lines = (_PROC / "status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return None


def reset_resident_peak() -> int | None:
    """Set VmHWM back to the present level and return that; None where it cannot be done."""
    try:
        (_PROC / "clear_refs").write_text("5")
    except OSError:
        return None
    return resident("VmRSS")


def resident_peak(function: str | Callable[..., object], *args: object) -> int:
    """Most bytes by which a fresh process grew while it ran `function(*args)`.

    `function` is a picklable callable or ``"module:function"``. Imports made while it runs count.
    """
    if not os.access(_PROC / "clear_refs", os.W_OK):
        raise RuntimeError(
            f"resident_peak sets the peak back through {_PROC / 'clear_refs'}, which cannot be "
            "written here (it exists on Linux only); live_peak works everywhere"
        )
    return int(call_fresh(_growth, function, args))


def _growth(function: str | Callable[..., object], args: tuple[object, ...]) -> int:
    called = resolve(function)
    start = reset_resident_peak()
    called(*args)
    high = resident("VmHWM")
    if start is None or high is None:
        raise RuntimeError(f"{_PROC / 'status'} does not tell VmRSS and VmHWM here")
    return max(0, high - start)
