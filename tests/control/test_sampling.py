"""A look at some samples says what a look at all says."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import actzip
from actzip.control import sampling
from actzip.control.reading import Reading
from actzip.tasks.models.resnet import resnet8


def readings() -> dict[str, Reading]:
    """Of each layer of a network, by the samples of one batch that differ in size."""
    torch.manual_seed(0)
    model = resnet8()
    x = torch.randn(64, 3, 32, 32) * torch.rand(64, 1, 1, 1) * 2
    with actzip.compress(model, "acgc") as session:
        F.cross_entropy(model(x), torch.randint(0, 10, (64,))).backward()
        layers = session._statistics.layers
        return {layer: layers.readings(layer)[-1][1] for layer in layers}


def test_some_samples_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_ELEMENTS", 1 << 60)
    whole = readings()
    monkeypatch.setattr(sampling, "_ELEMENTS", 1 << 15)
    some = readings()
    assert whole.keys() == some.keys()
    sums = ("parameter", "input", "channel_parameter", "channel_input", "worst_parameter")
    left_out = 0
    for layer, r in whole.items():
        for name in sums:
            a, b = (getattr(each, name) for each in (r, some[layer]))
            assert a.shape == b.shape
            assert float(b.sum()) == pytest.approx(float(a.sum()), rel=0.05)
            left_out += not torch.equal(a, b)
        for name in ("parameter_signal", "input_signal", "outer_signal"):
            assert torch.equal(getattr(r, name), getattr(some[layer], name)), name
        assert float(some[layer].power) == pytest.approx(float(r.power), rel=0.3)
    assert left_out > 10
