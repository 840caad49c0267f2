"""What a session wants of a graph, and what a graph saves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.fx import Node

from actzip.compiled.effect import Effect
from actzip.methods.base import Policy, Role


@dataclass
class Saved:
    """One tensor that the forward graph saves, and what becomes of it."""

    place: int  #: among the forward graph's outputs
    node: Node  #: in forward
    home: Node  #: its placeholder in backward
    effect: Effect = field(default_factory=lambda: Effect(Role.EXACT))
    site: dict[str, Any] = field(default_factory=dict)
    packs: bool = False
    relu: Node | None = None  #: in forward, made again from this one, whose code has its mask
    sides: Node | None = None  #: in backward, that mask
    reason: str = ""

    @property
    def val(self) -> Tensor:
        val: Tensor = self.node.meta["val"]
        return val


@dataclass(frozen=True)
class Wish:
    """What a session wants of a graph."""

    key: str
    policy: Policy
    min_bytes: int
    root: type | None  #: the class of the session's model
    derives: bool = False  #: cheap functions of packed tensors are not packed
