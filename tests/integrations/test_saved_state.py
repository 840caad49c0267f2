"""The state of every method goes through a file that is read without pickles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import actzip


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 32)
    )


def _steps(model: nn.Module, count: int, start: int) -> list[Tensor]:
    for i in range(count):
        torch.manual_seed(start + i)
        model.zero_grad()
        model(torch.randn(8, 3, 8, 8)).square().mean().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("lossless", {}),
        ("fixed", {}),
        ("division", {}),
        ("actnn", {}),
        ("actnn", {"guard": True}),
        ("acgc", {}),
        ("comet", {"interval": 1}),
    ],
    ids=str,
)
def test_a_saved_state_is_read_back_and_goes_on(
    tmp_path: Path, method: str, options: dict[str, Any]
) -> None:
    model = _model()
    session = actzip.compress(model, method, **options)
    _steps(model, 3, start=0)
    torch.save(session.state_dict(), tmp_path / "state.pt")
    session.remove()
    copied = _model()
    copied.load_state_dict(model.state_dict())

    expected_session = actzip.compress(model, method, **options)
    expected_session.load_state_dict(session.state_dict())
    resumed = actzip.compress(copied, method, **options)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert resumed.step == 3
    for a, b in zip(_steps(model, 2, 3), _steps(copied, 2, 3), strict=True):
        assert torch.equal(a, b)
