"""Batches that grow into the memory which compression frees, and never past the limit."""

from __future__ import annotations

import ctypes
import math

from actzip.api import Session
from actzip.memory.measure import reset_resident_peak, resident, size
from actzip.memory.sizes import read_bytes

_FREE = 0.05  #: of the limit stays unused
_MARGIN = 1.1  #: on a slope measured between two batch sizes

RULES = ("linear", "sqrt", "none")


def grow_batch(session: Session, limit: int | str, start: int, cap: int | None = None) -> Growth:
    """A batch size that grows, by powers of two, as far as the resident memory stays below `limit`.

        growth = actzip.grow_batch(session, limit="4GiB", start=32, cap=1024)
        for epoch in range(epochs):
            train(batch=growth.batch, rate=rate * growth.rate("sqrt"))
            growth.propose()

    limit  of the whole process: bytes, or a text such as "4GiB" or "900MB"
    start  the first batch size, which is taken to fit
    cap    the largest batch size

    Make it before the first step: what the process holds then does not grow with the batch.
    """
    return Growth(session, limit, start, cap)


class Growth:
    """What `grow_batch` returns: the batch size at hand, and the next one."""

    def __init__(self, session: Session, limit: int | str, start: int, cap: int | None):
        self.limit = read_bytes(limit)
        for name, value in (("start", start), ("cap", cap if cap is not None else start)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"grow_batch({name}=…) is a whole number from 1 on, got {value!r}")
        if cap is not None and cap < start:
            raise ValueError(f"grow_batch(cap={cap}) is below start={start}; raise it")
        self.start = self.batch = start
        self.cap = cap
        self.peaks: dict[int, int] = {}  #: resident peak of each batch size that ran, in bytes
        self._session = session
        self._step = session.step
        _trim()  # memory that malloc holds would be taken for the model's, and is used again
        low = reset_resident_peak()
        if low is None:
            raise RuntimeError(
                "grow_batch reads the resident peak from /proc/self, which this system does not "
                "have; choose the batch size by `actzip max-batch` on a Linux machine"
            )
        self.base = low  #: what the process held before the first step
        if low >= self.limit:
            raise ValueError(
                f"the process holds {size(low)} before any step, the limit is {size(self.limit)}; "
                "raise the limit"
            )

    def propose(self) -> int:
        """The largest power of two times `start` that fits, by the peak just measured; 5 % is free.

        Ask after some steps with the present batch size. A batch that came too close to the limit
        is halved.
        """
        if self._session.step == self._step:
            raise RuntimeError(
                f"no step has run with a batch of {self.batch} yet; train some, then ask again"
            )
        high = resident("VmHWM")
        assert high is not None, "it was there before"
        self.peaks[self.batch] = max(high, self.peaks.get(self.batch, 0))
        allowed = (1 - _FREE) * self.limit
        batch = self.batch
        while self.expected(batch) > allowed and batch > 1:
            batch //= 2
        while self._may(2 * batch) and self.expected(2 * batch) <= allowed:
            batch *= 2
        self.batch, self._step = batch, self._session.step
        _trim()
        reset_resident_peak()
        return batch

    def expected(self, batch: int) -> float:
        """Resident peak for a batch size, in bytes; not below the truth where memory is affine.

        With one size known everything that the steps took counts as if it grew with the batch.
        With more, the steepest slope from one of them to the largest: memory that was reclaimed
        for a moment makes a peak too small.
        """
        if not self.peaks:
            return math.nan
        known = sorted(self.peaks)
        last = known[-1]
        if batch in self.peaks:
            return self.peaks[batch]
        each = (self.peaks[last] - self.base) / last
        if len(known) > 1 and batch > last:
            slope = max((self.peaks[last] - self.peaks[b]) / (last - b) for b in known[:-1])
            each = min(each, max(slope, 0.0) * _MARGIN)
        if batch > last:
            return self.peaks[last] + each * (batch - last)
        return self.base + each * batch

    def rate(self, rule: str = "linear") -> float:
        """The factor for the learning rate by which rule: "linear", "sqrt" or "none"."""
        if rule not in RULES:
            raise ValueError(f"a learning-rate rule is one of {', '.join(RULES)}, got {rule!r}")
        growth = self.batch / self.start
        return {"linear": growth, "sqrt": math.sqrt(growth), "none": 1.0}[rule]

    def _may(self, batch: int) -> bool:
        return self.cap is None or batch <= self.cap

    def __repr__(self) -> str:
        peak = self.peaks.get(self.batch)
        said = "" if peak is None else f", peak {size(peak)}"
        return f"<actzip.Growth: batch {self.batch} of limit {size(self.limit)}{said}>"


def _trim() -> None:
    """Have glibc give back what is free; other systems have no such call, and need none."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim(0)
