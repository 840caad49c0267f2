"""Fixed: the same codec at every site of a role."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from actzip.codecs import Group
from actzip.codecs.base import Codec
from actzip.methods.base import Role, Site, Stateless

_LINEAR = Group(bits=2, zero=True)
_NONLINEAR = Group(bits=4)


@dataclass(frozen=True)
class Fixed(Stateless):
    """One codec for what enters the gradient linearly, one for what enters it through a curve.

    No statistics, no adaptation: the baseline that adaptive methods have to beat.
    `None` leaves the tensors of that role as they are.
    """

    linear: Codec | None = _LINEAR
    nonlinear: Codec | None = _NONLINEAR

    def __post_init__(self) -> None:
        for name in ("linear", "nonlinear"):
            codec = getattr(self, name)
            if codec is not None and not isinstance(codec, Codec):
                raise ValueError(
                    f"Fixed({name}=…) takes a codec such as actzip.codecs.Group(bits=2) or None, "
                    f"got {codec!r}"
                )

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        return self.linear if site.role is Role.LINEAR else self.nonlinear
