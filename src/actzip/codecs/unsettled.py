"""What only the device knows of something that was stored, and the host learns later.

On a CPU a kernel's word is read at once: how many groups are raw, whether a value did not fit. On
any other device reading it would hold up the host in every encode. There a payload has a bounded
room for raw groups, 1/512 of the tensor and at least one group, and the word stays on the device
with the tensor that it is about. Words travel to the host together, in one copy that nobody waits
for (kernels/transfers.py): when something in doubt is decoded for the first time, which is once a
pass, or when many tensors wait. A payload whose word is bad (more raw groups than there was room
for, a value that does not fit) then keeps its tensor exactly instead.

What is decoded before its word has come is right already: the device itself takes the tensor's
values where the word is bad (`Doubt.correct`). So the values do not depend on when a word comes.
A tensor that was edited meanwhile cannot help; if its word is bad, what was stored is lost, and
reading it is refused (`EditedError`), as plain autograd refuses a saved tensor that was edited.

Where the size of a payload follows from the values (strict bounds), it is written into memory for
the worst case, and its length is a word like the others (lengths.py).
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from actzip.codecs.memory_order import unexpand
from actzip.kernels.transfers import Transfer, is_capturing

#: Bytes of tensors that may wait for a word; then the host waits for the oldest.
HELD = 1 << 28
_BATCH = 4  #: so many copies carry the words of HELD bytes
_ROOM = 512


def reading_is_free(device: torch.device) -> bool:
    """Whether the host may read a number from this device without holding anything up."""
    return device.type == "cpu"


def room(elements: int, group: int) -> int:
    """Elements of raw groups for which a payload has room where their number is not known."""
    return min(elements, max(group, elements // _ROOM))


class EditedError(RuntimeError):
    """A tensor that did not fit its codec was edited in place before that was known."""


class Asked(Protocol):
    """What a number on the device says."""

    @property
    def word(self) -> Tensor: ...

    @property
    def nbytes(self) -> int:
        """Of the memory that is held until the number is known."""

    @property
    def edited(self) -> bool:
        """Whether a bad word comes too late: it is not told, and the doubt stays."""

    @property
    def most(self) -> int:
        """A word above it is bad."""


class Doubtful(Protocol):
    """What waits for a word: a payload, its length, or a way to make a tensor again."""

    @property
    def doubt(self) -> Asked | None:
        """What is not known of it yet."""

    def decided(self, doubt: Any, word: int) -> None:
        """The word has come: there is no doubt any more. Of a `Doubt` it is at most `doubt.most`,
        or `doubt.x` must be kept exactly."""


@dataclass(eq=False)
class Doubt:
    """A word on the device: at most `most`, or what was stored is not what it should be."""

    x: Tensor
    version: int
    word: Tensor
    most: int = 0
    unit: int = 0  #: bytes that are spare for each that the word is below `most`

    @property
    def nbytes(self) -> int:
        return self.x.nbytes

    def settle(self) -> None:
        settle()

    @property
    def edited(self) -> bool:
        """Whether the tensor is no longer what was stored: it cannot help then."""
        return version_of(self.x) != self.version

    def refuse_if_lost(self) -> None:
        """Raise if neither the payload nor the tensor has the values: the one case that waits."""
        if not self.edited:
            return
        if not is_capturing(self.x.device) and int(self.word) <= self.most:
            return
        raise EditedError(
            f"a tensor of shape {tuple(self.x.shape)} that is needed for gradient computation was "
            f"modified by an inplace operation: it is at version {version_of(self.x)} and was "
            f"saved at version {self.version}. It could not be stored by its codec (mostly: more "
            "values that are no numbers than there was room for), and the edit came before that "
            "was known. Without actzip autograd refuses such an edit as well: use the "
            "out-of-place form of the operation."
        )

    @property
    def told(self) -> tuple[Tensor, int, int]:
        """Word, limit and unit, without the tensor."""
        return self.word, self.most, self.unit

    def of_part(self, first: int, last: int) -> Doubt:
        """The same of some samples: one bad part is a bad whole."""
        return Doubt(self.x[first:last], self.version, self.word, self.most)

    def correct(self, values: Tensor, *, mask: bool = False) -> Tensor:
        """`values` as decoded, or the tensor's own where the word is bad; the host asks nothing."""
        if self.edited:
            self.refuse_if_lost()
            return values
        target = unexpand(values)
        own = self.x[tuple(slice(0, size) for size in target.shape)]
        own = (own != 0).to(values.dtype) if mask else own
        torch.where(self.word.view(()) > self.most, own, target, out=target)
        return values


