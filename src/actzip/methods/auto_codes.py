"""auto's codes: what each tensor is stored in, and how many bits that takes at other steps."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from actzip.codecs import Bounded, Group, unsettled
from actzip.codecs.base import Codec
from actzip.control.op import NORMS, Kind, channel_dim
from actzip.control.rate_curves import LARGE, Coder, Curve, coder, curve_of
from actzip.methods.actnn import group_at
from actzip.methods.base import Role, Site

Floats = NDArray[np.float64]
Origins = tuple[float, ...]

START = 4  #: bits of a group code before backward has told anything
UNTOLD = 8  #: bits where a formula could not be used: an attention with dropout, say
_COARSEST = 5.0  #: log2(step/size): beyond, noise grows and hardly a byte is saved
#: The same of curved ops: their formulas are of first order, and a bias of order step² does not
#: average out. On a decoder with steps up to this a hundredth of the error was a bias.
_CURVED = 1.0
_LONGER = 1.1  #: times the elements of the last look: codes get coarser to stay within a budget
#: Bits of a sign-exact code; with more it would be kept as it is. One that had more is not used
#: again until it has clearly less: to and fro, every other pass would take other bytes than said.
_MOST, _AGAIN = 6.0, 5.0


_Like = tuple[int, int, bool, Origins | None]


class _Made(NamedTuple):
    """A code, and what it was made for: the very arrays of the last look."""

    errors: Floats
    curve: Curve | None
    like: _Like  #: number of channels, their dimension, whether a ReLU made it, origins
    code: Coder


class Codes:
    """The steps of all sites, and their curves as of the last look."""

    def __init__(self) -> None:
        self.curves: dict[str, Curve] = {}
        self.errors: dict[str, Floats] = {}  #: half a step, of the tensor or of each channel
        self.rectified: set[str] = set()  #: BatchNorms' inputs whose results a ReLU cuts off
        self.fine: set[str] = set()  #: those of them that need more bits than a sign-exact code has
        self._made: dict[str, _Made] = {}

    def start(self, site: Site, tensor: Tensor, bits: int = START) -> Codec:
        """A code that needs no step."""
        return Group(bits, group_at(site, tensor, 256), zero=site.relu)

    def code(self, site: Site, tensor: Tensor, errors: Floats, origins: Origins | None) -> Codec:
        """The code with these errors; the same object until they change.

        Where the host would have to wait for counts of codes, it has a table that was counted when
        these errors were first used.
        """
        if not self._tells_sides(site, tensor, origins) or self._is_fine(site.name, errors):
            origins = None
        dim, curve = _channels(site, tensor), self.curves.get(site.name)
        late = not unsettled.reading_is_free(tensor.device)
        if late and tensor.numel() < LARGE:
            return _packed(tensor, errors, dim, site.relu)
        made = self._made.get(site.name)
        like = (tensor.shape[dim] if tensor.dim() else 1, dim, site.relu, origins)
        same = made is not None and made.errors is errors and made.curve is curve
        if made is None or not same or made.like != like:
            code = self._coder(like, errors, curve if tensor.dim() > 1 else None)
            if late and made is not None and same and _alike(made.like, like):
                code = dataclasses.replace(code, table=made.code.table)
            elif late:  # a look has just been: the host may read
                code = code.tabled(tensor)
            made = self._made[site.name] = _Made(errors, curve, like, code)
        return made.code

    def _coder(self, like: _Like, errors: Floats, curve: Curve | None) -> Coder:
        count, dim, relu, origins = like
        if len(errors) > 1 and (curve is None or len(errors) != count):
            errors = errors.min(keepdims=True)
        error = tuple(errors.tolist()) if len(errors) > 1 else float(errors[0])
        fits = curve is not None and len(curve.centre) == count
        centre = tuple(curve.centre) if curve is not None and fits else ()
        return coder(error, dim, relu, origins, centre)

    def _tells_sides(self, site: Site, tensor: Tensor, origins: Origins | None) -> bool:
        fits = tensor.dim() > 1 and tensor.numel() >= LARGE and not site.relu
        return fits and origins is not None and tensor.shape[1] == len(origins) > 1

    def _is_fine(self, name: str, errors: Floats) -> bool:
        curve = self.curves.get(name)
        if curve is None:
            return False
        bits = 8 * curve.bytes_at(2 * step_of(errors, curve)) / max(1, curve.elements)
        if bits > _MOST:
            self.fine.add(name)
        elif bits < _AGAIN:
            self.fine.discard(name)
        return name in self.fine

    def coarser(self, name: str, tensor: Tensor) -> Floats | None:
        """Errors that keep a tensor which is larger than those looked at within its bytes; None
        when it is not."""
        curve, errors = self.curves.get(name), self.errors[name]
        if curve is None or tensor.numel() <= _LONGER * curve.elements:
            return None
        step = 2 * step_of(errors, curve)
        found: Floats = errors * (curve.coarser(step, tensor.numel()) / step)
        return found

    def look(self, site: Site, tensor: Tensor, origins: Origins | None) -> float:
        """Measure the bits that the tensor takes at each step; gives back the bytes it takes now,
        by the curve."""
        by_channel = site.op.kind is Kind.BATCH_NORM and tensor.dim() > 1 and not site.relu
        before, errors = self.curves.get(site.name), self.errors.get(site.name)
        coarsest = _CURVED if _is_curved(site) else _COARSEST
        direction = None if before is None else before.direction
        sides = origins if self._tells_sides(site, tensor, origins) else None
        dim = _channels(site, tensor)
        curve = curve_of(tensor, coarsest, dim, direction, site.relu, sides, by_channel)
        self.curves[site.name] = curve
        if errors is None:
            return tensor.numel() * (START / 8 + 4 / group_at(site, tensor, 256))
        return curve.bytes_at(2 * step_of(errors, curve))

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {
            "curves": {name: dict(vars(curve)) for name, curve in self.curves.items()},
            "errors": {name: e.tolist() for name, e in self.errors.items()},
            "rectified": sorted(self.rectified),
            "fine": sorted(self.fine),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.curves = {name: Curve(**curve) for name, curve in state["curves"].items()}
        self.errors = {name: np.array(e) for name, e in state["errors"].items()}
        self.rectified, self.fine = set(state["rectified"]), set(state["fine"])


def _alike(one: _Like, other: _Like) -> bool:
    """Whether codes for both occur about as often: origins move from pass to pass."""
    return one[:3] == other[:3] and (one[3] is None) == (other[3] is None)


def _packed(tensor: Tensor, errors: Floats, dim: int, relu: bool) -> Bounded:
    """A code of a small tensor whose size no host has to read."""
    if relu or len(errors) == 1 or tensor.dim() < 2 or tensor.shape[dim] != len(errors):
        return Bounded(float(errors.min()))
    return Bounded(tuple(errors.tolist()), channel_dim=dim)


def step_of(errors: Floats, curve: Curve) -> float:
    """Half of t, of which channel c has t·direction[c]."""
    same = len(errors) == len(curve.direction)
    return float(np.mean(errors / np.array(curve.direction if same else [1.0])))


def _channels(site: Site, tensor: Tensor) -> int:
    """The dimension of its channels; an attention's are those of each head."""
    return -1 if site.op.kind is Kind.ATTENTION else channel_dim(site.op, tensor.dim())


def _is_curved(site: Site) -> bool:
    return site.role is Role.NONLINEAR and site.op.kind not in NORMS
