"""A ReLU's result between two ops: one bit per element is enough, and mostly not needed either.

The next op is mostly a layer that stores the values, in a code that tells the zeros. So the bits
wait for the next op, and are written before it if it is no layer; it might edit the result.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from actzip.autograd.ledger import Row
from actzip.autograd.stored import Kept, Stored
from actzip.codecs.base import Payload
from actzip.methods.base import Role

#: Packs a tensor's bits to be read in so many parts, and writes down that this row holds them.
Pack = Callable[[Row, Tensor, int], Payload]


class DeferredMask:
    """The one result that waits, if any."""

    def __init__(self) -> None:
        #: the result, in how many parts it will be read, and whose row it is; watchers ask each op
        self.waits: tuple[Row, int, Stored] | None = None

    def defer(self, row: Row, parts: int, stored: Stored) -> None:
        """`stored` has the result itself for now."""
        self.waits = row, parts, stored

    def settle(self, pack: Pack) -> None:
        """Write the bits, unless somebody stored the values, or edited them: the result then stays
        as it is, and backward refuses the edit as plain PyTorch does."""
        waits, self.waits = self.waits, None
        if waits is None:
            return
        row, parts, stored = waits
        kept = stored.value
        if stored.role is Role.MASK and isinstance(kept, Kept) and kept.is_current:
            stored.replace(Role.MASK, None, bits=pack(row, kept.tensor, parts))
