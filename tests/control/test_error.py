"""The predicted variance of gradients is the measured one: layers, on real activations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.autograd import slots
from actzip.codecs import Group
from actzip.codecs.base import Codec
from actzip.control.statistics import Statistics
from actzip.methods.base import Site, Stateless
from predictions import OneSite, Outcome, by_sample, check, error_variance, outcome
from trained import Caught, batch, caught, gradient_like, resnet, vit

CONV = ("ConvolutionBackward0", "input")
LINEAR = ("AddmmBackward0", "mat1")
BATCH = ("NativeBatchNormBackward0", "input")


def maps() -> Caught:
    """The input of a convolution, a ReLU's result, and the gradient at its output."""
    return caught("resnet")["stages.0.0.conv1"]


def tokens() -> Caught:
    return caught("vit")["blocks.1.mlp.0"]


def of_module(
    module: nn.Module,
    x: Tensor,
    real: Tensor,
    slot: tuple[str, str],
    code: Group,
    draws: int = 30,
) -> Outcome:
    with torch.no_grad():
        shape = tuple(module(x).shape)
    gy = real if tuple(real.shape) == shape else gradient_like(shape, real)
    return outcome(module, [x], list(module.parameters()), gy, OneSite(*slot, code), draws)


@pytest.mark.parametrize(
    "name", ["stem.0", "stages.0.0.conv2", "stages.1.0.conv1", "stages.1.0.shortcut.0"]
)
@pytest.mark.parametrize("code", [Group(2), Group(2, zero=True), Group(1)], ids=repr)
def test_the_networks_own_convolutions(name: str, code: Group) -> None:
    if name == "stem.0" and code.zero:
        pytest.skip("an image has hardly any zeros")
    layer = caught("resnet")[name]
    check(of_module(layer.module, layer.x, layer.gy, CONV, code, draws=60))


@pytest.mark.parametrize(
    "make",
    [
        lambda: (nn.Conv2d(8, 8, 3, padding=2, dilation=2), (8, 16, 16)),
        lambda: (nn.Conv2d(8, 6, 3, stride=3, padding=1), (8, 16, 16)),
        lambda: (nn.Conv2d(8, 8, 3, groups=2), (8, 16, 16)),
        lambda: (nn.Conv2d(8, 16, 5, padding=2, groups=8), (8, 16, 16)),
        lambda: (nn.ConvTranspose2d(8, 6, 3, 2, padding=1, output_padding=1), (8, 16, 16)),
        lambda: (nn.ConvTranspose2d(8, 4, 3, groups=2, dilation=2), (8, 16, 16)),
        lambda: (nn.ConvTranspose2d(8, 4, 3, dilation=3, output_padding=2), (8, 16, 16)),
        lambda: (nn.Conv1d(8, 8, 5, stride=3), (8, 256)),
        lambda: (nn.ConvTranspose1d(8, 4, 4, stride=2), (8, 256)),
        lambda: (nn.Conv3d(2, 4, 3, padding=1), (2, 4, 16, 16)),
        lambda: (nn.Conv3d(2, 4, (1, 3, 3), stride=(1, 2, 2)), (2, 4, 16, 16)),
        lambda: (nn.ConvTranspose3d(2, 3, 2, stride=2), (2, 4, 16, 16)),
    ],
    ids=[
        "dilated",
        "strided",
        "grouped",
        "depthwise",
        "transposed",
        "transposed-grouped",
        "transposed-output-padding",
        "1d",
        "transposed-1d",
        "3d",
        "3d-strided",
        "transposed-3d",
    ],
)
def test_every_kind_of_convolution(
    make: Callable[[], tuple[nn.Module, tuple[int, ...]]],
) -> None:
    module, shape = make()
    real = maps()
    x = real.x[:16].reshape(16, *shape)
    check(of_module(module, x, real.gy[:16], CONV, Group(2)))


def test_a_convolution_in_channels_last() -> None:
    real = maps()
    x = real.x.to(memory_format=torch.channels_last)
    check(of_module(real.module, x, real.gy, CONV, Group(2)))


def test_a_convolution_of_doubles() -> None:
    real = maps()
    module = nn.Conv2d(8, 8, 3, padding=1).double()
    check(of_module(module, real.x.double(), real.gy.double(), CONV, Group(2)))


