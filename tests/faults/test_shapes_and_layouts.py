"""Empty, tiny, strided, expanded and offset tensors; every floating dtype."""

import pytest
import torch
import torch.nn.functional as F
from nets import convnet, loss_of
from torch import Tensor, nn

import actzip
from actzip.codecs import Keep
from actzip.methods import ACGC, Auto, Comet, Division, Fixed, Lossless
from training import assert_trains_the_same


class Layouts(nn.Module):
    """ReLUs, pools and dropout on every kind of memory layout."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6, 8, 10))

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight * x
        views = [
            w,
            w.permute(0, 2, 3, 1),
            w[:, 1:, ::2, 1:9],
            w[:, :1].expand(4, 6, 8, 10),
            w.transpose(2, 3),
            w.contiguous(memory_format=torch.channels_last),
            w.flatten()[7:],
            w[0, 0, 0, 0],
        ]
        total = x.new_zeros(())
        for v in views:
            total = total + F.relu(v).square().sum() + F.leaky_relu(v).sin().sum()
            total = total + F.dropout(v, 0.3).sum() + F.hardtanh(v).exp().sum()
            total = total + (v * v.gt(0)).sum() + torch.where(v > 1, v, v.exp()).sum()
        pooled = F.max_pool2d(w.contiguous(memory_format=torch.channels_last), 2)
        return total + pooled.square().sum() + F.max_pool2d(w.transpose(2, 3), 2).sin().sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_every_layout_and_dtype_trains_bit_for_bit(dtype: torch.dtype) -> None:
    x = torch.randn(4, 6, 8, 10, dtype=dtype)
    assert_trains_the_same(Layouts().to(dtype), lambda m: m(x), min_bytes=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_convnet_trains_bit_for_bit_in_every_dtype(dtype: torch.dtype) -> None:
    stats = assert_trains_the_same(convnet().to(dtype), loss_of(dtype=dtype))
    assert stats.ratio > 1.0


@pytest.mark.parametrize("shape", [(0, 8), (1, 8), (5, 0, 8), (8,)])
def test_empty_and_tiny_batches_train_bit_for_bit(shape: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    x = torch.randn(shape)
    some = bool(x.numel())
    assert_trains_the_same(model, lambda m: m(x).sum(), min_bytes=0, compresses=some)


METHODS = ["lossless", "actnn", "division", "comet", "acgc", "auto"]


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
@pytest.mark.parametrize("derive", [None, True])
@pytest.mark.parametrize("method", METHODS)
def test_empty_tensors_go_through_every_method(method: str, derive: bool | None) -> None:
    """A part of a batch that nothing was routed to, beside one that has rows."""
    model = nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.GELU())
    model.append(nn.Conv1d(4, 2, 1))
    head = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 3))
    x = torch.randn(6, 2, 8)

    def loss() -> Tensor:
        h = model(x)
        return head(h[x[:, 0, 0] > 9]).exp().sum() + head(h).square().mean()

    with actzip.compress(method=method, min_bytes=0, derive=derive) as session:
        for _ in range(4):  # what is learned in one pass is used in the next
            loss().backward()
        reasons = {row.reason for row in session.stats().sites}
    assert "an empty tensor takes no memory" in reasons
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
@pytest.mark.parametrize("length", [8, 4])
@pytest.mark.parametrize("method", [ACGC(e2=1e-4), Comet(1e-3, scope="all"), Division(), Auto()])
def test_ops_that_see_other_channels_in_one_tensor(method: actzip.Method, length: int) -> None:
    """A BatchNorm has them in dimension 1, a GELU of three dimensions in the last."""
    first, norm = nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4)
    x = torch.randn(6, 2, length)

    def gradient() -> Tensor:
        h = first(x)
        return torch.autograd.grad((norm(h) * F.gelu(h)).square().sum(), first.weight)[0]

    plain = gradient()
    with actzip.compress(method=method, min_bytes=0):
        for _ in range(4):
            ours = gradient()
    assert ours.isfinite().all()
    if isinstance(method, ACGC | Comet):
        assert (ours - plain).norm() <= 0.05 * plain.norm()


def test_min_bytes_decides_what_is_small() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5))
    with actzip.compress(model, min_bytes=0) as session:
        model(torch.randn(4, 8)).sum().backward()
        assert session.stats().small_bytes == 0
        assert session.stats().compressed >= 2


@pytest.mark.parametrize("method", [Fixed(Keep(), Keep()), Lossless()])
def test_a_number_of_pythons_stays_one_when_nothing_is_too_small(method: actzip.Method) -> None:
    """Autograd saves 0.9 as a float64 tensor that promotes nothing; one of ours would make the
    gradient of a float32 number float64 on its way."""
    x = torch.linspace(0.1, 1.0, 64).requires_grad_()

    def gradients() -> list[Tensor]:
        products = [(p.sin() * 0.9).tanh() * 1.7 for p in x]
        return [torch.autograd.grad(p, x, retain_graph=True)[0] for p in products]

    plain = gradients()
    with actzip.compress(method=method, min_bytes=0):
        ours = gradients()
    assert all(map(torch.equal, ours, plain))
