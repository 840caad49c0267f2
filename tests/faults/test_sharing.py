"""One stored tensor per producer output; nothing shared that is not the same."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.autograd.ledger import Row
from actzip.methods.base import Site, Stateless
from training import assert_trains_the_same


class KeepAll(Stateless):
    """Stores every value tensor in an exact code, so that every read goes through actzip."""

    def codec(self, site: Site, tensor: Tensor) -> actzip.codecs.Keep:
        return actzip.codecs.Keep()


class Projections(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        q, k, v = (p(h).view(4, 16, 4, 8).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.o(y.transpose(1, 2).reshape(4, 16, 32))
        return out


def _row(stats: actzip.Stats, name: str) -> Row:
    return next(row for row in stats.sites if row.name.startswith(name))


def test_three_projections_of_one_tensor_store_it_once() -> None:
    model, x = Projections(), torch.randn(4, 16, 32)
    stats = assert_trains_the_same(
        model, lambda m: m(x).square().sum(), method=KeepAll(), derive=False
    )
    first = _row(stats, "q:AddmmBackward0.mat1")
    assert first.stored_bytes >= 4 * 16 * 32 * 4
    for name in ("k", "v"):
        row = _row(stats, f"{name}:AddmmBackward0.mat1")
        assert (row.stored_bytes, row.shared_with) == (0, first.name)


def test_a_reordered_copy_is_made_again_from_its_source() -> None:
    class Reordered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            h = (x * self.scale).tanh()  # saved by tanh
            a, b = h.t().contiguous(), h.permute(1, 0).reshape(2, 2048)
            return a.sin().mean() + b.cos().mean()

    x = torch.randn(64, 64)
    keep = actzip.Fixed(linear=actzip.codecs.Keep(), nonlinear=actzip.codecs.Keep())
    stats = assert_trains_the_same(Reordered(), lambda m: m(x), method=keep)
    assert _row(stats, ":SinBackward0.self").shared_with == ":TanhBackward0.result"
    assert _row(stats, ":CosBackward0.self").shared_with == ":TanhBackward0.result"
    assert stats.ratio > 1.9


def test_casts_of_one_tensor_under_autocast_are_stored_once() -> None:
    model, x = Projections(), torch.randn(4, 16, 32)

    def loss(m: nn.Module) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y: Tensor = m(x)
            return y.float().square().sum()

    stats = assert_trains_the_same(model, loss, min_bytes=1024)
    assert _row(stats, "k:AddmmBackward0.mat1").shared_with == "q:AddmmBackward0.mat1"
    assert _row(stats, "v:AddmmBackward0.mat1").shared_with == "q:AddmmBackward0.mat1"


def test_a_relu_result_that_a_convolution_reads_costs_nothing_extra() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    x = torch.randn(4, 3, 16, 16)
    stats = assert_trains_the_same(model, lambda m: m(x).sum())
    relu, conv = _row(stats, "1:Relu"), _row(stats, "2:Conv")
    assert (relu.stored_bytes, relu.shared_with) == (0, conv.name)
    assert stats.stored_bytes == stats.raw_bytes


def test_freed_tensors_of_one_size_are_never_taken_for_each_other() -> None:
    w = torch.randn(32, 32, requires_grad=True)

    def run() -> Tensor:
        w.grad = None
        total = w.new_zeros(())
        for i in range(200):
            h = F.relu(w * (i - 100))
            total = total + (h * F.dropout(h, 0.5)).sum()
            del h
        total.backward()
        assert w.grad is not None
        return w.grad.clone()

    torch.manual_seed(1)
    plain = run()
    torch.manual_seed(1)
    with actzip.compress(method=KeepAll(), min_bytes=0):
        ours = run()
    assert torch.equal(ours, plain)


def test_a_square_tensor_and_its_transpose_are_told_apart() -> None:
    w = torch.randn(64, 64, requires_grad=True)

    def run() -> Tensor:
        w.grad = None
        h = w * 2
        (h.sin() * h.t().cos() + h.t().contiguous().exp() @ h).sum().backward()
        assert w.grad is not None
        return w.grad.clone()

    plain = run()
    with actzip.compress(method=KeepAll(), min_bytes=0):
        ours = run()
    assert torch.equal(ours, plain)


def test_slices_of_one_projection_are_one_stored_tensor() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(32, 96)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).view(4, 16, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
            return F.scaled_dot_product_attention(q, k, v).sum()

    x = torch.randn(4, 16, 32)
    stats = assert_trains_the_same(Packed(), lambda m: m(x), method=KeepAll())
    attention = [row for row in stats.sites if row.slot in ("query", "key", "value")]
    assert len(attention) == 3
    assert sum(row.stored_bytes > 0 for row in attention) == 1
    assert sum(row.raw_bytes > 0 for row in attention) == 1