@pytest.mark.parametrize("odd", [1, 7, 9])
def test_the_worst_case_of_a_strided_convolution_counts_every_position(odd: int) -> None:
    """Errors that all point the same way as the gradients reach the bound, never pass it."""
    module = nn.Conv2d(1, 1, 1, stride=2, bias=False)
    x = torch.rand(2, 1, odd, odd) + 1
    with torch.no_grad():
        gy = torch.ones_like(module(x))
    found = of_module(module, x, gy, CONV, Group(2))
    positions = gy.numel()
    assert float(found.reading.worst_parameter.sum()) >= positions**2  # Σ over all of 1·1, squared


@pytest.mark.parametrize("name", ["blocks.0.mlp.0", "blocks.1.attention.qkv", "blocks.1.mlp.3"])
def test_linear_layers_on_tokens(name: str) -> None:
    layer = caught("vit")[name]
    check(of_module(layer.module, layer.x, layer.gy, LINEAR, Group(2)))


def test_a_linear_layer_on_rows() -> None:
    layer = caught("resnet")["head"]
    check(of_module(layer.module, layer.x, layer.gy, LINEAR, Group(2), draws=60))


def test_a_linear_layer_on_four_dimensions() -> None:
    real = tokens()
    shape = (8, 4, 17, 64)
    gy = real.gy.reshape(8, 4, 17, 256)
    check(of_module(real.module, real.x.reshape(shape), gy, LINEAR, Group(2)))


def test_a_linear_layer_without_bias() -> None:
    real = tokens()
    module = nn.Linear(64, 256, bias=False)
    check(of_module(module, real.x, real.gy, ("MmBackward0", "self"), Group(2)))


def heads() -> tuple[Tensor, Tensor, Tensor]:
    """q and k of an attention layer (32, 2, 17, 32), and real gradients for their product."""
    layer = caught("vit")["blocks.1.attention.qkv"]
    y = layer.module(layer.x).detach()
    q, k, _ = (t.unflatten(-1, (2, -1)).transpose(1, 2).contiguous() for t in y.chunk(3, -1))
    return q, k, gradient_like((32, 2, 17, 17), layer.gy)


@pytest.mark.parametrize("slot", ["self", "mat2"])
def test_matmul_of_activations(slot: str) -> None:
    q, k, gy = heads()
    method = OneSite("BmmBackward0", slot, Group(2))
    check(outcome(lambda q, k: q @ k.transpose(-1, -2), [q, k], [], gy, method))


@pytest.mark.parametrize("slot", ["batch1", "batch2"])
def test_baddbmm(slot: str) -> None:
    q, k, gy = (t.flatten(0, 1) for t in heads())
    method = OneSite("BaddbmmBackward0", slot, Group(2))
    bias = torch.zeros(1, 17, 17)
    check(outcome(lambda q, k: torch.baddbmm(bias, q, k.mT), [q, k], [], gy, method))


def test_a_matmul_with_a_parameter_gives_the_error_to_the_parameter() -> None:
    real = tokens()
    weight = nn.Parameter(torch.randn(64, 24) / 8)
    gy = gradient_like((32, 17, 24), real.gy)
    method = OneSite("MmBackward0", "self", Group(2))
    found = outcome(lambda x: x @ weight, [real.x], [weight], gy, method)
    check(found)
    assert found.predicted_input == 0 < found.predicted_parameter


# -- norms: gγ has few numbers, so their variance needs many draws -----------------------------


def few(layer: Caught, samples: int = 12) -> tuple[Tensor, Tensor]:
    return layer.x[:samples], layer.gy[:samples]


@pytest.mark.parametrize("name", ["stages.0.0.bn1", "stages.1.0.bn2"])
def test_batch_norm(name: str) -> None:
    layer = caught("resnet")[name]
    check(of_module(layer.module.train(), *few(layer), BATCH, Group(4), draws=250))


def test_batch_norm_with_frozen_statistics() -> None:
    layer = caught("resnet")["stages.0.0.bn1"]
    module = nn.BatchNorm2d(8).eval()
    module.load_state_dict(layer.module.state_dict())
    found = of_module(module, *few(layer), BATCH, Group(4), draws=250)
    check(found)
    assert found.predicted_input == 0


def test_batch_norm_without_scale() -> None:
    layer = caught("resnet")["stages.0.0.bn1"]
    found = of_module(nn.BatchNorm2d(8, affine=False), *few(layer), BATCH, Group(4), draws=60)
    check(found)
    assert found.predicted_parameter == 0


