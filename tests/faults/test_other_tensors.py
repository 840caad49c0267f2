"""Integers, booleans, complex, sparse, subclasses: exact, or left alone and counted."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import actzip
from training import assert_trains_the_same


def test_boolean_and_integer_slots_are_stored_exactly() -> None:
    class Picks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(500, 16)
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, ids: Tensor) -> Tensor:
            h = self.table(ids) * self.scale
            mask = (ids % 3 == 0).unsqueeze(-1)
            h = h.masked_fill(mask, 0.5)
            h = torch.where(ids.unsqueeze(-1) > 250, h, h.sin())
            top = h.topk(4, dim=1).values.sum() + h.sort(dim=1).values.std()
            return top + h.gather(1, (ids % 30).unsqueeze(-1).expand(-1, -1, 16)).sum()

    ids = torch.randint(0, 500, (64, 32))
    stats = assert_trains_the_same(Picks(), lambda m: m(ids), min_bytes=512)
    codecs = {row.codec for row in stats.sites}
    assert "Index()" in codecs
    assert any(codec.startswith("BitMask") for codec in codecs)


def test_complex_tensors_are_left_alone() -> None:
    class Spectrum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.filter = nn.Parameter(torch.randn(64, 33, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            spectrum = torch.fft.rfft(x.relu()) * self.filter
            return torch.fft.irfft(spectrum.conj() * spectrum).square().mean()

    x = torch.randn(64, 64)
    stats = assert_trains_the_same(Spectrum(), lambda m: m(x), compresses=False)
    assert not any(row.codec for row in stats.sites if "complex" in row.reason)
    assert any("complex64" in row.reason or "no rule" in row.reason for row in stats.sites)


@pytest.mark.parametrize("buffer", [False, True])
def test_sparse_tensors_are_left_alone_and_counted(buffer: bool) -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(64, 64)
            if buffer:
                self.register_buffer("adjacency", adjacency, persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            return torch.sparse.mm(adjacency, torch.relu(self.lin(x))).square().mean()

    adjacency = torch.eye(64).to_sparse()
    x = torch.randn(64, 64)
    stats = assert_trains_the_same(Graph(), lambda m: m(x))
    assert any("sparse" in kind for kind in stats.unseen)


class Tagged(Tensor):
    """A subclass that does nothing: actzip must not guess what it means."""


def test_subclasses_are_left_alone_and_counted() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    x = torch.randn(64, 64).as_subclass(Tagged)
    stats = assert_trains_the_same(model, lambda m: m(x).square().mean().as_subclass(Tensor))
    assert any("Tagged" in kind for kind in stats.unseen)


def test_a_custom_function_is_kept_exactly_and_counted_by_name() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x, x > 0)
            return x**3

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            x, positive = ctx.saved_tensors
            return 3 * x**2 * g * positive

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(64, 64)

        def forward(self, x: Tensor) -> Tensor:
            a = Cube.apply(self.lin(x))
            b = torch.relu(self.lin(x))  # the node of `a` is met two ops later
            return Cube.apply(a + b)  # and this one only through the output

    x = torch.randn(64, 64) * 0.1
    stats = assert_trains_the_same(Model(), lambda m: m(x).square().mean())
    assert stats.unknown == {"CubeBackward": 4}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's quantized tensors
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantized_tensors_are_left_alone() -> None:
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(torch.quantize_per_tensor(x.detach(), 0.1, 0, torch.qint8))
            return x * 2

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g * ctx.saved_tensors[0].dequantize()

    w = torch.randn(100, 100, requires_grad=True)
    (plain,) = torch.autograd.grad(Rounded.apply(w).relu().sum(), w)
    with actzip.compress() as session:
        (ours,) = torch.autograd.grad(Rounded.apply(w).relu().sum(), w)
    assert torch.equal(ours, plain)
    row = next(r for r in session.stats().sites if r.node == "RoundedBackward")
    assert (row.codec, row.stored_bytes) == ("", 100 * 100)


def test_a_registered_slot_is_used(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from actzip.autograd.slots import lookup

    monkeypatch.setattr(lookup, "_ADDED", {})
    actzip.register_slot("BernoulliLikeBackward0", "mask", "mask")
    assert lookup.rule("BernoulliLikeBackward0", "mask") is not None


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_copies_inside_torch_func_of_tensors_without_ordinary_storage_go_on() -> None:
    def cube(t: Tensor) -> Tensor:
        return (t.clone() ** 3).to(torch.float64).sum()

    x = torch.randn(6)
    plain = torch.func.hessian(cube)(x), torch.func.jacrev(cube)(x)
    with actzip.compress(min_bytes=0):  # hessian's tangents are zeros without memory
        ours = torch.func.hessian(cube)(x), torch.func.jacrev(cube)(x)
    for mine, theirs in zip(ours, plain, strict=True):
        assert torch.equal(mine, theirs)


def _csr(x: Tensor) -> Tensor:
    return x.to_sparse_csr().clone().to(torch.float64).to_dense().exp().sum()


def _nested(x: Tensor) -> Tensor:
    rows = torch.nested.as_nested_tensor([x[:4], x[4:]])
    return rows.clone().to(torch.float64).to_padded_tensor(0.0).exp().sum()


def _jagged(x: Tensor) -> Tensor:
    rows = torch.nested.as_nested_tensor([x[:4], x[4:]], layout=torch.jagged)
    return rows.clone().to(torch.float64).values().exp().clone().sin().sum()


@pytest.mark.filterwarnings("ignore")  # prototypes, says torch
@pytest.mark.parametrize("code", [_csr, _nested, _jagged])
def test_copies_of_sparse_and_nested_tensors_go_on(code: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(10, 16, requires_grad=True)
    (expected,) = torch.autograd.grad(code(x), x)
    with actzip.compress(min_bytes=0):
        out = code(x)
    assert torch.equal(torch.autograd.grad(out, x)[0], expected)
