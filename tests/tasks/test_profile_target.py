"""Models to profile: ours by name, the user's by the function that makes them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from actzip.tasks.config import make
from actzip.tasks.profile_target import builtin, imported, total

MODULE = """
import torch
from torch import nn

def one(): return nn.Linear(4, 2), torch.ones(3, 4)
def several(): return nn.Bilinear(4, 4, 2), (torch.ones(3, 4), torch.ones(3, 4))
def named(): return nn.Linear(4, 2), {"input": torch.ones(3, 4)}
def wrong(): return torch.ones(3)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "profiled_here.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "profiled_here", raising=False)
    return "profiled_here"


@pytest.mark.parametrize("function", ["one", "several", "named"])
def test_a_function_gives_model_and_inputs(module: str, function: str) -> None:
    path = list(sys.path)
    subject = imported(f"{module}:{function}")
    assert sys.path == path
    loss = subject.loss()
    assert loss.shape == ()
    loss.backward()
    assert all(each.grad is not None for each in subject.model.parameters())


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("profiled_here", "named package.module:function, got 'profiled_here'"),
        ("nowhere.at_all:f", "cannot import nowhere.at_all"),
        ("profiled_here:missing", "the module profiled_here has no missing"),
        ("profiled_here:wrong", r"must return \(model, inputs\), a torch.nn.Module first, got"),
    ],
)
def test_what_is_no_such_function_is_refused(module: str, target: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        imported(target)


def test_a_built_in_model_runs_on_its_own_data() -> None:
    subject = builtin(make(model="resnet8", batch=4, side=16, sizes={"width": 8}))
    assert subject.name == "resnet8, input 4×1×16×16"
    assert subject.model.training
    assert subject.loss().item() > 1
    with pytest.raises(ValueError, match="a batch of 4 is more than the 2 training examples"):
        builtin(make(model="resnet8", batch=4, limit=2))


def test_backward_starts_from_a_loss_or_from_all_outputs() -> None:
    x = torch.ones(3, requires_grad=True)
    assert total({"loss": 2 * x.sum(), "more": x}).item() == 6
    assert total((x, [2 * x, "text"], {"a": torch.ones(2, dtype=torch.long)})).item() == 3
    assert total(nn.Identity()(x)).item() == 1
    with pytest.raises(ValueError, match="no tensor that backward could start from"):
        total(torch.ones(3))