def test_batch_norm_of_rows() -> None:
    layer = caught("vit")["blocks.1.mlp.0"]
    x, gy = layer.x.flatten(0, 1), layer.gy.flatten(0, 1)[:, :64].contiguous()
    check(of_module(nn.BatchNorm1d(64), x, gy, BATCH, Group(4), draws=120))


@pytest.mark.parametrize("name", ["blocks.0.norm1", "blocks.1.norm2"])
def test_layer_norm(name: str) -> None:
    layer = caught("vit")[name]
    slot = ("NativeLayerNormBackward0", "input")
    check(of_module(layer.module, *few(layer), slot, Group(4, 64), draws=200))


def test_layer_norm_without_scale() -> None:
    layer = caught("vit")["blocks.1.norm1"]
    slot = ("NativeLayerNormBackward0", "input")
    module = nn.LayerNorm(64, elementwise_affine=False)
    check(of_module(module, *few(layer), slot, Group(4, 64), draws=60))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_group_norm(affine: bool, memory: torch.memory_format) -> None:
    layer = caught("resnet")["stages.1.0.bn2"]
    x, gy = few(layer)
    module = nn.GroupNorm(4, 16, affine=affine)
    slot = ("NativeGroupNormBackward0", "input")
    x = x.to(memory_format=memory)
    # channels_last puts all channels in a group of the code: their errors are one large sum
    check(of_module(module, x, gy, slot, Group(4), draws=200))


# -- stochastic rounding ---------------------------------------------------------------------


@pytest.mark.parametrize("bits", [2, 4])
def test_stochastic_rounding_has_a_sixth_of_the_squared_step_and_never_more_than_a_quarter(
    bits: int,
) -> None:
    layer = caught("resnet")["stem.1"]  # before a ReLU: the fractions of a step are all there
    module = nn.Conv2d(8, 8, 3, padding=1)
    code = Group(bits, rounding="stochastic")
    found = of_module(module, layer.x, layer.gy, CONV, code, draws=40)
    assert found.parameter <= 1.5 * found.predicted_parameter
    if bits == 4:
        check(found)


# -- a whole network ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Linears(Stateless):
    """A code at the input of every convolution and linear layer, nothing elsewhere."""

    bits: int = 2
    seen: dict[str, tuple[Tensor, Group]] = field(default_factory=dict)

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        if (site.node, site.slot) not in (CONV, LINEAR):
            return None
        code = Group(self.bits, zero=site.relu)
        self.seen.setdefault(site.name, (tensor.detach().clone(), code))
        return code

    def begin(self, step: int, statistics: Statistics) -> bool:
        return step == 0


@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_every_layer_of_a_network_has_the_variance_that_was_predicted(kind: str) -> None:
    """Noise at an input of a linear op stays in that op's weights: all can be measured at once."""
    model = resnet() if kind == "resnet" else vit()
    x, y = batch(960)
    wanted = {n: p for n, p in model.named_parameters() if p.dim() > 1}

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad(F.cross_entropy(model(x), y), list(wanted.values())))

    exact = gradients()
    method = Linears()
    session = actzip.compress(model, method, min_bytes=0)
    draws, squares = 40, dict.fromkeys(wanted, 0.0)
    for _ in range(draws):
        for name, g, e in zip(wanted, gradients(), exact, strict=True):
            squares[name] += float((g - e).square().sum()) / draws
    readers = {r.name: r.shared_with or r.name for r in session.stats().sites if not r.reason}
    measured = dict.fromkeys(method.seen, 0.0)
    for name in wanted:
        for slot in (CONV, LINEAR):
            site = readers.get(f"{name.removesuffix('.weight')}:{slot[0]}.{slot[1]}", "")
            if site in measured:  # attention keeps its output, the next layer's input, as it is
                measured[site] += squares[name]
    assert len(measured) == (6 if kind == "resnet" else 8)
    for site, (tensor, code) in method.seen.items():
        r = session._statistics.of(site)
        assert r is not None, site
        s2 = by_sample(error_variance(code, tensor), tensor)
        predicted = float((s2 * r.parameter * r.parameter_focus).sum())
        assert measured[site] == pytest.approx(predicted, rel=0.1), site
    session.remove()


def test_what_has_no_formula_says_so() -> None:
    assert set(slots.op("ConvolutionBackward0").errors) == {"input"}
    assert slots.op("NoSuchBackward0").errors == {}
