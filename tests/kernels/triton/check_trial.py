"""Kernels are tried before they are used: the interpreted ones stand for those of a GPU."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
import torch
from agreement import QUIET

from actzip import kernels
from actzip.codecs import BitMask, Group
from actzip.kernels import triton
from actzip.kernels.triton import group, mask, trial

pytestmark = QUIET


@pytest.fixture(autouse=True)
def _unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton is what a CPU tensor gets without being asked for, and nothing was tried yet."""
    monkeypatch.setattr(kernels, "FORCED", None)
    monkeypatch.setitem(kernels.BACKENDS, "cpu", ("triton", "reference"))
    monkeypatch.setattr(kernels, "_MODULES", {})
    monkeypatch.setattr(trial, "_FOUND", {})


@pytest.mark.parametrize("form", sorted(triton.FORMS))
def test_every_form_passes_and_a_wrong_bit_anywhere_is_seen(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, made = torch.device("cpu"), {}
    for backend in ("triton", "reference"):
        module = importlib.import_module(f"actzip.kernels.{backend}.{form}")
        made[module.__name__] = trial.CASES[form](module, device)
    monkeypatch.setitem(trial.CASES, form, lambda module, device: made[module.__name__])
    assert trial._fault(device, form) is None
    for found in made[f"actzip.kernels.triton.{form}"]:
        last = found.view(-1).view(torch.uint8)[-1:]
        last ^= 1
        assert trial._fault(device, form) is not None
        last ^= 1


def test_a_wrong_kernel_is_refused_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mask.decode

    def wrong(data: torch.Tensor, on: float | None, out: torch.Tensor) -> None:
        right(data, on, out)
        out.view(-1)[-1] += 1

    monkeypatch.setattr(mask, "decode", wrong)
    x = torch.randn(100).relu()
    codec = BitMask()
    with pytest.warns(RuntimeWarning, match="Triton kernels of mask do not work on cpu"):
        payload = codec.encode(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(codec.decode(payload), (x != 0).float())
        codec.encode(x)
    assert kernels.backend_of("cpu", "mask") == "reference"
    assert kernels.backend_of("cpu", "group") == "triton"


def test_a_kernel_that_raises_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*args: Any) -> None:
        raise RuntimeError("no such\n instruction")

    monkeypatch.setattr(group, "encode", raises)
    x = torch.randn(500)
    with pytest.warns(RuntimeWarning, match="RuntimeError: no such instruction"):
        payload = Group(8).encode(x)
    assert torch.allclose(Group(8).decode(payload), x, atol=0.1)


def test_nothing_is_tried_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "is_capturing", lambda device: True)
    assert "reference" in kernels.of(torch.zeros(1), "mask").__name__  # type: ignore[attr-defined]
    monkeypatch.setattr(kernels, "is_capturing", lambda device: False)
    assert "triton" in kernels.of(torch.zeros(1), "mask").__name__  # type: ignore[attr-defined]


def test_what_is_asked_for_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "FORCED", "triton")
    monkeypatch.setattr(trial, "_fault", lambda device, form: "never asked")
    assert "triton" in kernels.of(torch.zeros(1), "mask").__name__  # type: ignore[attr-defined]
