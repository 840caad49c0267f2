"""How many bytes of a payload's memory are used, where only the device knows so far.

Such a payload is written into memory for the worst case. The number comes to the host with all
other words of a pass (unsettled.py): then the bytes move to memory of just their size, if the
payload is still there. Until then it is decoded from where it is. Its memory counts among what may
wait, so no more than `unsettled.HELD` bytes are ever held in vain.

In a captured graph no number ever comes: there a payload keeps the memory of the worst case.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from actzip.codecs import unsettled
from actzip.codecs.payload import Coded, fresh
from actzip.kernels.transfers import is_asynchronous, is_capturing

if TYPE_CHECKING:
    from actzip.codecs.payload import Payload


@dataclass(eq=False)
class Length:
    """A length on the device."""

    word: Tensor
    reserved: int  #: bytes
    value: int | None = None  #: bytes that are used, as soon as the host knows
    unit: int = 1  #: the memory of both is a multiple of it
    stream: object = field(default=None, repr=False)  #: that writes the bytes
    _payload: weakref.ref[Payload] | None = None

    edited: ClassVar[bool] = False
    most: ClassVar[int] = (1 << 63) - 1

    @property
    def doubt(self) -> Length | None:
        return self if self.value is None else None

    @property
    def nbytes(self) -> int:
        return self.reserved

    @property
    def spare(self) -> int:
        """Bytes of the memory that are known not to be needed."""
        if self.value is None:
            return 0
        whole, used = (-(-n // self.unit) * self.unit for n in (self.reserved, self.value))
        return whole - used

    def decided(self, doubt: object, word: int) -> None:
        self.value = word
        payload = None if self._payload is None else self._payload()
        if payload is not None and _stream(self.word.device) == self.stream:
            payload.shrink()

    def belongs_to(self, payload: Payload) -> None:
        self._payload = weakref.ref(payload)


def unless_known(x: Tensor, worst: int, within: Callable[[Tensor], Tensor]) -> Coded | None:
    """What `within` writes into memory for the worst case, giving its length; None where the host
    may just as well read the size first. Memory of the worst case is never taken from a slab."""
    if unsettled.reading_is_free(x.device) or x.numel() == 0:
        return None
    data = fresh(worst, x.device)
    return Coded(data, lengths=(length(within(data), worst),))


def length(word: Tensor, reserved: int) -> Length:
    """Of bytes that the present stream writes; it will be known to the host."""
    found = Length(word.detach().view(()), reserved, stream=_stream(word.device))
    if not is_capturing(word.device):
        unsettled.wait_for(found, reserved, word.device)
    return found


def _stream(device: torch.device) -> object:
    return torch.cuda.current_stream(device) if is_asynchronous(device) else None
