"""What only the device knows of a payload, looked at once for many of them.

On a CPU a kernel's word is read at once: how many groups are raw, whether a value did not fit. On
any other device reading it would hold up the host in every encode. There the payload has a bounded
room for raw groups, 1/512 of the tensor and at least one group, and the word stays on the device
with the tensor that it is about. `settle` reads all such words in one copy: when a payload is
decoded, copied or written for the first time, which is once a pass, or when HELD bytes of tensors
wait. A payload whose word is bad (more raw groups than there was room for, a value that does not
fit) then keeps its tensor exactly instead: never a wrong value, and no wait where all is well.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from actzip.codecs.payload import Payload

#: Bytes of tensors that may wait for a word; then the host looks.
HELD = 1 << 28
_ROOM = 512


def reading_is_free(device: torch.device) -> bool:
    """Whether the host may read a number from this device without holding anything up."""
    return device.type == "cpu"


def room(elements: int, group: int) -> int:
    """Elements of raw groups for which a payload has room where their number is not known."""
    return min(elements, max(group, elements // _ROOM))


@dataclass(eq=False)
class Doubt:
    """A word on the device: at most `most`, or the payload is not what it should be."""

    x: Tensor
    version: int
    word: Tensor
    most: int
    unit: int

    def settle(self) -> None:
        settle()

    @property
    def told(self) -> tuple[Tensor, int, int]:
        """Word, limit and unit, without the tensor."""
        return self.word, self.most, self.unit


_LOCK = threading.RLock()
_WAITING: list[weakref.ref[Payload]] = []
_held = 0


def hold(payload: Payload, x: Tensor, word: Tensor, most: int, unit: int) -> None:
    """Have the payload wait for this word of x, the tensor that was encoded."""
    global _held
    doubt = Doubt(x.detach(), _version(x), word.detach(), most, unit)
    object.__setattr__(payload, "doubt", doubt)
    with _LOCK:
        _WAITING.append(weakref.ref(payload))
        _held += x.nbytes
        if _held > HELD:
            settle()


def settle() -> None:
    """Read the words that wait: one copy for each device."""
    global _held
    with _LOCK:
        there = [payload for ref in _WAITING if (payload := ref()) is not None]
        _WAITING.clear()
        _held = 0
        by_device: dict[torch.device, list[tuple[Payload, Doubt]]] = defaultdict(list)
        for payload in there:
            if payload.doubt is not None:
                by_device[payload.doubt.word.device].append((payload, payload.doubt))
        for pairs in by_device.values():
            words = torch.stack([doubt.word.view(()) for _, doubt in pairs]).tolist()
            for (payload, doubt), word in zip(pairs, words, strict=True):
                _settle(payload, doubt, word)


def _settle(payload: Payload, doubt: Doubt, word: int) -> None:
    object.__setattr__(payload, "doubt", None)
    if word <= doubt.most:
        object.__setattr__(payload, "spare", (doubt.most - word) * doubt.unit)
        return
    if _version(doubt.x) != doubt.version:
        warnings.warn(
            f"{payload.codec!r}: a tensor of shape {payload.shape} holds more values that are no "
            "numbers than there was room for, and was edited before that was known; those groups "
            "come back as NaN. Keep this tensor with Keep().",
            RuntimeWarning,
            stacklevel=2,
        )
        return
    exact = payload.codec.exactly()
    kept = exact.encode(doubt.x)
    for name, value in (("made_by", payload.codec), ("codec", exact), ("data", kept.data)):
        object.__setattr__(payload, name, value)
    object.__setattr__(payload, "known", kept.known)


def _version(x: Tensor) -> int:
    return 0 if x.is_inference() else x._version
