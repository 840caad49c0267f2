"""What an op's backward had in its hands, and what an error in its stored tensor would do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from actzip.control.op import Op

#: Elements computed with together, a 24th of a tensor within these bounds: backward is where
#: memory is shortest, and small parts cost more calls.
_LEAST, _MOST = 1 << 14, 1 << 18


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
    times: float = 1.0  #: so many times as many samples has the whole of which these are some

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


#: Formulas that treat each sample of x by itself, and what the op saves for each sample beside it.
_BY_SAMPLE: dict[Formula, tuple[str, ...]] = {}


def by_sample(*saved: str) -> Callable[[Formula], Formula]:
    """Enrols a formula whose w of a sample depends on no other sample, and whose worst case adds
    up over samples."""

    def enrol(formula: Formula) -> Formula:
        _BY_SAMPLE[formula] = saved
        return formula

    return enrol


def of_samples(b: Backward) -> tuple[str, ...] | None:
    """What must be cut with x and the gradient, so that some samples can be looked at alone; None
    where that cannot be."""
    formula = b.op.errors.get(b.slot)
    names = None if formula is None else _BY_SAMPLE.get(formula)
    if names is None or b.x.dim() < 2 or b.outer.dim() < 2 or b.outer.shape[0] != b.x.shape[0]:
        return None
    if "dim" in b.saved and int(b.saved["dim"]) % 2**64 in (0, 2**64 - b.x.dim()):
        return None  # samples are what is mixed
    cut = [b.saved[name] for name in names]
    fits = all(isinstance(t, Tensor) and t.dim() and t.shape[0] == b.x.shape[0] for t in cut)
    return names if fits else None


def in_rows(b: Backward, size: tuple[int, ...]) -> Backward | None:
    """The same with x in another shape of as many rows of the last dimension; None where an op
    does not work on such rows."""
    names = of_samples(b)
    if names is None or max(len(size), b.x.dim()) > 3 or len(size) < 2 or size[-1] != b.x.shape[-1]:
        return None
    if b.outer.shape != b.x.shape or not b.outer.is_contiguous() or not b.x.is_contiguous():
        return None
    if "dim" in b.saved and int(b.saved["dim"]) % 2**64 not in (b.x.dim() - 1, 2**64 - 1):
        return None
    rows = math.prod(size[:-1])
    if any(b.saved[name].numel() != rows for name in names):
        return None
    cut = {name: b.saved[name].reshape(*size[:-1], 1) for name in names}
    saved = {**b.saved, **cut, "dim": -1} if "dim" in b.saved else {**b.saved, **cut}
    return replace(b, x=b.x.view(size), outer=b.outer.view(size), saved=saved)


def some(b: Backward, names: tuple[str, ...], first: int, last: int) -> Backward:
    """The same for the samples `first` to `last` - 1."""
    cut = {name: b.saved[name][first:last] for name in names}
    x = b.x[first:last]
    times = b.x.shape[0] / max(1, x.shape[0])
    return replace(b, x=x, outer=b.outer[first:last], saved={**b.saved, **cut}, times=times)


def chunk(elements: int) -> int:
    """How many elements of so many are computed with together."""
    return max(_LEAST, min(_MOST, elements // 24))


def chunks(rows: int, elements: int, limit: int | None = None) -> Iterator[tuple[int, int]]:
    """First and last (not included) of some rows of a tensor with so many elements."""
    limit = chunk(elements) if limit is None else limit
    step = max(1, limit * rows // max(1, elements))
    return ((first, min(first + step, rows)) for first in range(0, rows, step))


def wide(t: Tensor) -> torch.dtype:
    """The dtype to add squares in."""
    return torch.float64 if t.dtype is torch.float64 else torch.float32
