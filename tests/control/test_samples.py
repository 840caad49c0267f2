"""Readings made some samples at a time are those that are made of the whole tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from actzip.autograd import slots
from actzip.control.backward import Backward, in_rows, of_samples, some
from actzip.control.error import error_weights
from actzip.control.reading import Reading, reading

X = torch.randn(12, 10, 16, generator=torch.Generator().manual_seed(1))
GY = torch.randn(12, 10, 16, generator=torch.Generator().manual_seed(2))
MEAN, STD = X.mean(-1, keepdim=True), X.std(-1, keepdim=True)
GAMMA = torch.rand(16) + 0.5
NORM = {"weight": GAMMA, "normalized_shape": (16,), "result1": MEAN, "result2": 1 / STD}

CASES: dict[tuple[str, str], dict[str, Any]] = {
    ("GeluBackward0", "self"): {"approximate": "none"},
    ("TanhBackward0", "result"): {},
    ("NativeLayerNormBackward0", "input"): NORM,
    ("FusedRmsNormBackward0", "input"): {**NORM, "result1": 1 / STD},
    ("SoftmaxBackward0", "result"): {"dim": 2**64 - 1},
    ("MulBackward0", "self"): {},
}


def _backward(node: str, slot: str, x: Tensor, saved: dict[str, Any]) -> Backward:
    gave = (torch.ones(3), torch.ones(4), torch.ones(4))
    return Backward(node, slots.op(node), slot, x, GY, gave, (False, True, True), saved)


def _whole(b: Backward, x: Tensor) -> Reading:
    w = error_weights(b)
    assert w is not None
    return reading(b, w, x)


def _in_parts(monkeypatch: pytest.MonkeyPatch, b: Backward, seen: Backward) -> Reading:
    names = of_samples(seen)
    assert names is not None
    asked = []

    def part(first: int, last: int) -> Any:
        asked.append((first, last))
        return error_weights(some(seen, names, first, last))

    monkeypatch.setattr("actzip.control.reading.chunk", lambda elements: elements // 5)
    found = reading(b, part, seen.x)
    assert len(asked) > 4
    return found


def _same(a: Reading, b: Reading) -> None:
    for name in vars(a):
        assert torch.allclose(getattr(a, name), getattr(b, name), rtol=1e-5, atol=1e-7), name


@pytest.mark.parametrize(("node", "slot"), CASES)
def test_some_samples_at_a_time_tell_what_all_together_do(
    node: str, slot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = X.softmax(-1) if node.startswith("Softmax") else X
    b = _backward(node, slot, x, CASES[node, slot])
    whole = _whole(b, x)
    assert float(whole.input.sum() + whole.parameter.sum()) > 0
    _same(_in_parts(monkeypatch, b, b), whole)


@pytest.mark.parametrize(("node", "slot"), CASES)
def test_rows_of_another_shape_have_the_same_weights(node: str, slot: str) -> None:
    x = X.softmax(-1) if node.startswith("Softmax") else X
    b = _backward(node, slot, x, CASES[node, slot])
    rows = in_rows(b, (120, 16))
    assert rows is not None
    found, whole = error_weights(rows), error_weights(b)
    assert found is not None
    assert whole is not None
    for name in ("parameter", "input"):
        one, other = getattr(found, name), getattr(whole, name)
        assert (one is None) == (other is None)
        if one is not None:
            assert torch.allclose(one, other.reshape(120, 16))
    assert in_rows(b, (12, 160)) is None  # rows of the last dimension are what the op works on


def test_an_op_that_mixes_samples_is_looked_at_whole() -> None:
    along = _backward("SoftmaxBackward0", "result", X.softmax(0), {"dim": 0})
    assert of_samples(along) is None
    assert of_samples(_backward("BmmBackward0", "self", X, {})) is None
