"""CONTRIBUTING's examples of a codec, a method and an op are run as they stand there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from slot_case import Case
from slot_graph import Run

import actzip
from actzip import methods
from actzip.autograd import slots
from actzip.autograd.slots import lookup
from actzip.codecs import registry
from actzip.methods.base import Role
from actzip.testing import conformance

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
CODEC, METHOD, METHOD_TEST, ASK, ROW, CASE = re.findall(r"```python\n(.*?)```", TEXT, re.S)


def run(text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that a file with this text would be."""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
    return module


def test_the_codec_keeps_every_promise_of_the_kit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    codec = run(CODEC, "actzip.codecs.sparse", monkeypatch).Sparse()
    conformance(codec)
    x = torch.randn(1000).relu()
    assert codec.encode(x).data.numel() == 125 + 4 * int(x.count_nonzero())


def test_the_method_passes_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    thin = run(METHOD, "actzip.methods.thin", monkeypatch).Thin
    monkeypatch.setitem(methods.METHODS, "thin", thin)
    test = run(METHOD_TEST, "test_thin", monkeypatch)
    test.test_thin_compresses_and_its_gradients_are_close()
    with pytest.raises(ValueError, match="1 to 8, got 9"):
        thin(bits=9)


def test_what_pytorch_is_asked_answers_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    exec(ASK, {})
    assert capsys.readouterr().out.strip() == ASK.rpartition("# ")[2].strip()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Case:
    """The row of the example is in the table; gives its case."""
    said: dict[str, Any] = {}
    exec(ROW, said)
    for node, row in said["ROWS"].items():
        monkeypatch.setitem(lookup.TABLE, node, row)
        monkeypatch.setitem(lookup.TRAITS, node, row.op)
    cases: list[Case] = []
    exec(CASE, {"torch": torch, "case": lambda *a: cases.append(Case(*a, shapes=((64, 48),)))})
    return cases[0]


def test_the_row_is_all_that_the_checks_of_the_table_need(made: Case) -> None:
    (slot,) = (s for s in Run(made, torch.float32).slots() if s.value.numel() > 1)
    assert set(lookup.TABLE[slot.node.name()].slots) == set(slots.slots_of(slot.node))
    assert slot.rule is not None
    assert slot.rule.role is Role.NONLINEAR


def test_the_row_is_all_that_a_method_with_error_bounds_needs(made: Case) -> None:
    plain = Run(made, torch.float32).gradients()
    with actzip.compress(method="acgc", min_bytes=0) as session:
        ours = Run(made, torch.float32).gradients()
        (row,) = session.stats().sites
    assert row.codec.startswith("Bounded")
    assert row.stored_bytes < row.raw_bytes / 2
    assert torch.allclose(ours[0], plain[0], atol=0.02)
    assert not torch.equal(ours[0], plain[0])
