"""What a method is: for each saved tensor, the codec that stores it."""

from __future__ import annotations

import enum
import functools
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch

from actzip.codecs.base import Codec
from actzip.control.op import UNKNOWN, Op
from actzip.control.statistics import Statistics


class Role(enum.Enum):
    """What a saved tensor is for; the slot table says which, the method says what that costs.

    The order is the strength of the need: a tensor with several readers is stored for
    the strongest of them, and the weaker ones are served from that.
    """

    WEIGHT = "weight"  #: a parameter or a copy of one: never touched
    SMALL = "small"  #: statistics and the like: not worth a call
    GEOMETRY = "geometry"  #: only shape and strides are read
    MASK = "mask"  #: one bit per element decides everything
    INDEX = "index"  #: integers, stored exactly in the fewest bits
    LINEAR = "linear"  #: enters the gradient linearly: an unbiased code keeps it unbiased
    NONLINEAR = "nonlinear"  #: enters through a curved function: wants more precision
    EXACT = "exact"  #: not understood, or bit-exactness is required: left alone

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python


STRENGTH = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True)
class Site:
    """One place in the model where autograd saves a tensor; the same name in every step."""

    module: str  #: path of the innermost module, "" for the model itself
    node: str  #: autograd node, e.g. "ConvolutionBackward0"
    slot: str  #: e.g. "input"
    occurrence: int  #: 0, 1, … when one module runs the same op several times
    role: Role
    relu: bool = False  #: a ReLU made the tensor: its zeros are a mask that backward needs
    #: what the table says of the op that saves the tensor, and of the one that made it
    op: Op = field(default=UNKNOWN, compare=False, repr=False)
    maker: Op = field(default=UNKNOWN, compare=False, repr=False)
    order: int = 0  #: of its graph: 1 for that of gradients, 2 for that of their gradients, …

    @functools.cached_property
    def name(self) -> str:
        count = f"#{self.occurrence}" if self.occurrence else ""
        return f"{self.module}:{self.node}.{self.slot}{count}{'~grad' * self.order}"

    def made(self, maker: Op, relu: bool) -> Site:
        """The same with what is known once its tensor is looked at."""
        s = self
        return site(s.module, s.node, s.slot, s.occurrence, s.role, relu, s.op, maker, s.order)


@functools.lru_cache(maxsize=1 << 14)
def site(
    module: str,
    node: str,
    slot: str,
    occurrence: int,
    role: Role,
    relu: bool = False,
    op: Op = UNKNOWN,
    maker: Op = UNKNOWN,
    order: int = 0,
) -> Site:
    """A site, the same object in every step: to make one costs more than to look it up."""
    return Site(module, node, slot, occurrence, role, relu, op, maker, order)


class Derives(enum.Enum):
    """Results of cheap ops that are made again in backward from what is stored."""

    NOTHING = "nothing"
    EXACT = "exact"  #: those that come back bit for bit
    #: functions of decoded tensors: the errors of a code then show in what is made from it, too,
    #: which the method's error formula has to know
    LOSSY = "lossy"


class Policy(ABC):
    """A method at work in one session: answers for each tensor, and learns from each backward."""

    #: bytes of an op's operands (what it saved and its output) above which its backward runs in
    #: micro-batches of at most so many: convolutions, batch norm, activations, pooling
    slice_bytes: int | None = None
    swap: bool = False  #: payloads of tensors on a GPU wait for backward in host memory
    #: which results of cheap ops are not stored but made again, unless the user says otherwise
    derives: Derives = Derives.NOTHING
    #: a decoded tensor that the next node needs too is held until then: faster, for a higher peak
    decodes_once: bool = True
    wants_peak: bool = False  #: whether the peak of the pass that begins is to be measured
    history: int = 1  #: how many readings of each site the statistics keep
    #: names of sites whose tensors `sign_exact` is asked for
    rectified: Collection[str] = ()

    @abstractmethod
    def codec(self, site: Site, tensor: torch.Tensor) -> Codec | None:
        """The codec for a tensor of this site in this step; None leaves the tensor alone.

        Asked only for linear and nonlinear sites: masks, indices and shapes cost every method
        the same.
        """

    def sign_exact(
        self, site: Site, tensor: torch.Tensor, origins: tuple[float, ...]
    ) -> Codec | None:
        """The same for a BatchNorm's input at one of the sites `rectified`: a code that keeps
        `tensor > origins`, channel by channel, makes the ReLU's result and mask free."""
        return self.codec(site, tensor)

    def untold(self, site: Site, tensor: torch.Tensor) -> Codec | None:
        """The same for a tensor from which others are made again, while backward has told nothing
        of these: what it told of the tensor itself is not enough."""
        return self.codec(site, tensor)

    def rectifies(self, site: str) -> None:  # noqa: B027  # most have no such code
        """A ReLU has cut off the result of the BatchNorm whose input is stored at this site."""

    def reason(self, site: Site) -> str:
        """Why `codec` gave None."""
        return f"{type(self).__name__} keeps {site.role.value} tensors exactly"

    def begin(self, step: int, statistics: Statistics) -> bool:
        """A forward pass begins: learn from what backward said since the last one.

        True asks for statistics of this pass's backward; they cost a look at every gradient.
        """
        return False

    def wants(self, step: int, statistics: Statistics) -> bool:
        """Whether `begin(step, …)` would ask for statistics, as far as that is known before.

        A pass that is compiled cannot be looked at: where this says yes, the next pass runs
        uncompiled, and is the one that `begin` is told of.
        """
        return False

    def attach(self, model: torch.nn.Module) -> None:  # noqa: B027  # most need not know
        """The session is this model's; a ValueError when the method cannot work for it."""

    def stop(self) -> None:  # noqa: B027  # most leave nothing on the model
        """The session is removed: nothing of the method stays on the model."""

    def peaked(self, peak: int) -> None:  # noqa: B027  # most do not ask
        """The most bytes that tensors held in the last pass, which `wants_peak` asked for."""

    def summary(self) -> list[str]:
        """What a report ends with."""
        return []

    def passed(self, raw: int, stored: int) -> None:  # noqa: B027  # most do not count
        """A forward pass is over: bytes that PyTorch would have kept, and that were kept."""

    def messages(self) -> list[str]:
        """What the user should know and was not told yet."""
        return []

    def metrics(self) -> dict[str, float]:
        """Numbers for `Session.metrics()`, where they are named."""
        return {}

    def watch(self, loss: float) -> None:
        """The loss of the last forward pass."""
        raise RuntimeError(
            "session.watch(loss) is for guarded sessions; ask for one with compress(…, guard=True)"
        )

    def state_dict(self) -> dict[str, Any]:
        """What was learned, beside the statistics, which the session keeps."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027  # nothing learned
        """Go on from a `state_dict`."""


class Method(ABC):
    """How precisely to store what: a frozen dataclass whose repr evaluates back to it."""

    @abstractmethod
    def start(self, optimizer: torch.optim.Optimizer | None) -> Policy:
        """The method at work, with nothing learned yet."""


class Stateless(Method, Policy):
    """A method that learns nothing: it is its own policy, and `codec` is all of it."""

    def start(self, optimizer: torch.optim.Optimizer | None) -> Policy:
        return self
