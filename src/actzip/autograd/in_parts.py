"""A look at some samples at a time: what errors weigh is as large as the stored tensor itself."""

from __future__ import annotations

import functools
from dataclasses import replace

from torch import Tensor

from actzip.autograd.recipe import Reader
from actzip.control.backward import Backward, ErrorWeights, in_rows, of_samples, some
from actzip.control.batchnorm_trail import Uneven
from actzip.control.error import error_weights
from actzip.control.reading import InParts, part_of


def in_parts(b: Backward, reader: Reader) -> tuple[InParts, Tensor] | None:
    """What makes the weights of some samples of the stored tensor, and that tensor; None where
    samples of it cannot be looked at alone."""
    if reader.is_reshaped and reader.stored.place is not None:
        reshaped = in_rows(b, reader.stored.place.size)
        if reshaped is None:
            return None
        b = reshaped
    elif not reader.is_whole:
        return None
    names = of_samples(b)
    return None if names is None else (functools.partial(_of, b, names), b.x)


def _of(b: Backward, cut: tuple[str, ...], first: int, last: int) -> ErrorWeights:
    w = error_weights(some(b, cut, first, last))
    assert w is not None, "an op with a formula"
    return w


def times(w: ErrorWeights | InParts, x: Tensor, uneven: Uneven) -> InParts:
    """The weights of a code with errors of several sizes."""
    if isinstance(w, ErrorWeights):
        return lambda first, last: _scaled(_cut(w, x, first, last), uneven(first, last))
    return lambda first, last: _scaled(w(first, last), uneven(first, last))


def _cut(w: ErrorWeights, x: Tensor, first: int, last: int) -> ErrorWeights:
    """The weights of some samples; the worst case, which is of all, with the first."""
    own, travels = (part_of(t, x, first, last) for t in (w.parameter, w.input))
    if first:
        return ErrorWeights(own, travels)
    return ErrorWeights(own, travels, w.worst_parameter, w.worst_input)


def _scaled(w: ErrorWeights, uneven: Tensor) -> ErrorWeights:
    own, travels = (None if t is None else t * uneven for t in (w.parameter, w.input))
    return replace(w, parameter=own, input=travels)
