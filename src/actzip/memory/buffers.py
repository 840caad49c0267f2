"""Memory that is used again: slabs for payloads, buffers for decoded tensors.

Payloads live from forward to backward, among tensors that live for one op. Side by side on the
heap they leave holes, so payloads get slabs of their own. Decoded tensors live for one op each:
fresh memory would cost page faults (2.9 GB/s against 20 into memory already touched), so the next
one goes where the last one was, once nobody holds it.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from actzip import planning
from actzip.torch_private import StorageWeakRef, storage_from_weak

_ALIGN = 64
_GROWTH = 64  #: a slab is such a part of what was stored before it
_TAILS = 8  #: slabs whose unused ends may still be filled
#: Below this the allocator's own free lists are as good.
SMALLEST_BUFFER = 1 << 20


class Slabs:
    """Hands out payload memory from slabs; a slab goes when its last payload is gone.

    Slabs grow with what a pass has stored so far, so that the unused ends of all of them stay below
    a thirtieth of it.
    """

    def __init__(self, smallest: int = 1 << 12, largest: int = 16 << 20):
        self.smallest = smallest
        self.largest = largest
        self._open: list[tuple[Tensor, int]] = []  # slabs, and how much of each is used
        self._stored = 0
        self._alive: list[StorageWeakRef] = []
        self._tidy = 16  # so many of them, and those that are gone are dropped
        self._lock = threading.Lock()

    def allocate(self, nbytes: int, device: torch.device) -> Tensor:
        """A 1-D uint8 tensor; what is larger than a slab has its own memory."""
        room = -(-nbytes // _ALIGN) * _ALIGN
        if device.type != "cpu" or room > self.largest // 4:
            return torch.empty(nbytes, dtype=torch.uint8, device=device)
        with self._lock:
            for at, (slab, start) in enumerate(self._open):  # nearly always the first
                if start + room <= slab.numel():
                    del self._open[at]
                    break
            else:
                slab, start = self._new(room)
            self._stored += room
            self._open.insert(0, (slab, start + room))
            del self._open[_TAILS:]
            return slab.as_strided((nbytes,), (1,), start)

    def _new(self, room: int) -> tuple[Tensor, int]:
        size = max(self.smallest, min(self.largest, self._stored // _GROWTH))
        if 4 * room > size:  # alone, or in a row of its like: no end of a slab would take it
            size = room
        elif room:
            size -= size % room
        with torch.inference_mode(False):  # one made in it could not be written to outside
            slab = torch.empty(size, dtype=torch.uint8)
        if len(self._alive) >= self._tidy:  # to ask every time takes long where there are many
            self._alive = [ref for ref in self._alive if not ref.expired()]
            self._tidy = 2 * len(self._alive) + 16
        self._alive.append(StorageWeakRef(slab.untyped_storage()))
        return slab, 0

    def close(self) -> None:
        """The forward pass is over: hold no slab; its payloads do."""
        with self._lock:
            self._open = []
            self._stored = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the slabs that are alive."""
        storages = [storage_from_weak(r.cdata) for r in list(self._alive)]
        return sum(storage.nbytes() for storage in storages if storage is not None)


class Buffers:
    """Hands out memory for decoded tensors, never twice while anyone holds it.

    Between two requests at most one idle buffer is held, the largest: backward decodes one
    tensor after the other, and one buffer then serves them all.
    """

    def __init__(self, lends: bool = True) -> None:
        self.lends = lends  #: what is decoded may be held for a next reader
        # Each array is a tensor's memory. What is handed out is a new storage over it: storages
        # name tensors (see autograd/identity.py), so one storage must never be two of them.
        self._held: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
        self._users = 0
        # re-entrant: the collector may drop a stored tensor while this thread is inside
        self._lock = threading.RLock()

    def empty(
        self,
        size: tuple[int, ...],
        stride: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
    ) -> Tensor:
        """Like torch.empty_strided, in memory used before if there is some."""
        nbytes = _reach(size, stride) * dtype.itemsize
        if device.type != "cpu" or nbytes < SMALLEST_BUFFER or planning.active:
            return torch.empty_strided(size, stride, dtype=dtype, device=device)
        with self._lock:  # until the tensor holds the memory: it counts as idle before
            memory, count = self._take(nbytes), nbytes // dtype.itemsize
            return torch.frombuffer(memory, dtype=dtype, count=count).as_strided_(size, stride)

    def _take(self, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        if len(self._held) == 1 and self._is_idle(0) and self._held[0].nbytes >= nbytes:
            return self._held[0]  # nearly always
        idle = [i for i in range(len(self._held)) if self._is_idle(i)]
        best = max(idle, key=lambda i: self._held[i].nbytes, default=None)
        if best is not None and self._held[best].nbytes >= nbytes:
            found = self._held[best]
            self._held = [a for i, a in enumerate(self._held) if i not in idle or i == best]
            return found
        # the idle ones go before the larger one is asked for
        self._held = [a for i, a in enumerate(self._held) if i not in idle]
        self._held.append(torch.empty(nbytes, dtype=torch.uint8).numpy())
        return self._held[-1]

    def _is_idle(self, i: int) -> bool:
        """Whether only the list holds the array; a storage over it holds it too."""
        return sys.getrefcount(self._held[i]) == _ALONE

    def join(self) -> None:
        """One more stored tensor may ask for a buffer."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """One less; with the last of them all buffers go."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self.clear()

    @property
    def users(self) -> int:
        """Stored tensors that may still ask for a buffer: those with a payload."""
        return self._users

    def clear(self) -> None:
        """Hold nothing; what is in use stays with those who use it."""
        with self._lock:
            self._held.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers held at this moment."""
        return sum(array.nbytes for array in list(self._held))


@functools.lru_cache(maxsize=1024)
def _reach(size: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """From the first to the last element of memory that is used."""
    return 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))


def _references() -> int:
    """What getrefcount says of an object that one list holds."""
    held = [np.empty(0, dtype=np.uint8)]
    return sys.getrefcount(held[0])


_ALONE = _references()
