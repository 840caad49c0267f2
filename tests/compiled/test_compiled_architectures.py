"""Compiled models under actzip: lossless bit for bit, lossy close, as small as eager."""

from __future__ import annotations

import copy

import pytest
import torch

import actzip
from compiled.nets import FINE, MODELS, error, gradients, make

ALL = [name for name in MODELS if name != "mlp"]


@pytest.mark.parametrize("name", ALL)
def test_lossless_gives_the_bits_of_the_compiled_model_without_it(name: str) -> None:
    model, x = make(name)
    plain = torch.compile(copy.deepcopy(model), backend="aot_eager")
    expected = gradients(plain, x)  # type: ignore[arg-type]
    session = actzip.compress(model, min_bytes=0)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    ours = gradients(compiled, x)  # type: ignore[arg-type]
    assert expected.keys() == ours.keys()
    assert all(torch.equal(ours[n], g) for n, g in expected.items())
    stats = session.stats()
    assert not stats.unknown
    assert stats.sites
    session.remove()


@pytest.mark.parametrize("name", ["resnet", "gpt"])
def test_eight_bits_are_close_and_as_small_as_in_eager(name: str) -> None:
    model, x = make(name)
    eager, plain = copy.deepcopy(model), copy.deepcopy(model)
    expected = gradients(torch.compile(plain, backend="aot_eager"), x)  # type: ignore[arg-type]
    with actzip.compress(model, FINE) as session:
        ours = gradients(torch.compile(model, backend="aot_eager"), x)  # type: ignore[arg-type]
        mine = session.stats()
    assert 0 < error(ours, expected) < 1e-4
    with actzip.compress(eager, FINE) as session:
        gradients(eager, x)
        # eager saves a dropout's noise in floats, compiled in booleans: what is stored is the same
        assert mine.stored_bytes == pytest.approx(session.stats().stored_bytes, rel=0.1)


@pytest.mark.parametrize("method", ["division", "actnn", "comet", "acgc"])
def test_other_methods_compress_compiled_graphs_from_the_first_step(method: str) -> None:
    model, x = make("gpt")
    plain = torch.compile(copy.deepcopy(model), backend="aot_eager")
    expected = gradients(plain, x)  # type: ignore[arg-type]
    with actzip.compress(model, method) as session:
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        for _ in range(3):
            ours = gradients(compiled, x)  # type: ignore[arg-type]
        assert error(ours, expected) < 0.1
        assert session.stats().ratio > 2.5
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # plain, and ours once


@pytest.mark.parametrize("name", ["mlp", "resnet"])
def test_inductor(name: str) -> None:
    model, x = make(name)
    expected = gradients(torch.compile(copy.deepcopy(model)), x)  # type: ignore[arg-type]
    compiled = torch.compile(model, fullgraph=True)
    with actzip.compress(compiled):  # type: ignore[arg-type]
        ours = gradients(compiled, x)  # type: ignore[arg-type]
    assert all(torch.equal(ours[n], g) for n, g in expected.items())
    with actzip.compress(model, FINE) as session:
        ours = gradients(compiled, x)  # type: ignore[arg-type]
        assert 0 < error(ours, expected) < 1e-4
        assert session.stats().ratio > 2.5
