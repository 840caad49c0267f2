"""PyTorch's own database of ops and modules: samples, and their gradients with and without us."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import actzip
from actzip.autograd.slots.lookup import TABLE

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch's own tests import what it has deprecated
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db

Gradients = list[Tensor | None]

OPS = {
    op.formatted_name: op
    for op in op_db
    if op.supports_autograd and torch.float32 in op.supported_dtypes("cpu")
}
MODULES = {info.name: info for info in module_db}

Version = tuple[int, ...]
#: of the torch that runs, such as (2, 13)
TORCH: Version = tuple(int(part) for part in torch.__version__.split(".")[:2])


def unknown_nodes(version: Version) -> tuple[dict[str, str], bool]:
    """Nodes without a row in this torch, with the op that makes each; whether that is all of them.

    The list was made with the versions that it names; another one may have nodes that are new.
    """
    found: dict[str, str] = {}
    complete = False
    for line in Path(__file__).with_name("opinfo_unknown.txt").read_text().splitlines():
        if line.startswith("#:"):
            complete = version in [_version(text) for text in line[2:].split()]
        elif line and not line.startswith("#"):
            node, op, *versions = line.split()
            first, _, last = (versions or ["-"])[0].partition("-")
            if _version(first or "0") <= version <= _version(last or "99"):
                found[node] = op
    return found, complete


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def tensors(tree: object) -> list[Tensor]:
    return [t for t in tree_leaves(tree) if isinstance(t, Tensor)]


def is_in(name: str, dtype: torch.dtype) -> bool:
    """Whether the op has a backward of this dtype."""
    op = OPS[name]
    return dtype in op.supported_dtypes("cpu") and dtype in op.supported_backward_dtypes("cpu")


def samples(name: str, dtype: torch.dtype, most: int) -> Iterator[Any]:
    """The first samples of an op; some come from generators that refuse a dtype half way."""
    torch.manual_seed(0)
    return islice(OPS[name].sample_inputs("cpu", dtype, requires_grad=True), most)


class Run:
    """The gradients of one call, under a method or plainly, and the nodes of its graph."""

    def __init__(self, call: Callable[[], object], inputs: list[Tensor], method: Any = None):
        torch.manual_seed(0)
        session = nullcontext() if method is None else actzip.compress(method=method, min_bytes=0)
        with session:
            self.outputs = [t for t in tensors(call()) if t.requires_grad]
        torch.manual_seed(1)
        self.nodes = set(_nodes(self.outputs))
        seeds = [_random(t) for t in self.outputs]
        self.came = norm(seeds)
        wanted = [t for t in inputs if t.requires_grad]
        self.gradients: Gradients = list(
            torch.autograd.grad(self.outputs, wanted, seeds, allow_unused=True)
        )

    def unknown(self) -> set[str]:
        """Nodes that save a tensor and have no row; a node of Python is the user's own."""
        return {node.name() for node in self.nodes if node.name() not in TABLE and _saves(node)}


def of_sample(name: str, sample: Any, method: Any = None) -> Run:
    everything = (sample.input, sample.args, sample.kwargs)
    return Run(
        lambda: OPS[name](sample.input, *sample.args, **sample.kwargs), tensors(everything), method
    )


def plain_run(name: str, sample: Any) -> Run | None:
    """None of a sample that has no gradient, or of which PyTorch itself refuses to give one."""
    everything = tensors((sample.input, sample.args, sample.kwargs))
    if not any(t.requires_grad for t in everything):
        return None
    try:
        return of_sample(name, sample)
    except RuntimeError:
        return None


def _random(t: Tensor) -> Tensor:
    return torch.randn_like(t) if t.layout is torch.strided else t.detach().clone()


def _nodes(outputs: list[Tensor]) -> Iterator[Any]:
    seen: set[Any] = {None}
    stack: list[Any] = [t.grad_fn for t in outputs]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        stack += [parent for parent, _ in node.next_functions]


def _saves(node: Any) -> bool:
    return any(name.startswith("_raw_saved_") for name in dir(type(node)))


def dense(g: Tensor) -> Tensor:
    return g if g.layout is torch.strided else g.to_dense()


def norm(gradients: Gradients) -> float:
    """‖g‖ of all of them together."""
    return math.hypot(*(float(dense(g).abs().norm()) for g in gradients if g is not None))


def assert_same(plain: Run, ours: Run) -> None:
    """Bit for bit; a NaN equals any other."""
    for a, b in zip(plain.gradients, ours.gradients, strict=True):
        if a is None or b is None:
            assert a is b
            continue
        a, b = dense(a), dense(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))


def assert_finite(plain: Run, ours: Run) -> bool:
    """Gradients of the right shape, finite where plain's are; False if plain's are not."""
    for a, b in zip(plain.gradients, ours.gradients, strict=True):
        if a is None or b is None:
            assert a is b
            continue
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if not dense(a).isfinite().all():
            return False
        assert dense(b).isfinite().all()
    return True


def distance(plain: Run, ours: Run) -> float:
    """‖Δg‖ in parts of the gradient that was given or that came, whichever is larger.

    Gradients that cancel (of a saturated softmax, of a bias before one) are no measure.
    """
    pairs = zip(plain.gradients, ours.gradients, strict=True)
    off: Gradients = [dense(a) - dense(b) for a, b in pairs if a is not None and b is not None]
    return norm(off) / max(norm(plain.gradients), plain.came, 1e-30)
