"""Derived tensors: bit for bit what was there, in fewer bytes, whatever the program does."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import actzip
from actzip.autograd.derivation import Derivation
from training import assert_equal, assert_trains_the_same, gradients

transformers = pytest.importorskip("transformers")


class Adapted(nn.Module):
    """A frozen bf16 layer with fp32 adapters beside it, as PEFT makes it."""

    def __init__(self, inner: int, outer: int, dropout: float):
        super().__init__()
        base = torch.randn(outer, inner).bfloat16() / inner**0.5
        self.base = nn.Parameter(base, requires_grad=False)
        self.down = nn.Parameter(torch.randn(8, inner) / inner**0.5)
        self.up = nn.Parameter(torch.full((outer, 8), 0.01))
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        wide = F.dropout(x.to(self.down.dtype), self.dropout, self.training)
        low = F.linear(F.linear(wide, self.down), self.up)
        return F.linear(x, self.base) + low.to(x.dtype)


class GatedMLP(nn.Module):
    def __init__(self, dropout: float):
        super().__init__()
        self.gate, self.up = (Adapted(128, 256, dropout) for _ in range(2))
        self.down = Adapted(256, 128, dropout)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.down(F.silu(self.gate(x)) * self.up(x))
        return out


@pytest.mark.parametrize(("dropout", "least"), [(0.0, 2.5), (0.05, 3.5)])
def test_a_gated_mlp_with_adapters_keeps_only_what_cannot_be_made_again(
    dropout: float, least: float
) -> None:
    model = nn.Sequential(GatedMLP(dropout), GatedMLP(dropout))
    x = torch.randn(256, 128).bfloat16().requires_grad_()
    stats = assert_trains_the_same(model, lambda m: m(x).float().square().mean())
    assert stats.ratio >= least
    plain = assert_trains_the_same(
        model, lambda m: m(x).float().square().mean(), compresses=dropout > 0, derive=False
    )
    assert plain.ratio < 1.7
    assert not any(row.derived_from for row in plain.sites)


IDS = torch.randint(3, 100, (4, 64))
SMALL: dict[str, Any] = {"vocab_size": 100, "num_attention_heads": 4, "hidden_size": 128}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=2, n_embd=128, n_head=4, vocab_size=100, bos_token_id=1, eos_token_id=2
        )
    ),
    "bert": lambda: transformers.BertForMaskedLM(
        transformers.BertConfig(**SMALL, num_hidden_layers=2, intermediate_size=512)
    ),
    "llama": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SMALL, num_hidden_layers=2, intermediate_size=352)
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_blocks_of_transformers_are_saved_in_two_thirds_or_less(name: str) -> None:
    def loss(model: nn.Module) -> Tensor:
        out: Tensor = model(input_ids=IDS, labels=IDS).loss
        return out

    assert assert_trains_the_same(MODELS[name](), loss).ratio >= 1.5


class Block(nn.Module):
    """Norms, activations, arithmetic, casts and dropout between matmuls."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.group = nn.LayerNorm(64), nn.GroupNorm(4, 64)
        self.a, self.b, self.c = (nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(F.gelu(self.a(self.norm(x))), 0.1, self.training)
        h = self.b(torch.tanh(h) * 0.5 + h.sigmoid())
        h = self.group(h) * x.double().float()
        out: Tensor = self.c(F.relu(h)) + F.hardswish(h)
        return out


X = torch.randn(96, 64)


def _twice(m: nn.Module) -> Tensor:
    return (m(X) + m(X * 2)).square().mean()


def _autocast(m: nn.Module) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return m(X).float().square().mean()  # type: ignore[no-any-return]


@pytest.mark.parametrize("loss", [_twice, _autocast])
def test_a_block_trains_bit_for_bit(loss: Callable[[nn.Module], Tensor]) -> None:
    assert_trains_the_same(Block(), loss, min_bytes=0)


class Partly(Block):
    """The middle is computed again in backward."""

    def forward(self, x: Tensor) -> Tensor:
        h = F.gelu(self.a(self.norm(x)))
        h = checkpoint(super().forward, h, use_reentrant=False)
        out: Tensor = self.b(F.silu(h) * x)
        return out


def test_a_checkpoint_inside_trains_bit_for_bit() -> None:
    stats = assert_trains_the_same(Partly(), lambda m: m(X).square().mean(), min_bytes=0)
    assert sum(bool(row.derived_from) for row in stats.sites) >= 2


def test_it_says_what_is_derived_from_what() -> None:
    model = Block()
    with actzip.compress(model, min_bytes=0) as session:
        model(X).sum().backward()
    derived = {row.name: row for row in session.stats().sites if row.derived_from}
    assert derived["a:AddmmBackward0.mat1"].derived_from == "norm:NativeLayerNormBackward0.input"
    assert derived["a:AddmmBackward0.mat1"].recipe == "layer_norm"
    said = session.explain("a:Addmm")
    assert "derived by layer_norm from norm:NativeLayerNormBackward0.input" in said
    assert "derived from norm:NativeLayerNorm.input by layer_norm" in session.report()
    assert all(len(line) <= 80 for line in session.report().splitlines())


def test_second_order_and_repeated_backward_are_bit_equal() -> None:
    model = Block().eval()

    def run() -> list[Tensor]:
        x = X.clone().requires_grad_()
        loss = model(x).square().sum()
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        (again,) = torch.autograd.grad(loss, x, retain_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        return [first.detach(), again, second]

    plain = run()
    with actzip.compress(model, min_bytes=0, eval_mode=True) as session:
        ours = run()
        assert any(row.derived_from for row in session.stats().sites)
    for mine, theirs in zip(ours, plain, strict=True):
        assert torch.equal(mine, theirs)


def _in_place(x: Tensor) -> None:
    x.add_(1)


def _through_data(x: Tensor) -> None:
    x.data.mul_(0)


def _through_an_array(x: Tensor) -> None:
    x.detach().numpy().fill(0)


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("edit", [_in_place, _through_data, _through_an_array])
def test_edits_of_the_source_do_not_reach_what_is_derived(
    edit: Callable[[Tensor], None], inside: bool
) -> None:
    w = torch.randn(64, 64, requires_grad=True)
    with actzip.compress(min_bytes=0) as session:
        x = w * 2
        h = F.silu(x)
        y = h * h
        if inside:
            edit(x)
    if not inside:
        edit(x)
    assert any(row.derived_from for row in session.stats().sites)
    (found,) = torch.autograd.grad(y.sum(), h)
    assert torch.equal(found, 2 * F.silu(w.detach() * 2))


def test_the_number_of_threads_may_change_before_backward() -> None:
    model = Block()
    expected = gradients(copy.deepcopy(model), lambda m: m(X).sum())
    threads = torch.get_num_threads()
    with actzip.compress(model, min_bytes=0):
        torch.manual_seed(0)
        model.zero_grad()
        loss = model(X).sum()
        try:
            torch.set_num_threads(1 if threads > 1 else 2)
            loss.backward()
        finally:
            torch.set_num_threads(threads)
    ours = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    for name, grad in expected.items():
        torch.testing.assert_close(ours[name], grad)


def test_a_function_of_the_users_is_not_called_again() -> None:
    calls = []

    def twice(x: Tensor) -> Tensor:
        if torch.overrides.has_torch_function((x,)):
            return torch.overrides.handle_torch_function(twice, (x,), x)  # type: ignore[no-any-return]
        calls.append(1)
        return x * 2

    w = torch.randn(64, 64, requires_grad=True)
    with actzip.compress(min_bytes=0):
        h = F.silu(w * 1)
        y = twice(h)
        (y * y).sum().backward()
    assert len(calls) == 1


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_nothing_of_a_dropped_graph_is_held() -> None:
    model = Block()
    made: list[weakref.ref[Tensor]] = []
    model.a.register_forward_hook(lambda _, args, out: made.append(weakref.ref(out)))
    with actzip.compress(model, min_bytes=0) as session:
        out = model(X)
        assert session.live_bytes > 0
        del out
        gc.collect()
        assert session.live_bytes == 0
        assert made[0]() is None


def test_a_derived_tensor_is_made_once_for_the_slots_of_one_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = torch.randn(64, 64, requires_grad=True)
    with actzip.compress(min_bytes=0):
        h = F.silu(w * 1)
        y = h * h
    made = []
    get = Derivation.get
    monkeypatch.setattr(
        Derivation, "get", lambda self, given=None: made.append(1) or get(self, given)
    )
    y.sum().backward()
    assert len(made) == 1


def test_gradients_accumulate_over_two_passes() -> None:
    model = Block().eval()

    def loss(m: nn.Module) -> Tensor:
        (m(X) * 2).sum().backward()
        out: Tensor = m(X - 1).sum()
        return out

    expected = gradients(copy.deepcopy(model), loss)
    with actzip.compress(model, min_bytes=0, eval_mode=True):
        assert_equal(gradients(model, loss), expected)


def test_a_sign_that_is_read_from_exact_values_is_their_sign() -> None:
    """An in-place leaky ReLU's result is kept for what is derived from it and for its sign."""

    def gradient(compressed: bool) -> torch.Tensor:
        torch.manual_seed(0)
        x, layer = torch.randn(32, 8, requires_grad=True), torch.nn.Linear(8, 4)
        with actzip.compress(method="lossless", min_bytes=0) if compressed else torch.enable_grad():
            v = x * 1.0
            torch.nn.functional.leaky_relu_(v, 0.2)
            y = layer(v * v.sigmoid())
        return torch.autograd.grad(y.square().sum(), x)[0]

    assert torch.equal(gradient(True), gradient(False))
