"""The largest batch whose training steps stay under a limit of resident memory, by trying."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from actzip.memory.measure import call_fresh, resident
from actzip.tasks import engine
from actzip.tasks.config import Config
from actzip.tasks.trainer import Part, Trainer, laid_out

STEPS = 3  #: of a try: the second has the optimizer's state, the third what a method has learned
OVER = 77  #: exit code of a process that was ended because it was above the limit
_EXAMPLES = 64  #: that are loaded, and repeated to fill a batch
_GLANCE = 0.005  #: seconds between two looks at the resident memory


@dataclass(frozen=True)
class Try:
    """Real steps with one batch in a fresh process."""

    batch: int
    fits: bool
    resident_peak: int | None = None  #: of the whole process, imports included
    seconds: float | None = None  #: of the last step
    why: str = ""  #: it does not fit


@dataclass(frozen=True)
class Largest:
    """What was found for one method."""

    label: str
    batch: int  #: 0: not even one example fits
    tries: list[Try] = field(default_factory=list)

    @property
    def best(self) -> Try | None:
        return next((each for each in self.tries if each.batch == self.batch and each.fits), None)

    @property
    def why(self) -> str:
        """What stopped the smallest batch that did not fit."""
        failed = [each for each in self.tries if not each.fits]
        return min(failed, key=lambda each: each.batch).why if failed else ""

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)


def search(tried: Callable[[int], bool], start: int, most: int, within: float) -> int:
    """The largest number up to `most` for which `tried` is true, to a part of `within`.

    Doubles or halves from `start` and then bisects; 0 when none is found. Every number that
    counts was tried: nothing is estimated.
    """
    low, high = 0, most + 1
    at = min(start, most)
    while at > low:
        if tried(at):
            low = at
            at = min(2 * at, most) if high > most else 0
        else:
            high = at
            at = at // 2 if low == 0 else 0
    while high - low > max(1, int(within * low)):
        at = (low + high) // 2
        if tried(at):
            low = at
        else:
            high = at
    return low


def attempt(config: Config, limit: int) -> Try:
    """Do steps of `config` in a fresh process end, and never above `limit` bytes?"""
    small = replace(config, limit=min(config.limit or _EXAMPLES, _EXAMPLES))
    try:
        peak, seconds = call_fresh(steps, small, limit)
    except RuntimeError as error:
        return Try(config.batch, False, why=_why(str(error)))
    fits = peak <= limit
    return Try(config.batch, fits, peak, seconds, "" if fits else "above the limit")


def steps(config: Config, limit: int) -> tuple[int, float]:
    """Train `STEPS` steps in this process: its resident peak, and the seconds of the last step.

    Ends the process at once when it grows above `limit`: a limit is there to be kept.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    ended = threading.Event()
    threading.Thread(target=_guard, args=(limit, ended), daemon=True).start()
    data = engine.load(config)
    trainer = Trainer(config, data, STEPS)
    trainer.model.train()
    indices = torch.arange(config.batch) % len(data.train)
    seconds = 0.0
    for _ in range(STEPS):
        inputs, targets = data.train.batch(indices, None)
        part = Part(laid_out(config, inputs), targets)
        began = time.perf_counter()
        trainer.step([part])
        seconds = time.perf_counter() - began
    ended.set()
    peak = resident("VmHWM")
    if peak is None:
        raise RuntimeError("resident memory is read from /proc/self/status, which is not here")
    return peak, seconds


def _guard(limit: int, ended: threading.Event) -> None:
    while not ended.wait(_GLANCE):
        if (resident("VmRSS") or 0) > limit:
            os._exit(OVER)


def _why(error: str) -> str:
    if f"exit code {OVER}:" in error:
        return "above the limit"
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def read_size(text: str) -> int:
    """Bytes out of a text such as 4GiB, 512 MB or 1000000."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"a size is written like 4GiB, 512MB or 1000000 (bytes), got {text!r}")
    power = "kmgt".find(match[2].lower()) + 1 if match[2] else 0
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def available() -> int | None:
    """Bytes that programs can still take on this machine; None where it does not say."""
    try:
        with open("/proc/meminfo") as file:
            found = re.search(r"MemAvailable:\s*(\d+) kB", file.read())
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
