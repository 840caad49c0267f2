"""Each formula that reads in slices gives what PyTorch's own gives for the same stored bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from sliced import LowBit, backward, both, close, count_slices, read_whole
from torch import Tensor, nn

LAST = torch.channels_last

CONVOLUTIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: nn.Conv1d(6, 8, 3, padding=1), (6, 6, 300)),
    "2d": (lambda: nn.Conv2d(6, 8, 3), (6, 6, 24, 20)),
    "3d": (lambda: nn.Conv3d(4, 6, 3, padding=1), (6, 4, 9, 10, 11)),
    "1x1": (lambda: nn.Conv2d(8, 16, 1), (6, 8, 20, 20)),
    "no bias": (lambda: nn.Conv2d(6, 8, 3, bias=False), (6, 6, 24, 20)),
    "strided": (lambda: nn.Conv2d(6, 16, 3, stride=2, padding=1), (6, 6, 24, 20)),
    "dilated": (lambda: nn.Conv2d(6, 8, 3, dilation=2, padding=2), (6, 6, 24, 20)),
    "grouped": (lambda: nn.Conv2d(6, 9, 3, groups=3), (6, 6, 24, 20)),
    "depthwise": (lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8), (6, 8, 24, 20)),
    "same": (lambda: nn.Conv2d(6, 8, (3, 5), padding="same"), (6, 6, 24, 20)),
    "valid": (lambda: nn.Conv2d(6, 8, 3, padding="valid"), (6, 6, 24, 20)),
    "circular": (lambda: nn.Conv2d(6, 8, 3, padding=1, padding_mode="circular"), (6, 6, 24, 20)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(6, 4, 4, stride=2), (6, 6, 300)),
    "transposed 2d": (
        lambda: nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1, groups=2),
        (6, 6, 12, 14),
    ),
    "transposed 3d": (lambda: nn.ConvTranspose3d(4, 3, 2, stride=2, bias=False), (6, 4, 7, 8, 9)),
    "seven samples": (lambda: nn.Conv2d(6, 8, 3), (7, 6, 24, 20)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution(name: str) -> None:
    make, shape = CONVOLUTIONS[name]
    ours, whole = both(make(), torch.randn(shape, requires_grad=True))
    close(ours, whole)


@pytest.mark.parametrize("name", ["2d", "1x1", "strided", "depthwise", "transposed 2d"])
def test_a_convolution_in_channels_last(name: str) -> None:
    make, shape = CONVOLUTIONS[name]
    x = torch.randn(shape).to(memory_format=LAST).requires_grad_()
    ours, whole = both(make().to(memory_format=LAST), x)
    close(ours, whole)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_slices_of_several_samples_add_nothing_to_the_rounding(name: str) -> None:
    """Sample by sample it is the same sum; the processor's kernel may only order it otherwise."""
    make, shape = CONVOLUTIONS[name]
    model, x = make(), torch.randn(shape, requires_grad=True)
    ours, whole = both(model, x, 2 * (x.numel() + model(x).numel()))
    assert ours[0] is not None
    assert whole[0] is not None
    assert (ours[0] - whole[0]).abs().max() <= 4 * torch.finfo(x.dtype).eps * whole[0].abs().max()


@pytest.mark.parametrize("frozen", ["input", "weight", "bias", "weight and bias"])
def test_only_the_gradients_that_are_asked_for_are_made(frozen: str) -> None:
    model = nn.Conv2d(6, 8, 3)
    model.weight.requires_grad_("weight" not in frozen)
    assert model.bias is not None
    model.bias.requires_grad_("bias" not in frozen)
    x = torch.randn(6, 6, 24, 20, requires_grad=frozen != "input")
    ours, whole = both(model, x)
    given = [g is not None for g in ours]
    assert given == [frozen != "input", "weight" not in frozen, "bias" not in frozen]
    close(ours, whole)


