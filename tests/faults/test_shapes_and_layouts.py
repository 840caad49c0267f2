"""Empty, tiny, strided, expanded and offset tensors; every floating dtype."""

import pytest
import torch
import torch.nn.functional as F
from nets import convnet, loss_of
from torch import Tensor, nn

import actzip
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
    assert_trains_the_same(model, lambda m: m(x).sum(), min_bytes=0)


def test_min_bytes_decides_what_is_small() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5))
    with actzip.compress(model, min_bytes=0) as session:
        model(torch.randn(4, 8)).sum().backward()
        assert session.stats().small_bytes == 0
        assert session.stats().compressed >= 2
