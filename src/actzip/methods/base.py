"""What a method is: for each saved tensor, the codec that stores it."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from actzip.codecs.base import Codec


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


STRENGTH = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True)
class Site:
    """One place in the model where autograd saves a tensor; the same name in every step."""

    module: str  #: path of the innermost module, "" for the model itself
    node: str  #: autograd node, e.g. "ConvolutionBackward0"
    slot: str  #: e.g. "input"
    occurrence: int  #: 0, 1, … when one module runs the same op several times
    role: Role

    @property
    def name(self) -> str:
        count = f"#{self.occurrence}" if self.occurrence else ""
        return f"{self.module}:{self.node}.{self.slot}{count}"


class Method(ABC):
    """A codec choice and a control rule. Concrete methods are frozen dataclasses."""

    @abstractmethod
    def codec(self, site: Site, tensor: torch.Tensor) -> Codec | None:
        """The codec for a tensor of this site in this step; None leaves the tensor alone."""