def test_16_bit_sums_are_made_in_32() -> None:
    """512 slices with a gradient of 1 each: bfloat16 alone would stay at 256."""
    model = nn.Conv2d(1, 1, 1).bfloat16()
    x = torch.ones(512, 1, 4, 4, dtype=torch.bfloat16)
    with count_slices() as counts:
        _, weight, bias = backward(model, x, LowBit(64), lambda y: y.sum() / 16)
    assert counts == [512]
    assert weight is not None
    assert bias is not None
    assert (float(weight), float(bias)) == (512, 512)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_batch_norm(affine: bool, dtype: torch.dtype) -> None:
    model = nn.BatchNorm2d(6, affine=affine).to(dtype)
    if affine:
        nn.init.normal_(model.weight, 1.0)
    x = (torch.randn(6, 6, 24, 20, dtype=torch.float64) * 3 + 50).to(dtype).requires_grad_()
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-12, torch.bfloat16: 2**-6}[dtype]
    ours, whole = both(model, x)
    close(ours, whole, tolerance)


def test_batch_norm_in_other_shapes_and_layouts() -> None:
    for model, x in (
        (nn.BatchNorm1d(300), torch.randn(64, 300)),
        (nn.BatchNorm1d(6), torch.randn(6, 6, 400)),
        (nn.BatchNorm2d(6), torch.randn(6, 6, 24, 20).to(memory_format=LAST)),
        (nn.BatchNorm3d(6), torch.randn(6, 6, 8, 7, 9)),
    ):
        close(*both(model, x.requires_grad_()))


def test_batch_norm_of_an_expanded_or_sliced_tensor() -> None:
    class Net(nn.Module):
        def __init__(self, view: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.view, self.norm = view, nn.BatchNorm2d(6)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.norm(self.view(x))
            return out

    close(
        *both(Net(lambda x: x.expand(6, 6, 24, 20)), torch.randn(6, 1, 24, 20, requires_grad=True))
    )
    close(*both(Net(lambda x: x[..., ::2]), torch.randn(6, 6, 24, 40, requires_grad=True)))


def test_batch_norm_with_frozen_statistics_or_without_an_input_gradient() -> None:
    class Frozen(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias)

    model = Frozen(6)
    assert model.running_mean is not None
    model.running_mean += 1
    close(*both(model, torch.randn(6, 6, 24, 20, requires_grad=True)))
    close(*both(nn.BatchNorm2d(6), torch.randn(6, 6, 24, 20)))


ACTIVATIONS = [
    nn.ReLU(),
    nn.ReLU(inplace=True),
    nn.LeakyReLU(0.2),
    nn.ReLU6(),
    nn.Hardswish(),
    nn.SiLU(),
    nn.GELU(),
    nn.GELU("tanh"),
]


@pytest.mark.parametrize("layout", [torch.contiguous_format, LAST])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_an_activation(activation: nn.Module, layout: torch.memory_format) -> None:
    model = nn.Sequential(nn.Conv2d(6, 6, 1), activation).to(memory_format=layout)
    x = torch.randn(6, 6, 24, 20).to(memory_format=layout).requires_grad_()
    with count_slices() as counts:
        backward(model, x, LowBit())
    assert len(counts) == 2, "the convolution and the activation"
    ours, whole = both(model, x)
    close(ours, whole)


@pytest.mark.parametrize("layout", [torch.contiguous_format, LAST])
@pytest.mark.parametrize(
    "pool",
    [nn.MaxPool2d(2), nn.MaxPool2d(3, 2, padding=1, dilation=1), nn.AvgPool2d(3, 2)],
    ids=repr,
)
def test_a_pool(pool: nn.Module, layout: torch.memory_format) -> None:
    x = torch.randn(6, 6, 24, 20).to(memory_format=layout).requires_grad_()
    (ours,), (whole,) = both(pool, x)
    assert ours is not None
    assert whole is not None
    assert torch.equal(ours, whole)
    assert ours.stride() == whole.stride()


def test_a_gradient_laid_out_otherwise_gives_the_ops_own_layout() -> None:
    x = torch.randn(6, 6, 24, 20).to(memory_format=LAST).requires_grad_()
    for loss in (torch.sum, lambda y: (y * torch.ones(y.shape)).sum()):
        with count_slices() as counts:
            (ours,) = backward(nn.SiLU(), x, LowBit(), loss)
        assert counts == [6]
        with read_whole():
            (whole,) = backward(nn.SiLU(), x, LowBit(), loss)
        assert ours is not None
        assert whole is not None
        assert torch.equal(ours, whole)
        assert ours.stride() == whole.stride()
