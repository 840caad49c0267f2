"""The largest batch whose training steps stay under a limit of resident memory, by trying."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from actzip import accelerator
from actzip.memory.fresh_process import call_fresh
from actzip.memory.measure import resident
from actzip.tasks import engine
from actzip.tasks.config import Config
from actzip.tasks.ranks import Ranks, leave
from actzip.tasks.trainer import Trainer, placed

STEPS = 3  #: of a try: the second has the optimizer's state, the third what a method has learned
OVER = 77  #: exit code of a process that was ended because it was above the limit
MOST_TRIES = 10  #: of a search that need not be exact
_EXAMPLES = 64  #: that are loaded, and repeated to fill a batch
_MEMORY = re.compile(
    r"MemoryError|bad_alloc|can't allocate memory|cannot allocate memory|not enough memory"
    # with a question mark it is a guess of `call_fresh`
    r"|out of memory(?!\?)|" + "|".join(accelerator.REFUSALS[1:]),
    re.IGNORECASE,
)
_MEETING = timedelta(minutes=5)  #: the longest that a process waits for another
_NOTICE = timedelta(seconds=30)  #: for a process to notice that another one has ended
_GLANCE = 0.005  #: seconds between two looks at the resident memory


class StepError(RuntimeError):
    """A try that failed for another reason than memory: no batch size mends that."""


@dataclass(frozen=True)
class Floor:
    """What a process holds before its first step, in bytes; no batch can take less."""

    imports: int
    model: int  #: the examples, the weights, the session

    @property
    def total(self) -> int:
        return self.imports + self.model


@dataclass(frozen=True)
class Try:
    """Real steps with one batch in a fresh process."""

    batch: int
    fits: bool
    resident_peak: int | None = None  #: of the whole process, imports included
    seconds: float | None = None  #: of the last step
    why: str = ""  #: it does not fit
    took: float = field(default=0.0, compare=False)  #: seconds of the whole try


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


def search(
    tried: Callable[[int], Try], start: int, most: int, within: float, limit: int, held: int = 0
) -> int:
    """The largest batch up to `most` that fits, to a part of `within`; 0 when none does.

    Every batch that counts was tried. Which is tried next says a straight line through the peaks
    so far: where it meets the limit, then `within` above that, which shall not fit; as often as it
    was wrong in a row, twice as far. `held` is the peak of no batch at all, 0 if not known. After
    MOST_TRIES it is what was found until then, unless `within` is 0.
    """
    low, high, wrong, count = 0, most + 1, 0, 0
    peaks = [(0, held)] if held else []
    at, meets = min(start, most), None
    while high - low > max(1, int(within * low)) and (count < MOST_TRIES or not within):
        found = tried(at)
        count += 1
        wrong = wrong + 1 if meets is not None and found.fits != (at <= meets) else 0
        if found.fits:
            low = at
            peaks.append((at, found.resident_peak or 0))
        else:
            high = at
        meets = _meets(peaks, limit)
        if low == 0 or meets is None:
            at = min(2 * low, most) if high > most else (low + high) // 2
        elif high > most:  # a line through small batches says little of large ones
            at = min(max(meets, low + (_part(low, within) << wrong)), 8 * low, most)
        elif meets < high:
            at = min(max(meets, low + (_part(low, within) << wrong)), high - 1)
        else:
            at = max((low + high) // 2, high - (_part(high, within) << wrong))
    return low


def _part(batch: int, within: float) -> int:
    return max(1, int(within * batch))


def _meets(peaks: list[tuple[int, int]], limit: int) -> int | None:
    """The last batch below the limit by the line through the last peak and one well below it."""
    if not peaks:
        return None
    last, most = peaks[-1]
    below = [each for each in peaks if each[0] <= 0.75 * last]
    if not below or most <= below[-1][1]:
        return None
    batch, least = below[-1]
    return last + int((limit - most) * (last - batch) / (most - least))


def attempt(config: Config, limit: int, world: int = 1) -> Try:
    """Do steps of `config` in a fresh process end, and never above `limit` bytes?

    With several processes they train together; batch and limit are those of each. Raises StepError
    when the steps fail for another reason.
    """
    began = time.perf_counter()
    try:
        if world == 1:
            peak, seconds = call_fresh(steps, _small(config), limit)
        else:
            peak, seconds = _together(_small(config), limit, world)
    except RuntimeError as error:
        why = _why(str(error))
        return Try(config.batch, False, why=why, took=time.perf_counter() - began)
    fits, took = peak <= limit, time.perf_counter() - began
    return Try(config.batch, fits, peak, seconds, "" if fits else "above the limit", took)


def _together(config: Config, limit: int, world: int) -> tuple[int, float]:
    """The largest peak and time of processes in a group; the error of the first without memory.

    When one ends, those that wait for it and do not notice are ended: a process that was ended
    in the middle of a write to the store left another one reading it for ever.
    """
    ended = threading.Event()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(world) as pool:
        store = str(Path(folder, "store"))
        running = [
            pool.submit(call_fresh, steps, config, limit, Ranks(rank, world), store, until=ended)
            for rank in range(world)
        ]
        over, waiting = wait(running, return_when=FIRST_EXCEPTION)
        if waiting:
            wait(waiting, timeout=_NOTICE.total_seconds())
            ended.set()
    order = [*over, *waiting]  # the error that was first is the cause of the others
    failed = [error for each in order if (error := each.exception()) is not None]
    for each_error in failed:
        if not isinstance(each_error, RuntimeError):
            raise each_error
        with contextlib.suppress(StepError):
            _why(str(each_error))
            raise each_error
    if failed:
        raise failed[0]
    found = [each.result() for each in running]
    return max(peak for peak, _ in found), max(seconds for _, seconds in found)


def floor(config: Config) -> Floor:
    """What a fresh process with the model of `config` holds before any step."""
    try:
        found: Floor = call_fresh(_floor, _small(config))
    except RuntimeError as error:
        raise StepError(_why(str(error))) from error
    return found


def _small(config: Config) -> Config:
    return replace(config, limit=min(config.limit or _EXAMPLES, _EXAMPLES))


def _floor(config: Config) -> Floor:
    imports = _resident("VmRSS")
    trainer = Trainer(config, engine.load(config), STEPS)
    on_device = accelerator.allocated(trainer.device)
    held = _resident("VmRSS")
    trainer.close()
    if on_device is not None:
        return Floor(0, on_device)
    return Floor(imports, max(0, held - imports))


def steps(
    config: Config, limit: int, ranks: Ranks | None = None, store: str = ""
) -> tuple[int, float]:
    """Train `STEPS` steps in this process: its resident peak, and the seconds of the last step.

    Ends the process at once when it grows above `limit`: a limit is there to be kept. On a GPU the
    peak is that of its tensors, and its allocator is told the limit. With `ranks` it is one of
    several processes that meet through the file `store`.
    """
    device = accelerator.choose(config.device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    ended = threading.Event()
    if accelerator.library(device) is None:
        threading.Thread(target=_guard, args=(limit, ended), daemon=True).start()
    else:
        accelerator.limit(device, limit)
        accelerator.reset_peak(device)
    ranks = ranks or Ranks()
    if ranks.world > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=ranks.rank,
            world_size=ranks.world,
            timeout=_MEETING,
        )
    data = engine.load(config)
    trainer = Trainer(config, data, STEPS)
    trainer.called = ranks.shared(trainer.model)
    trainer.model.train()
    indices = torch.arange(config.batch) % len(data.train)
    seconds = 0.0
    for _ in range(STEPS):
        inputs, targets = data.train.batch(indices, None)
        part = placed(config, inputs, targets, device)
        began = time.perf_counter()
        trainer.step([part])
        accelerator.synchronize(device)
        seconds = time.perf_counter() - began
    ended.set()
    peak = accelerator.peak(device)
    del trainer
    leave(ranks)
    return _resident("VmHWM") if peak is None else peak, seconds


def _resident(name: str) -> int:
    found = resident(name)
    if found is None:
        raise RuntimeError("resident memory is read from /proc/self/status, which is not here")
    return found


def _guard(limit: int, ended: threading.Event) -> None:
    while not ended.wait(_GLANCE):
        if (resident("VmRSS") or 0) > limit:
            os._exit(OVER)


def is_out_of_memory(error: str) -> bool:
    """Whether a failure of a step is one of memory, by what it says."""
    return bool(_MEMORY.search(error))


def _why(error: str) -> str:
    """Why a try does not fit; raises StepError when memory has nothing to do with it."""
    code = re.search(r"exit code (-?\d+):", error)
    if code is not None and int(code[1]) == OVER:
        return "above the limit"
    if code is not None and int(code[1]) == -signal.SIGKILL:
        return "killed, as the system does when memory runs out"
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    last = lines[-1] if lines else "no reason given"
    if is_out_of_memory(last):
        return last
    raise StepError(last)


def available(device: torch.device) -> int | None:
    """Bytes that programs can still take on this machine, or that the device has; None where it
    does not say."""
    if accelerator.library(device) is not None:
        return accelerator.total_memory(device)
    try:
        with open("/proc/meminfo") as file:
            found = re.search(r"MemAvailable:\s*(\d+) kB", file.read())
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
