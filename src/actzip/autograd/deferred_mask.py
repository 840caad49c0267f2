"""A ReLU's result between two ops: one bit per element is enough, and mostly not needed either.

The next op is mostly a layer that stores the values, in a code that tells the zeros. So the bits
wait for the next op, and are written before it if it is no layer; it might edit the result.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from actzip.autograd.identity import Key
from actzip.autograd.ledger import Row
from actzip.autograd.stored import Kept, Stored
from actzip.methods.base import Role


class Waiting(NamedTuple):
    """Who needs the bits, of which tensor, where they go, and in how many parts they are read."""

    row: Row
    key: Key
    stored: Stored
    parts: int

    @property
    def due(self) -> Tensor | None:
        """The tensor whose bits must be written now; None when somebody stored it, or edited it:
        it then stays as it is, and backward refuses the edit as plain PyTorch does."""
        kept = self.stored.value
        if self.stored.role is not Role.MASK or not isinstance(kept, Kept):
            return None
        return kept.tensor if kept.tensor._version == kept.version else None
