"""What each op that reads a stored tensor said by itself, and whose gradients it gives.

`Statistics` adds up all ops that read one tensor. A bound for each layer needs them one by one: a
layer is an op's slot, named as in the report, and its site is the one its tensor is stored for.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from typing import Any

from torch import Tensor

from actzip.control.op import Kind
from actzip.control.reading import Reading


@dataclass(frozen=True)
class Route:
    """One op that stores something, and where the gradient that it gives goes on to."""

    slots: tuple[str, ...]  #: its layers: an op's slots, as in the report
    parents: tuple[str, ...]  #: the ops that get the gradient next, by their first slot
    ends: int  #: parameters that get it as it is: a position embedding
    biases: int  #: parameters that get the gradient at the op's output as it is


class Layers:
    """The last readings of every layer, in the order of the forward pass."""

    def __init__(self, history: int = 1):
        self.history = history
        self._readings: dict[str, deque[tuple[int, Reading]]] = {}
        self._kinds: dict[str, Kind] = {}
        self._sites: dict[str, str] = {}
        self._trails: dict[tuple[str, str], deque[tuple[int, Tensor]]] = {}
        self._owners: dict[str, list[weakref.ref[Tensor]]] = {}
        self._routes: dict[str, Route] = {}

    def __iter__(self) -> Iterator[str]:
        """The layers that were read."""
        return (layer for layer, rows in self._readings.items() if rows)

    @property
    def routes(self) -> dict[str, Route]:
        """How ops pass gradients on, by their first layer, in the order of the last forward."""
        return dict(self._routes)

    def expect(self, layer: str, kind: Kind, parameters: Iterable[Tensor]) -> None:
        """A forward pass has stored a tensor that this layer will read; it gives these parameters
        their gradients."""
        self._kinds[layer] = kind
        self._readings.setdefault(layer, deque(maxlen=self.history))
        self._owners[layer] = [weakref.ref(p) for p in parameters]

    def connect(self, route: Route) -> None:
        """How an op of this forward pass passes its gradients on; its parents came before it."""
        self._routes.pop(route.slots[0], None)  # to the end: another graph may have another order
        self._routes[route.slots[0]] = route

    def add(self, step: int, layer: str, site: str, reading: Reading) -> None:
        """What the layer's backward said in the pass `step` of the tensor stored for `site`."""
        _add(self._readings.setdefault(layer, deque(maxlen=self.history)), step, reading)
        self._sites[layer] = site

    def add_trail(self, step: int, site: str, layer: str, weight: Tensor) -> None:
        """Errors at `site` leave a trail in the gradients of `layer` (batchnorm_trail.py)."""
        rows = self._trails.setdefault((site, layer), deque(maxlen=self.history))
        _add(rows, step, weight)

    def kind(self, layer: str) -> Kind:
        """What sort of op the layer is."""
        return self._kinds.get(layer, Kind.OTHER)

    def site(self, layer: str) -> str:
        """The site whose tensor the layer reads."""
        return self._sites[layer]

    def readings(self, layer: str) -> list[tuple[int, Reading]]:
        """The last ones with their steps, the newest at the end."""
        return list(self._readings.get(layer, ()))

    def trails(self) -> dict[tuple[str, str], list[tuple[int, Tensor]]]:
        """The weights of trails from sites to layers, with their steps."""
        return {key: list(rows) for key, rows in self._trails.items()}

    def parameters(self, layer: str) -> list[Tensor]:
        """Whose gradients the layer gives, as far as they are alive; not part of the state."""
        held = (ref() for ref in self._owners.get(layer, ()))
        return [p for p in held if p is not None]

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        readings = {
            layer: [(step, {f.name: getattr(r, f.name) for f in fields(r)}) for step, r in rows]
            for layer, rows in self._readings.items()
        }
        trails = {key: list(rows) for key, rows in self._trails.items()}
        routes = {name: astuple(route) for name, route in self._routes.items()}
        state = {"readings": readings, "trails": trails, "routes": routes}
        kinds = {layer: kind.value for layer, kind in self._kinds.items()}
        return {**state, "sites": dict(self._sites), "kinds": kinds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._readings = {
            layer: deque(((step, Reading(**r)) for step, r in rows), maxlen=self.history)
            for layer, rows in state["readings"].items()
        }
        self._trails = {
            key: deque(rows, maxlen=self.history) for key, rows in state["trails"].items()
        }
        self._sites = dict(state["sites"])
        self._kinds = {layer: Kind(value) for layer, value in state.get("kinds", {}).items()}
        self._routes = {name: Route(*route) for name, route in state["routes"].items()}


def _add(rows: deque[tuple[int, Any]], step: int, value: Any) -> None:
    """The newest of each pass; what comes late from an older one does not count."""
    if rows and rows[-1][0] == step:
        rows[-1] = (step, value)
    elif not rows or rows[-1][0] < step:
        rows.append((step, value))
