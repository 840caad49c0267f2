"""A torch that compiles in a way that is not known: graphs as they are, and one warning."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import actzip
from actzip.compiled import installation
from actzip.torch_private import compiler, frame
from compiled.nets import gradients


def _lost(*_: Any) -> Any:
    raise AttributeError("there is no such name")


CHANGES: dict[str, tuple[Any, str, Any, str]] = {
    "arguments": (installation, "_KWARGS", {"num_outputs"}, "in a way that actzip does not know"),
    "contexts": (installation, "TracingContext", None, "does not say which graph is traced"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_graph_is_left_as_it_is(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, value, message = CHANGES[change]
    monkeypatch.setattr(installation, "_said", set())
    monkeypatch.setattr(owner, name, value)
    model, x = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8)), torch.randn(64, 64)
    plain = gradients(copy.deepcopy(model), x)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with actzip.compress(model, "fixed"):
            ours = gradients(torch.compile(model, backend="aot_eager"), x)  # type: ignore[arg-type]
            gradients(torch.compile(model, backend="aot_eager"), x[:9])  # type: ignore[arg-type]
    assert all(torch.equal(ours[n], g) for n, g in plain.items())
    assert sum(message in str(each.message) for each in warned) == 1


def test_a_compiler_without_its_names_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_said", set())
    monkeypatch.setattr(compiler, "inductor_config", _lost)
    monkeypatch.delenv("ACTZIP_DEBUG", raising=False)
    with pytest.warns(actzip.ActzipWarning, match="does not know the compiler") as warned:
        installation._install()
    assert len(warned) == 1
    while installation._taken_back:
        installation._taken_back.pop()()


def test_a_torch_that_does_not_number_what_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("torch._guards.CompileContext")
    assert frame() is None
