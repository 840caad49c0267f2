"""Compiled models under actzip: lossless bit for bit, lossy close, as small as eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as t
from torch import Tensor, nn

import actzip
from compiled.nets import FINE, MODELS, error, gradients, make, saved_bytes

ALL = [name for name in MODELS if name not in ("mlp", "cnn")]


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


@pytest.mark.parametrize("name", ALL)
def test_eight_bits_are_close_and_as_small_as_in_eager(name: str) -> None:
    model, x = make(name)
    eager, plain = copy.deepcopy(model), copy.deepcopy(model)
    expected = gradients(torch.compile(plain, backend="aot_eager"), x)  # type: ignore[arg-type]
    with actzip.compress(model, FINE) as session:
        compiled = torch.compile(model, backend="aot_eager")
        ours = gradients(compiled, x)  # type: ignore[arg-type]
        mine = session.stats()
        counted = saved_bytes(compiled(x), model)
    assert 0 < error(ours, expected) < 1e-4
    with actzip.compress(eager, FINE) as session:
        gradients(eager, x)
        theirs = session.stats()
    assert mine.stored_bytes <= 1.1 * theirs.stored_bytes
    assert counted == pytest.approx(mine.stored_bytes, rel=0.1)
    # against what plain eager saves; a dropout's noise is in floats there, in booleans compiled
    assert theirs.raw_bytes / mine.stored_bytes == pytest.approx(theirs.ratio, rel=0.1)
    # what is stored has the same names, by which methods know it
    coded = {row.name for row in mine.sites if row.role.value in ("linear", "nonlinear")}
    assert coded <= {row.name for row in theirs.sites}


CASES = [*((name, 0.0) for name in ALL), ("bert", 0.1), ("gpt", 0.1)]


@pytest.mark.parametrize(("name", "dropout"), CASES)
def test_the_ratio_is_that_of_eager(name: str, dropout: float) -> None:
    """Of the same tensors, in a few bits. With dropout plain eager saves more, on a CPU: its noise
    in floats, where a graph has booleans. Stored it is one bit of each element either way."""
    model, x = make(name)
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = dropout
        elif isinstance(getattr(part, "dropout", None), float):
            part.dropout = dropout  # type: ignore[assignment]
    eager = copy.deepcopy(model)
    with actzip.compress(model, "fixed") as session:
        gradients(torch.compile(model, backend="aot_eager"), x)  # type: ignore[arg-type]
        mine = session.stats()
    with actzip.compress(eager, "fixed") as session:
        gradients(eager, x)
        theirs = session.stats()
    assert mine.stored_bytes == pytest.approx(theirs.stored_bytes, rel=0.1)
    noise = [r for r in theirs.sites if r.codec.startswith("BitMask(on=")]
    masks = [r for r in mine.sites if r.node == "NativeDropoutBackward0"]
    assert bool(masks) == bool(dropout)
    assert sum(r.stored_bytes for r in masks) == sum(r.stored_bytes for r in noise)
    assert 4 * sum(r.raw_bytes for r in masks) == sum(r.raw_bytes for r in noise)
    same = theirs.raw_bytes - sum(r.raw_bytes for r in noise) * 3 / 4
    assert mine.ratio == pytest.approx(same / theirs.stored_bytes, rel=0.1)


def test_division_compresses_compiled_graphs() -> None:
    model, x = make("gpt")
    plain = torch.compile(copy.deepcopy(model), backend="aot_eager")
    expected = gradients(plain, x)  # type: ignore[arg-type]
    with actzip.compress(model, "division") as session:
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        ours = gradients(compiled, x)  # type: ignore[arg-type]
        assert error(ours, expected) < 0.1
        assert session.stats().ratio > 2.5


SMALL: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
}
FAMILIES: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: t.GPT2LMHeadModel(
        t.GPT2Config(vocab_size=100, n_embd=32, n_layer=1, n_head=4, n_positions=32)
    ),
    "bert": lambda: t.BertForMaskedLM(t.BertConfig(**SMALL, intermediate_size=64)),
    "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**SMALL, intermediate_size=64)),
}


def _of_loss(model: Any, call: Any, ids: Tensor) -> dict[str, Tensor]:
    torch.manual_seed(0)
    model.zero_grad()
    call(input_ids=ids, labels=ids).loss.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_give_the_bits_of_the_compiled_model_without_it(family: str) -> None:
    model, ids = FAMILIES[family](), torch.randint(3, 100, (2, 24))
    plain = copy.deepcopy(model)
    expected = _of_loss(plain, torch.compile(plain, backend="aot_eager"), ids)
    torch._dynamo.reset()  # a graph of the same class
    with actzip.compress(model, min_bytes=0) as session:
        call = torch.compile(model, backend="aot_eager")
        ours = _of_loss(model, call, ids)
        assert any(row.codec for row in session.stats().sites)
        assert not session.stats().unknown
    assert expected.keys() == ours.keys()
    assert all(torch.equal(ours[n], g) for n, g in expected.items())


@pytest.mark.parametrize("name", ["mlp", "cnn"])
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


@pytest.mark.parametrize("name", ["gpt", "bert", "vit", "resnet"])
def test_what_inductor_takes_apart_is_coded_too(name: str) -> None:
    """Norms, softmaxes and activations reach inductor in pieces; this backend compiles no C++."""
    backend = "aot_eager_decomp_partition"
    model, x = make(name)
    expected = gradients(torch.compile(copy.deepcopy(model), backend=backend), x)  # type: ignore[arg-type]
    torch._dynamo.reset()  # a graph of the same class
    with actzip.compress(model, FINE, min_bytes=1024) as session:
        ours = gradients(torch.compile(model, backend=backend), x)  # type: ignore[arg-type]
        left = [row for row in session.stats().sites if row.reason]
        assert session.stats().ratio > 3.5
    assert 0 < error(ours, expected) < 1e-4
    known = ("an input of the compiled graph", "statistics of a norm")
    assert [row.reason for row in left if not row.reason.startswith(known)] == []


def test_steps_learned_for_a_tensor_are_not_used_for_another_of_its_op() -> None:
    """Inductor's LayerNorm saves its input normalized, which has another scale."""
    model, x = make("vit")
    eager = copy.deepcopy(model)
    with actzip.compress(eager, FINE, min_bytes=0) as session:
        gradients(eager, x)
        learned = {row.name for row in session.stats().sites}
    torch._dynamo.reset()
    with actzip.compress(model, FINE, min_bytes=0) as session:
        gradients(torch.compile(model, backend="aot_eager_decomp_partition"), x)  # type: ignore[arg-type]
        norms = [r for r in session.stats().sites if r.node.startswith("NativeLayerNorm")]
    coded = {row.name for row in norms if row.codec}
    # what the first one reads is saved itself, for its variance
    first = "blocks.0.norm1:NativeLayerNormBackward0.input"
    assert coded & learned == {first}
    assert len(coded - learned) == 2
