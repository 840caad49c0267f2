"""The private names of torch: all there, and a refusal in one sentence when they are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import actzip
from actzip import torch_private


def test_this_torch_has_every_private_name() -> None:
    assert torch_private.missing() == []


def test_the_oldest_torch_is_the_one_that_is_declared() -> None:
    project = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    assert f'dependencies = ["torch>={torch_private.OLDEST}"' in project


def test_compress_refuses_a_torch_that_lacks_a_name_before_it_touches_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OldSaved:
        def register_hooks(self) -> None: ...

    kinds = [(o, OldSaved if o == "SavedTensor" else k, n) for o, k, n in torch_private._ATTRIBUTES]
    monkeypatch.setattr(torch_private, "_ATTRIBUTES", kinds)
    monkeypatch.setattr(torch_private, "_missing", ["torch.overrides._push_mode"])
    model = nn.Linear(2, 2)
    wanted = (
        f"actzip needs torch {torch_private.OLDEST} or newer, as tested in docs/compatibility.md; "
        f"this is torch {torch.__version__}, which lacks torch.overrides._push_mode, "
        "SavedTensor.data, SavedTensor.unpack_hook"
    )
    for refused in (model, None):
        with pytest.raises(RuntimeError, match=f"^{re.escape(wanted)}$"):
            actzip.compress(refused)
    assert not model._forward_pre_hooks


def test_a_name_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "_missing", [])
    assert torch_private._private("torch._C", "_no_such.name") is None
    assert torch_private._private("torch._no_such_module", "name") is None
    assert torch_private.missing() == ["torch._C._no_such.name", "torch._no_such_module.name"]
