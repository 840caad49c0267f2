"""Division: which tensor gets which code, exact masks after ReLU, and what it costs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import actzip
from actzip import Division
from actzip.codecs import Dual, Group
from actzip.codecs.base import Codec
from actzip.methods import Role
from actzip.tasks.models.resnet import resnet50
from actzip.tasks.models.vit import ViT
from predictions import a_site


def pick(node: str, x: Tensor, role: Role = Role.LINEAR, relu: bool = False) -> Codec | None:
    return Division().codec(a_site(node, "input", role, relu), x)


def gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    model(x).square().sum().backward()
    found = [x.grad, *(p.grad for p in model.parameters())]
    model.zero_grad()
    return [g.clone() for g in found if g is not None]


MAP = torch.zeros(2, 4, 16, 16)
TOKENS = torch.zeros(2, 64, 96)


@pytest.mark.parametrize(
    ("node", "x", "role", "codec"),
    [
        ("ConvolutionBackward0", MAP, Role.LINEAR, Dual()),
        ("ConvolutionBackward0", torch.zeros(2, 4, 4, 5, 6), Role.LINEAR, Dual()),
        ("ConvolutionBackward0", torch.zeros(2, 4, 100), Role.LINEAR, Dual(block=64)),
        ("ConvolutionBackward0", torch.zeros(2, 4, 7, 7), Role.LINEAR, Group()),
        ("NativeBatchNormBackward0", MAP, Role.NONLINEAR, Dual()),
        ("NativeBatchNormBackward0", torch.zeros(64, 32), Role.NONLINEAR, Group()),
        ("NativeGroupNormBackward0", MAP, Role.NONLINEAR, Dual()),
        ("SiluBackward0", MAP, Role.NONLINEAR, Dual(bits=3)),
        ("AddmmBackward0", TOKENS, Role.LINEAR, Dual(block=64, axes=(1,))),
        ("MmBackward0", TOKENS, Role.LINEAR, Dual(block=64, axes=(1,))),
        ("AddmmBackward0", TOKENS[:, :63], Role.LINEAR, Group(3)),
        ("AddmmBackward0", torch.zeros(64, 32), Role.LINEAR, Group(3)),
        ("AddmmBackward0", torch.zeros(2, 9, 9, 32), Role.LINEAR, Dual(axes=(1, 2))),
        ("GeluBackward0", TOKENS, Role.NONLINEAR, Dual(block=64, bits=3, axes=(1,))),
        ("NativeLayerNormBackward0", TOKENS, Role.NONLINEAR, Group(3, 96)),
        ("NativeLayerNormBackward0", torch.zeros(2, 64, 384), Role.NONLINEAR, Group(3, 192)),
        ("ScaledDotProductFlashAttentionForCpuBackward0", torch.zeros(2, 3, 64, 32), Role.NONLINEAR,
         Dual(block=64, bits=4, axes=(2,))),
        ("ScaledDotProductFlashAttentionForCpuBackward0", torch.zeros(2, 3, 64, 32), Role.LINEAR,
         Dual(block=64, bits=4, axes=(2,))),
        ("SoftmaxBackward0", torch.zeros(2, 3, 64, 64), Role.NONLINEAR, Group(4)),
        ("BmmBackward0", torch.zeros(8, 64, 64), Role.LINEAR, Group()),
        ("MkldnnRnnLayerBackward0", torch.zeros(90, 8, 32), Role.NONLINEAR, Group(4)),
    ],
)  # fmt: skip
def test_a_tensor_gets_the_code_that_fits_its_shape_and_reader(
    node: str, x: Tensor, role: Role, codec: Codec
) -> None:
    picked = pick(node, x, role)
    assert picked == codec
    assert picked.decode(picked.encode(x)).shape == x.shape


def test_who_made_a_tensor_says_more_than_who_reads_it() -> None:
    """ConvNeXt: a LayerNorm over the channels of a convolution's map; and a GELU after Conv1d."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 32, 3), nn.LayerNorm(32)
            self.line = nn.Conv1d(3, 32, 3)

        def forward(self, x: Tensor) -> Tensor:
            first = self.norm(self.conv(x).permute(0, 2, 3, 1)).sum()
            return first + nn.functional.gelu(self.line(x.flatten(2))).sum()

    model = Both()
    with actzip.compress(model, method="division") as session:
        model(torch.randn(2, 3, 20, 20))
        codecs = {row.name: row.codec for row in session.stats().sites}
    assert codecs["norm:NativeLayerNormBackward0.input"] == "Dual(block=8, bits=3)"
    assert codecs[":GeluBackward0.self"] == "Dual(block=64, bits=3)"


