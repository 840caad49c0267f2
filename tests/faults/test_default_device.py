"""A default device or dtype of the user's is not for tensors of ours."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip

METHODS: dict[str, Any] = {
    "lossless": "lossless",
    "actnn": "actnn",
    "division": "division",
    "comet": actzip.Comet(interval=1, scope="all"),
    "acgc": actzip.ACGC(interval=1, codec="fixed"),
    "auto": "auto",
}


@contextmanager
def _default_dtype() -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _gradients(method: Any, around: Callable[[], AbstractContextManager[Any]]) -> list[Tensor]:
    torch.manual_seed(0)
    up, norm, down = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 32)
    model = nn.Sequential(up, norm, nn.GELU(), down, nn.ReLU())
    if method is not None:
        actzip.compress(model, method, min_bytes=0)
    for _ in range(4):  # the methods look at some of these and choose anew
        x = torch.randn(8, 32, device="cpu", dtype=torch.float32)
        model.zero_grad()
        with around():
            F.hardtanh(model(x)).square().mean().backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    "around", [lambda: torch.device("meta"), _default_dtype], ids=["device", "dtype"]
)
@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_it_changes_no_gradient(
    method: Any, around: Callable[[], AbstractContextManager[Any]]
) -> None:
    """ActNN made its statistics on the default device, meta here, a GPU in most programs."""
    expected = _gradients(method, nullcontext)
    ours = _gradients(method, around)
    assert len(ours) == 6
    for a, b in zip(ours, expected, strict=True):
        assert torch.equal(a, b)
