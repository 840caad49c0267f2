"""When the noise is measured, on what, and that it never ends or changes a run."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import actzip
from actzip.integrations import noise_probe
from actzip.integrations.noise_probe import NoiseProbe, is_whole


class _Model(nn.Module):
    """Returns its loss, and draws from every random stream on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8))
        self.sizes: list[int] = []

    def forward(self, x: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        self.sizes.append(len(x))
        drawn = random.random() + np.random.rand()
        return {"loss": (self.net(x) * scale * (1 + 0 * drawn)).square().mean()}


def _trained() -> tuple[_Model, actzip.Session]:
    model = _Model()
    session = actzip.compress(model, "actnn")
    model(torch.randn(32, 64))["loss"].backward()
    model.sizes.clear()
    return model, session


def test_four_samples_are_measured_every_so_many_steps() -> None:
    model, session = _trained()
    probe = NoiseProbe(session, model, every=10)
    measured = []
    for step in range(25):
        probe.see(step, {"x": torch.randn(32, 64), "scale": 2.0})
        model.sizes.clear()
        probe.measure(step)
        if model.sizes:
            measured.append(step)
            assert set(model.sizes) == {4, 1}  # some samples, and each of them
    assert measured == [0, 10, 20]
    assert 0 < session.metrics()["noise_share"] < 1


def test_all_random_streams_and_the_session_are_as_they_were() -> None:
    model, session = _trained()
    probe = NoiseProbe(session, model, every=1)
    probe.see(0, {"x": torch.randn(32, 64)})
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    before = session.state_dict()["step"]
    probe.measure(0)
    drawn = random.random(), np.random.rand(), torch.rand(()).item()
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    assert drawn == (random.random(), np.random.rand(), torch.rand(()).item())
    assert (session.step, session.min_bytes) == (before, 4096)
    assert all(p.grad is not None for p in model.parameters())  # the step's own are untouched


def test_what_would_need_more_memory_than_a_step_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, session = _trained()
    monkeypatch.setattr(noise_probe, "_LITTLE", 0)
    probe = NoiseProbe(session, model, every=1)
    probe.see(0, {"x": torch.randn(32, 64)})
    probe.measure(0)
    assert model.sizes == []
    assert "noise_share" not in session.metrics()


@pytest.mark.parametrize(
    "batch", [[1, 2], {"x": torch.ones(1, 64)}, {"scale": 2.0}], ids=["list", "one", "scalar"]
)
def test_batches_without_samples_are_passed_over(batch: Any) -> None:
    model, session = _trained()
    probe = NoiseProbe(session, model, every=1)
    probe.see(0, batch)
    probe.measure(0)
    assert model.sizes == []


def test_a_model_that_cannot_be_measured_warns_once() -> None:
    model, session = _trained()
    probe = NoiseProbe(session, model, every=1)
    probe.see(0, {"x": torch.randn(32, 64), "unknown": 1})
    with pytest.warns(actzip.ActzipWarning, match=r"will not be in the log.*unknown"):
        probe.measure(0)
    probe.see(1, {"x": torch.randn(32, 64)})
    probe.measure(1)
    assert model.sizes == []


def test_a_sharded_model_is_not_whole() -> None:
    model = _Model()
    assert is_whole(model)
    model.net[0].weight.ds_id = 3  # type: ignore[assignment]  # as DeepSpeed's ZeRO marks it
    assert not is_whole(model)
