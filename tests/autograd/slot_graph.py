"""Runs a case of slot_cases.py and puts other values into one of its saved slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from slot_cases import Case
from torch import Tensor

from actzip.autograd import slots
from actzip.autograd.slots import Rule

#: Every bound that a case uses, and the values that comparisons treat in a way of their own.
EDGES = (0.0, -0.0, 0.3, -0.3, 0.5, 0.7, 1.0, -1.0, 3.0, -3.0, 6.0, 60000.0, 65504.0)
STRANGE = (math.inf, -math.inf, 1e-8, -1e-8)


@dataclass
class Slot:
    """One saved tensor of a live graph."""

    node: Any
    slot: str
    saved: Any
    value: Tensor

    @property
    def rule(self) -> Rule | None:
        found = slots.rule(self.node.name(), self.slot)
        return None if found is None else found.at(self.node)

    def swap(self, value: Callable[[Tensor], Tensor]) -> None:
        """From now on backward reads value(saved tensor) here."""
        self.saved.register_hooks(lambda t: t, value)


class Run:
    """A forward pass of a case: the same for the same arguments."""

    def __init__(self, case: Case, dtype: torch.dtype, fill: str = "random", last: bool = False):
        self.inputs = [
            leaf(shape, dtype, "random" if case.positive else fill, case.positive, seed, last)
            for seed, shape in enumerate(case.shapes)
        ]
        with torch.random.fork_rng():
            torch.manual_seed(3)
            out = case.run(*self.inputs)
        outs = out if isinstance(out, list | tuple) else (out,)
        self.outputs = [t for t in outs if t.requires_grad]
        self.leaves = [n.variable for n in self.nodes() if hasattr(n, "variable")]

    def nodes(self) -> list[Any]:
        found: dict[Any, None] = {}
        todo = [t.grad_fn for t in self.outputs]
        while todo:
            node = todo.pop()
            if node is not None and node not in found:
                found[node] = None
                todo += [parent for parent, _ in node.next_functions]
        return list(found)

    def slots(self) -> Iterator[Slot]:
        """The saved tensors, in an order that only depends on the case."""
        for node in self.nodes():
            for name in slots.slots_of(node):
                saved, value = getattr(node, f"_raw_saved_{name}"), getattr(node, f"_saved_{name}")
                if isinstance(saved, tuple):
                    for i, (s, v) in enumerate(zip(saved, value, strict=True)):
                        if v is not None:
                            yield Slot(node, f"{name}[{i}]", s, v)
                elif value is not None:
                    yield Slot(node, name, saved, value)

    def gradients(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(11)
        seeds = [
            torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype)
            for t in self.outputs
        ]
        grads = torch.autograd.grad(
            self.outputs, self.leaves, seeds, retain_graph=True, allow_unused=True
        )
        return [g for g in grads if g is not None]


def leaf(
    shape: tuple[int, ...], dtype: torch.dtype, fill: str, positive: bool, seed: int, last: bool
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    if positive:
        x = torch.rand(shape, generator=generator, dtype=torch.float64) / 2 + 0.25
    x = x.to(dtype)
    if fill != "random":
        _scatter(x, edges(dtype, nan=fill == "nan"), generator)
    if last and len(shape) == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    return x.requires_grad_()


def edges(dtype: torch.dtype, nan: bool) -> Tensor:
    """The edges as the dtype rounds them, their two neighbours, and the strange values."""
    at = torch.tensor(EDGES, dtype=torch.float64).to(dtype)
    up, down = (torch.full_like(at, v) for v in (math.inf, -math.inf))
    around = [at, torch.nextafter(at, up), torch.nextafter(at, down)]
    strange = torch.tensor(STRANGE + ((math.nan,) if nan else ()), dtype=torch.float64)
    return torch.cat([*around, strange.to(dtype)])


def _scatter(x: Tensor, values: Tensor, generator: torch.Generator) -> None:
    """A third of x becomes edges, at places that meet every lane of a vector and its tail."""
    flat = x.view(-1)
    places = torch.rand(flat.shape, generator=generator) < 1 / 3
    picks = torch.randint(len(values), flat.shape, generator=generator)
    flat[places] = values[picks][places]


def same_bits(a: list[Tensor], b: list[Tensor]) -> bool:
    as_int = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return len(a) == len(b) and all(
        torch.equal(
            x.contiguous().view(as_int[x.itemsize]), y.contiguous().view(as_int[y.itemsize])
        )
        and x.stride() == y.stride()
        for x, y in zip(a, b, strict=True)
    )
