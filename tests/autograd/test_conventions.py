"""A mask is used only after this torch's backward was seen to agree with it."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import actzip
from actzip.autograd.slots import conventions, lookup, masks
from actzip.autograd.slots.conventions import OPS, agreeing
from actzip.autograd.slots.rule import Mask, row

INF, NAN = math.inf, math.nan
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
MASKS = [
    (node, slot, rule.mask)
    for node, each in lookup.TABLE.items()
    for slot, rule in each.slots.items()
    if rule.mask is not None
]


@pytest.fixture
def _untried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conventions, "_FOUND", {})


def chain(mask: Mask | None) -> Iterator[Mask]:
    while mask is not None:
        yield mask
        mask = mask.other


@pytest.mark.parametrize(("node", "slot", "mask"), MASKS, ids=lambda v: v if type(v) is str else "")
def test_each_mask_of_the_table_has_a_variant_that_agrees_with_this_torch(
    node: str, slot: str, mask: Mask
) -> None:
    for dtype in DTYPES:
        made = OPS[node][0](torch.ones(3, dtype=dtype, requires_grad=True)).grad_fn
        assert type(made).__name__ == node
        assert agreeing(made, slot, mask, torch.ones(3, dtype=dtype)) in chain(mask)


@pytest.mark.usefixtures("_untried")
@pytest.mark.parametrize("name", ["CLAMP", "CLAMP_MIN", "CLAMP_MAX"])
def test_the_probe_tells_open_bounds_from_closed_ones(name: str) -> None:
    mask: Mask = getattr(masks, name)
    x = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    bounds = {"CLAMP": (1.0, 3.0), "CLAMP_MIN": (1.0,), "CLAMP_MAX": (1.0,)}[name]
    out = getattr(torch, name.lower())(x, *bounds)
    closed = bool(torch.autograd.grad(out.sum(), x, retain_graph=True)[0][1])
    first, second = chain(mask)
    right, wrong = (first, second) if closed else (second, first)
    for tried in (replace(wrong, other=right), replace(right, other=wrong)):
        conventions._FOUND.clear()
        found = agreeing(out.grad_fn, "self", tried, x)
        assert found is not None
        assert found.test is right.test
    conventions._FOUND.clear()
    assert agreeing(out.grad_fn, "self", replace(wrong, other=None), x) is None


@pytest.mark.usefixtures("_untried")
@pytest.mark.parametrize(
    "wrong",
    [
        Mask(lambda node, x: x >= 0, lambda node, x: (-1.0, 1.0)),  # at zero
        Mask(lambda node, x: ~(x <= 0), lambda node, x: (-1.0, 1.0)),  # at NaN
        Mask(lambda node, x: x > 0, lambda node, x: (-1.0, 0.0)),  # a level on the other side
        Mask(lambda node, x: x / 0, lambda node, x: (-1.0, 1.0)),  # raises
    ],
    ids=["zero", "nan", "level", "raises"],
)
def test_a_rule_that_does_not_agree_is_not_used_and_the_report_says_so(
    wrong: Mask, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lookup.TABLE
    monkeypatch.setitem(
        table, "LeakyReluBackward0", row(table["LeakyReluBackward0"].op, self=wrong)
    )
    x = torch.randn(64, 64)
    x[0, :3] = torch.tensor([0.0, NAN, INF])
    x.requires_grad_()
    warned = pytest.warns(actzip.ActzipWarning, match="no rule that actzip knows")
    with warned, actzip.compress() as session:
        out = F.leaky_relu(x)
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], plain(F.leaky_relu, x))
    (site,) = session.stats().sites
    assert site.stored_bytes == site.raw_bytes
    assert site.reason == (
        f"what LeakyReluBackward0 of torch {torch.__version__} does with torch.float32 at bounds, "
        "zeros, inf or NaN is no rule that actzip knows: kept exactly"
    )
    assert site.reason in session.explain("LeakyRelu")


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def _refuse(_: object) -> Tensor:
    raise AssertionError("a hook of the user was called")


AROUND: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "nothing": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "saved tensor hooks": lambda: torch.autograd.graph.saved_tensors_hooks(_refuse, _refuse),
    "a default device": lambda: torch.device("meta"),
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
}


@pytest.mark.usefixtures("_untried")
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("around", AROUND)
def test_what_is_switched_on_around_the_probe_does_not_matter(around: str) -> None:
    x = torch.randn(8, requires_grad=True)
    nodes = {name: OPS[name][0](x).grad_fn for name, _, _ in MASKS}
    before = torch.get_rng_state(), torch.is_grad_enabled()
    with AROUND[around]():
        found = {name: agreeing(nodes[name], slot, mask, x) for name, slot, mask in MASKS}
    assert all(mask is not None for mask in found.values())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.is_grad_enabled() is before[1]


@pytest.mark.usefixtures("_untried")
def test_the_probe_is_not_seen_by_modes_nor_by_the_numbers_of_nodes() -> None:
    x = torch.randn(8, requires_grad=True)
    node: Any = x.clamp(0, 1).grad_fn
    with _Counting() as mode:
        assert agreeing(node, "self", masks.CLAMP, torch.ones(8)) is not None
    assert mode.calls == 1  # our own torch.ones
    following: Any = x.clamp(0, 1).grad_fn
    assert following._sequence_nr() == node._sequence_nr() + 1


@pytest.mark.usefixtures("_untried")
def test_the_probe_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setitem(OPS, "ReluBackward0", [lambda x: calls.append(1) or x.relu()])
    x = torch.randn(64, 64, requires_grad=True)
    for _ in range(3):
        with actzip.compress():
            x.relu().relu()
    assert len(calls) == 3  # one per layout of the values


@pytest.mark.usefixtures("_untried")
def test_threads_that_ask_at_once_get_one_answer() -> None:
    x = torch.randn(8, requires_grad=True)
    node = x.clamp(0, 1).grad_fn
    found: list[Mask | None] = []
    threads = [
        threading.Thread(target=lambda: found.append(agreeing(node, "self", masks.CLAMP, x)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    assert found[0] is not None


def plain(op: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return torch.autograd.grad(op(x).sum(), x)[0]


def largest(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).max


#: low and high, as shares of the largest number of the dtype
ENDS = [
    (0.9, INF),
    (-INF, -0.9),
    (1.0, INF),
    (0.9, 1.0),
    (-1.0, -0.9),
    (-1.0, 1.0),
    (0.5, 0.5),
    (-INF, INF),
    (INF, INF),
    (0.0, 1.0),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("low", "high"), ENDS)
def test_huge_bounds_give_the_gradient_of_plain_pytorch(
    low: float, high: float, dtype: torch.dtype
) -> None:
    low, high = (largest(dtype) * v for v in (low, high))
    near = torch.tensor([low, high, 0.0], dtype=torch.float64).to(dtype)
    up, down = (near.nextafter(near.new_tensor(v)) for v in (INF, -INF))
    middle = near.new_tensor([largest(dtype) * s for s in (0.95, -0.95, 0.2, -0.2)])
    values = torch.cat([near, up, down, middle, near.new_tensor([INF, -INF])])
    ops = [
        lambda x: x.clamp(low, high),
        lambda x: x.clamp(min=low),
        lambda x: x.clamp(max=high),
        lambda x: x.clamp_min(low),
        lambda x: x.clamp_max(high),
        lambda x: F.threshold(x, low, 0.0),
        *([lambda x: F.hardtanh(x, low, high)] if low < high else []),
        *([lambda x: F.hardshrink(x, high)] if high > 0 else []),
        *([lambda x: F.softshrink(x, high)] if 0 < high < INF else []),
    ]
    # apart: inf - inf is NaN, and some masks stand aside for what might hold one
    signs = values[values >= 0].repeat(9), values[values <= 0].repeat(9)
    for op, x in itertools.product(ops, [v.requires_grad_() for v in signs]):
        with actzip.compress(min_bytes=0) as session:
            out = op(x)
        assert session.stats().compressed == 1, session.explain()
        assert torch.equal(torch.autograd.grad(out.sum(), x)[0], plain(op, x))


def test_hardtanh_from_3e38_up() -> None:
    x = torch.tensor([1.0, 3e38, 3.2e38, INF] * 20, requires_grad=True)
    with actzip.compress(min_bytes=0):
        out = F.hardtanh(x, 3e38, INF)
    assert torch.autograd.grad(out.sum(), x)[0].view(20, 4).mean(0).tolist() == [0.0, 0.0, 1.0, 0.0]
