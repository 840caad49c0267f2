"""What becomes of a saved tensor, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from actzip.autograd.derivation import Derivation
from actzip.autograd.identity import Wanted, storage_of
from actzip.autograd.ledger import Fate, Row
from actzip.autograd.recipe import Recipe
from actzip.autograd.slots import Node, Rule
from actzip.autograd.stored import Stored
from actzip.codecs.base import Payload
from actzip.methods.base import Role

__all__ = ["Decision", "Fate", "Saved", "left"]


@dataclass(slots=True, eq=False)  # not frozen: that takes three times as long to make
class Saved:
    """A tensor that autograd saves in a slot."""

    node: Node
    raw: Any  #: autograd's handle of the slot
    rule: Rule | None
    want: Wanted
    row: Row
    maker: Node | None  #: of the tensor to store
    parts: int = 1  #: in how many parts the node's backward reads it

    @property
    def number(self) -> int:
        return int(self.node._sequence_nr())

    @property
    def current(self) -> Tensor | None:
        """What autograd would hand to backward; None when it is not ours to change."""
        if self.raw.unpack_hook is not None:
            return None
        t = self.raw.data
        return t if isinstance(t, Tensor) and storage_of(t) is not None else None


@dataclass(slots=True, eq=False)
class Decision:
    """What happens, the reason, and how the slot is served; encoding is done by then."""

    fate: Fate
    reason: str = ""  #: why it is left alone
    recipe: Recipe | None = None  #: how the slot is served from the stored tensor
    payload: Payload | None = None  #: of its values or its bits
    role: Role | None = None  #: what the payload, or what is made again, is good for
    source: Stored | None = None  #: the stored tensor that it shares, and whose that is
    holder: Row | None = None
    derivation: Derivation | None = None  #: the way to make it again


def left(reason: str) -> Decision:
    return Decision(Fate.LEFT, reason)
