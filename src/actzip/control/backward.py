"""What an op's backward had in its hands, and what an error in its stored tensor would do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from actzip.control.op import Op

_CHUNK = 1 << 18  #: elements computed with together: backward is where memory is shortest


class PartialBackward(Exception):
    """A gradient was not asked for: what an error does to it is not seen, and the next backward
    may ask for it. `autograd.grad(energy, positions)` is one."""


@dataclass(frozen=True)
class Backward:
    """What one op's backward had in its hands; read inside its hook and then let go."""

    node: str
    op: Op
    slot: str
    x: Tensor  #: the stored tensor as decoded, in the shape the op reads
    outer: Tensor  #: the gradient that came, at the op's first output
    gave: tuple[Tensor | None, ...]  #: the gradients it gave, one per input
    leaves: tuple[bool, ...]  #: which of those inputs are parameters
    saved: Mapping[str, Any]  #: the node's other saved tensors and options
    later: tuple[Tensor | None, ...] = ()  #: the gradients that came at its other outputs
    wanted: tuple[bool, ...] = ()  #: which inputs are to have gradients, in this pass or another

    def signal(self, leaf: bool) -> float:
        """‖g‖² of the gradients given to parameters, or to everything else."""
        return sum(energy_of(g) for g, is_leaf in self._given() if is_leaf == leaf)

    def count(self) -> int:
        """How many numbers the parameters' gradients have."""
        return sum(g.numel() for g, is_leaf in self._given() if is_leaf)

    def largest(self) -> int:
        """The same for the largest of them: the weight, not the bias."""
        return max((g.numel() for g, is_leaf in self._given() if is_leaf), default=0)

    def mean_peak_grad(self) -> Tensor:
        """The mean over samples of max |gY|."""
        outer = self.outer if self.outer.dim() > 1 else self.outer.view(-1, 1)
        rest = list(range(1, outer.dim()))  # not flattened: that would copy a channels_last one
        peaks = torch.maximum(outer.amax(rest), -outer.amin(rest)).to(wide(outer))
        return peaks.mean()

    def gives(self, target: int) -> bool:
        """Whether input number `target` was given a gradient: only then can it have an error.

        A PartialBackward where it has a gradient that was not asked for this time.
        """
        given = target < len(self.gave) and self.gave[target] is not None
        if not given and target < len(self.wanted) and self.wanted[target]:
            raise PartialBackward
        return given

    def passes_on(self) -> bool:
        """Whether it gave a gradient to anything but leaves."""
        return any(not is_leaf for _, is_leaf in self._given())

    def _given(self) -> list[tuple[Tensor, bool]]:
        pairs = zip(self.gave, self.leaves, strict=True)
        return [(g, is_leaf) for g, is_leaf in pairs if g is not None]


@dataclass(frozen=True)
class ErrorWeights:
    """w for the gradients of parameters and for those that travel on; both broadcast to x.

    `worst_…`: for |e| <= 1 everywhere, ‖Δg‖² is at most the sum of these over the channels. None
    takes the bound that every linear map has, ‖J‖²·‖e‖².
    """

    parameter: Tensor | None = None
    input: Tensor | None = None
    worst_parameter: Tensor | None = None
    worst_input: Tensor | None = None


Formula = Callable[[Backward], ErrorWeights]


def energy_of(t: Tensor) -> float:
    """‖t‖²"""
    return float(torch.linalg.vector_norm(t, dtype=wide(t))) ** 2


def chunks(rows: int, elements: int, limit: int = _CHUNK) -> Iterator[tuple[int, int]]:
    """First and last (not included) of some rows of a tensor with so many elements."""
    step = max(1, limit * rows // max(1, elements))
    return ((first, min(first + step, rows)) for first in range(0, rows, step))


def wide(t: Tensor) -> torch.dtype:
    """The dtype to add squares in."""
    return torch.float64 if t.dtype is torch.float64 else torch.float32
