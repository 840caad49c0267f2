"""Verified: Bounded that decodes at once what it has encoded, and looks at every element."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from actzip.codecs.bounded import Bounded
from actzip.codecs.payload import Allocate, Payload, fresh


class BrokenBoundError(AssertionError):
    """A stored tensor is off by more than it was promised; not an error that may be passed over."""


@dataclass(frozen=True)
class Verified(Bounded):
    """The bytes of Bounded; raises BrokenBoundError with the site's name if the promise fails.

    The promise: |x - decode(encode(x))| <= error for every finite element, all others bit for bit,
    and with dither decoded != 0 exactly where x != 0.
    """

    site: str = ""

    def encode(self, x: Tensor, *, seed: int = 0, allocate: Allocate = fresh) -> Payload:
        payload = super().encode(x, seed=seed, allocate=allocate)
        with torch.no_grad():
            self._verify(x.detach(), self.decode(payload))
        return payload

    def _verify(self, x: Tensor, decoded: Tensor) -> None:
        off = (x.double() - decoded.double()).abs()
        same = (x == decoded) | (x.isnan() & decoded.isnan())
        wrong = ~((off <= self.max_error(x)) | same)
        if self.rounding == "dither":
            wrong |= (x == 0) != (decoded == 0)
        if bool(wrong.any()):
            at = tuple(int(i) for i in wrong.nonzero()[0])
            raise BrokenBoundError(
                f"{self.site or 'a tensor'}: {int(wrong.sum())} of {x.numel()} elements break the "
                f"bound; the first, at {at}, was {float(x[at])!r}, came back as "
                f"{float(decoded[at])!r}, and may be off by {float(self.max_error(x)[at])!r}"
            )