@dataclass(eq=False)
class _Batch:
    """Words that travel together, and who waits for them."""

    holders: list[weakref.ref[Doubtful]]
    transfer: Transfer
    nbytes: int


_LOCK = threading.RLock()
_OPEN: list[weakref.ref[Doubtful]] = []  # whose words are still on the device
_SENT: list[_Batch] = []
_held = 0  # bytes of tensors that wait
_open = 0  # those of them whose words are still on the device


def hold(
    holder: Doubtful, x: Tensor, word: Tensor, most: int = 0, unit: int = 0, *, loud: bool = False
) -> None:
    """Have it wait for this word of x, the tensor that was stored.

    loud: a bad word shows as NaN in what is decoded. In a captured graph no word ever comes, so x
    would stay for ever: there what is loud does without.
    """
    if loud and is_capturing(x.device):
        return
    doubt = Doubt(x.detach(), version_of(x), word.detach(), most, unit)
    object.__setattr__(holder, "doubt", doubt)
    wait_for(holder, x.nbytes, x.device)


def wait_for(holder: Doubtful, nbytes: int, device: torch.device) -> None:
    """Have the doubt of this holder settled with the next words that travel."""
    global _held, _open
    with _LOCK:
        _OPEN.append(weakref.ref(holder))
        _held += nbytes
        _open += nbytes
        if is_capturing(device):
            return
        if _open > HELD // _BATCH:
            _send()
        while _SENT and (_held > HELD or _SENT[0].transfer.arrived()):
            _read(_SENT.pop(0))


def look() -> None:
    """Send the words that are still on the device, and use those that have come; never waits."""
    with _LOCK:
        _send()
        while _SENT and _SENT[0].transfer.arrived():
            _read(_SENT.pop(0))


def settle() -> None:
    """Use all words, and wait for those that have not come."""
    with _LOCK:
        _send()
        while _SENT:
            _read(_SENT.pop(0))


def _send() -> None:
    global _open, _held
    waiting: dict[torch.device, list[tuple[weakref.ref[Doubtful], Asked]]] = {}
    for ref in _OPEN:
        holder = ref()
        doubt = None if holder is None else holder.doubt
        if doubt is not None:
            waiting.setdefault(doubt.word.device, []).append((ref, doubt))
    _OPEN.clear()
    _held -= _open
    _open = 0
    for device, pairs in waiting.items():
        if is_capturing(device):
            continue
        nbytes = sum(doubt.nbytes for _, doubt in pairs)
        _held += nbytes
        words = torch.stack([doubt.word.view(()).to(torch.int64) for _, doubt in pairs])
        _SENT.append(_Batch([ref for ref, _ in pairs], Transfer(words), nbytes))


def _read(batch: _Batch) -> None:
    global _held
    _held -= batch.nbytes
    for ref, word in zip(batch.holders, batch.transfer.read(), strict=True):
        holder = ref()
        doubt = None if holder is None else holder.doubt
        if holder is None or doubt is None:
            continue
        if word > doubt.most and doubt.edited:
            continue  # the doubt stays, and refuses whoever reads
        holder.decided(doubt, word)


def version_of(x: Tensor) -> int:
    return 0 if x.is_inference() else x._version
