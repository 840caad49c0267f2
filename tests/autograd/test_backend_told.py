"""`stats().backend` says whose kernels ran, for each device that tensors were stored from."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import actzip
from actzip import kernels


def _session(method: str) -> actzip.Session:
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    session = actzip.compress(net, method, min_bytes=256)
    net(torch.randn(64, 64)).sum().backward()
    return session


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_one_device_has_one_name(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "FORCED", backend)
    session = _session("fixed")
    stats = session.stats()
    assert stats.backend == backend
    assert stats.backends["cpu"]["group"] == backend
    assert backend in session.report()


def test_several_devices_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    session = _session("fixed")
    session._pool.devices.update((torch.device("cuda:0"), torch.device("mps")))
    monkeypatch.setattr(kernels.triton, "available", lambda: False)
    stats = session.stats()
    assert stats.backend == "cpu: native, cuda:0: reference, mps: reference"
    monkeypatch.setattr(kernels.triton, "available", lambda: True)
    assert "cuda:0: triton, mps: reference" in session.stats().backend


def test_a_form_that_a_backend_does_not_have_comes_from_the_next() -> None:
    assert kernels.backend_of("cpu", "cast") == "reference"
    assert kernels.backend_of("cpu", "group") == "native"
    assert kernels.backend_of("xpu", "group") == "reference"
