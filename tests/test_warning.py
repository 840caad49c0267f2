"""Warnings name the line of the user's that led to them."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import actzip
from actzip.warning import warn


def _line() -> int:
    return sys._getframe(1).f_lineno


@contextlib.contextmanager
def _caught() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    assert caught, "no warning came"
    assert all(w.category is actzip.ActzipWarning for w in caught)


def test_a_warning_of_our_own_code_names_the_callers_line() -> None:
    with _caught() as caught:
        line = _line() + 1
        warn("look here")
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def test_a_forward_that_compresses_nothing_names_the_line_that_calls_the_model() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4)))
    with actzip.compress(model), _caught() as caught:
        line = _line() + 1
        model(torch.ones(2, 4))
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def test_around_code_it_is_the_line_that_calls_backward() -> None:
    w = torch.ones(4, requires_grad=True)
    with actzip.compress(), _caught() as caught:
        loss = (w * w).sum()
        line = _line() + 1
        loss.backward()
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def test_a_guard_that_is_told_a_loss_names_that_line() -> None:
    model = nn.Linear(64, 64)
    with actzip.compress(model, "actnn", guard=True) as session:
        for _ in range(30):
            session.watch(1.0)
        with _caught() as caught:
            for _ in range(30):
                line = _line() + 1
                session.watch(1e6)
    assert {(w.filename, w.lineno) for w in caught} == {(__file__, line)}


def test_lossless_on_a_model_without_masks_has_nothing_to_say() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.gate = nn.Linear(64, 64), nn.Linear(64, 64)
            self.norm = nn.RMSNorm(64)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = nn.functional.silu(self.gate(self.norm(x))) * self.up(x)
            return out

    model = Gated()
    with actzip.compress(model) as session, warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.randn(64, 64)).sum().backward()
        assert session.stats().raw_bytes > 0
        session.remove()
        again = actzip.compress(model, derive=False)
        model(torch.randn(64, 64)).sum().backward()
        assert again.stats().compressed == 0
