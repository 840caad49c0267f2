"""The watcher meets every node once, however the op was called."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import actzip

W = torch.randn(64, 64)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return g * 2


def _inplace(w: Tensor) -> Tensor:
    return (w * 1).relu_()


def _assign(w: Tensor) -> Tensor:
    h = w * 1
    h[:32] = F.relu(w[:32])
    return h.sin()


def _unheard(w: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        hidden = torch.sigmoid(w)
    seen = w.exp()
    return hidden * seen


CALLS: dict[str, tuple[Callable[[Tensor], Tensor], set[str]]] = {
    "functional": (lambda w: F.relu(w), {"ReluBackward0.result"}),
    "torch function": (lambda w: torch.sigmoid(w), {"SigmoidBackward0.result"}),
    "method": (lambda w: w.sin(), {"SinBackward0.self"}),
    "operator": (lambda w: w @ W, {"MmBackward0.mat2"}),
    "right operator": (lambda w: 2 ** (w * 1), {"PowBackward2.result"}),
    "in place": (_inplace, {"ReluBackward0.result"}),
    "composite": (
        lambda w: F.gelu(F.layer_norm(w * 1, (64,))),
        {"GeluBackward0.self", "NativeLayerNormBackward0.input"},
    ),
    "loss of several nodes": (
        lambda w: F.cross_entropy(w * 1, torch.zeros(64, dtype=torch.long)),
        {"LogSoftmaxBackward0.result"},
    ),
    "custom function": (lambda w: Double.apply(w * 1) + 1, {"DoubleBackward.tensors[0]"}),
    "assignment": (_assign, {"SinBackward0.self", "ReluBackward0.result"}),
    "tuple output": (
        lambda w: (w * 1).max(dim=1).values.sum() + w.exp().sum(),
        {"ExpBackward0.result"},
    ),
    "unheard of until it is used": (
        _unheard,
        {"SigmoidBackward0.result", "ExpBackward0.result", "MulBackward0.self"},
    ),
    "out of a list": (lambda w: torch.cat([w.tan(), w.sin()]).cos(), {"TanBackward0.result"}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_the_saved_tensors_of_each_kind_of_call_are_seen(name: str) -> None:
    call, expected = CALLS[name]
    w = torch.randn(64, 64, requires_grad=True)
    with actzip.compress() as session:
        call(w)
    seen = {f"{row.node}.{row.slot}" for row in session.stats().sites}
    assert expected <= seen


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_a_node_is_counted_once_however_often_its_output_is_used() -> None:
    w = torch.randn(64, 64, requires_grad=True)
    with actzip.compress() as session:
        h = w.sin()
        for _ in range(5):
            h + 1
            h.view(-1)
    assert [row.node for row in session.stats().sites] == ["SinBackward0"]


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_nodes_made_before_the_block_are_not_touched() -> None:
    w = torch.randn(64, 64, requires_grad=True)
    old = F.relu(w)
    with actzip.compress() as session:
        old.exp()
    assert [row.node for row in session.stats().sites] == ["ExpBackward0"]
    assert old.grad_fn._raw_saved_result.unpack_hook is None  # type: ignore[union-attr]


def test_another_mode_beside_the_watcher_still_works() -> None:
    from torch.overrides import TorchFunctionMode

    class Counting(TorchFunctionMode):
        count = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.count += 1
            return func(*args, **(kwargs or {}))

    w = torch.randn(64, 64, requires_grad=True)
    with Counting() as counting, actzip.compress() as session:
        F.relu(w).sum().backward()
    plain = counting.count
    assert session.stats().compressed == 1
    assert plain < 20, "encoding must not run through the user's modes"