def test_what_a_relu_made_has_a_code_for_zero() -> None:
    assert pick("ConvolutionBackward0", MAP, relu=True) == Dual(zero=True)
    assert pick("AddmmBackward0", torch.zeros(64, 32), relu=True) == Group(3, zero=True)
    assert pick("NativeBatchNormBackward0", MAP, Role.NONLINEAR, relu=True) == Dual(zero=True)


def test_original_has_no_limit_on_small_maps_and_no_blocks_along_sequences() -> None:
    method = Division(align="original", rounding="stochastic")
    site = a_site("ConvolutionBackward0", "input", Role.LINEAR)
    small = method.codec(site, torch.zeros(2, 4, 7, 7))
    assert small == Dual(align="original", rounding="stochastic")
    assert method.codec(site, torch.zeros(2, 4, 100)) == Group(rounding="stochastic")


@pytest.mark.parametrize("relu", ["zero", "mask"])
def test_relu_masks_are_exact(relu: str) -> None:
    """Only the weight's gradient may be off: the mask decides the gradient of the input."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    x = torch.randn(4, 3, 20, 20)
    plain = gradients(model, x)
    with actzip.compress(model, method="division", relu=relu) as session:
        ours = gradients(model, x)
        rows = {row.name: row for row in session.stats().sites}
    assert torch.equal(ours[0], plain[0])
    assert not torch.equal(ours[3], plain[3])
    mask = rows["1:ReluBackward0.result"]
    if relu == "zero":
        assert (mask.stored_bytes, mask.shared_with) == (0, "2:ConvolutionBackward0.input")
    else:
        assert mask.codec == "BitMask()"


@pytest.mark.parametrize("relu", ["zero", "mask"])
def test_zeros_of_a_relu_are_read_back_as_zeros(relu: str) -> None:
    """With "mask" the code itself has lost them: its averages are spread over the zeros."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    x = torch.randn(4, 3, 20, 20)
    made = model[:2](x).detach()
    with actzip.compress(model, method="division", relu=relu):
        read = model(x).grad_fn._saved_input.detach()
    assert torch.equal(read == 0, made == 0)
    assert float((read - made).abs().max()) > 0


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_gradients_of_convolutions_are_unbiased(memory_format: torch.memory_format) -> None:
    model = nn.Conv2d(4, 4, 3, bias=False).to(memory_format=memory_format)
    x = torch.randn(2, 4, 12, 12).contiguous(memory_format=memory_format)
    exact = gradients(model, x)[1]
    with actzip.compress(model, method="division", min_bytes=1):
        draws = torch.stack([gradients(model, x)[1] for _ in range(200)])
    error = draws.mean(0) - exact
    assert (error.abs() < 5 * draws.std(0) / 200**0.5).all()
    assert float(draws.std(0).mean()) > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_train_too(dtype: torch.dtype) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)
    )
    model, x = model.to(dtype), torch.randn(4, 3, 20, 20, dtype=dtype)
    plain = gradients(model, x)
    with actzip.compress(model, method="division", bits=8, norm=8):
        ours = gradients(model, x)
    for a, b in zip(ours, plain, strict=True):
        assert float((a - b).norm()) <= 0.05 * float(b.norm())


def test_autocast_stores_the_cast_maps_once() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    with actzip.compress(model, method="division") as session:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(torch.randn(4, 3, 20, 20))
        out.float().sum().backward()
        codecs = {row.name: row.codec for row in session.stats().sites}
    assert codecs["2:ConvolutionBackward0.input"] == "Dual(block=8, zero=True)"


def ratio(model: nn.Module, x: Tensor) -> float:
    with actzip.compress(model, method="division") as session:
        model(x)
        return session.stats().ratio


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_resnet50_is_stored_at_least_12_times_smaller(memory_format: torch.memory_format) -> None:
    model = resnet50().to(memory_format=memory_format)
    x = torch.randn(1, 3, 224, 224).contiguous(memory_format=memory_format)
    assert ratio(model, x) >= 12


def test_a_vision_transformer_is_stored_at_least_9_times_smaller() -> None:
    assert ratio(ViT(depth=2), torch.randn(2, 3, 224, 224)) >= 9


def test_bad_options_are_named() -> None:
    assert eval(repr(Division(bits=3, relu="mask"))) == Division(bits=3, relu="mask")
    with pytest.raises(ValueError, match=r"relu=….*'zero' or 'mask', got 'keep'"):
        Division(relu="keep")
    with pytest.raises(ValueError, match=r"nonlinear=….*1 to 8"):
        Division(nonlinear=9)
    with pytest.raises(ValueError, match=r"sequence_block=….*at least 1"):
        Division(sequence_block=0)
    with pytest.raises(ValueError, match="'ceil' or 'original'"):
        Division(align="floor")
    with pytest.raises(ValueError, match="dither"):
        Division(rounding="up")
    with pytest.raises(ValueError, match="no option blocks"):
        actzip.compress(nn.Linear(2, 2), method="division", blocks=3)
