"""The task models have the shapes and sizes their names promise, and train."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actzip.tasks.models.decoder import Decoder
from actzip.tasks.models.densenet import DenseNet, densenet121, densenet161
from actzip.tasks.models.detector import Detector, places
from actzip.tasks.models.encoder import Encoder
from actzip.tasks.models.gan import Discriminator, Generator
from actzip.tasks.models.lstm import GRUClassifier, LSTMClassifier
from actzip.tasks.models.resnet import cifar_resnet, resnet18, resnet20, resnet50, resnet152
from actzip.tasks.models.unet import UNet
from actzip.tasks.models.vgg import VGG, vgg11, vgg16
from actzip.tasks.models.vit import ViT, vit_s16


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (resnet18, 11_689_512),
        (resnet50, 25_557_032),
        (resnet152, 60_192_808),
        (resnet20, 272_474),
        (vgg11, 132_863_336),
        (vgg16, 138_357_544),
        (densenet121, 7_978_856),
        (densenet161, 28_681_000),
        (vit_s16, 22_050_664),
        (Decoder, 124_439_808),
    ],
)
def test_published_configurations_have_the_published_size(
    build: Callable[[], nn.Module], expected: int
) -> None:
    with torch.device("meta"):
        assert parameters(build()) == expected


IMAGES = (3, 3, 32, 32)


def images() -> Tensor:
    return torch.randn(IMAGES)


def ids() -> Tensor:
    return torch.randint(0, 50, (3, 12))


TINY: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], tuple[int, ...]]] = {
    "resnet8": (lambda: cifar_resnet(8, classes=5, width=4), images, (3, 5)),
    "resnet18": (lambda: resnet18(classes=5, width=8), images, (3, 5)),
    "resnet50": (lambda: resnet50(classes=5, width=4), images, (3, 5)),
    "densenet161": (lambda: densenet161(classes=5, growth=4), images, (3, 5)),
    "vgg": (lambda: VGG(((8,), (8, 8)), 5, hidden=16, pooled=2), images, (3, 5)),
    "vgg_bn": (lambda: VGG(((8,), (8,)), 5, norm=True, hidden=16, pooled=2), images, (3, 5)),
    "densenet": (lambda: DenseNet((2, 2), growth=4, stem=8, classes=5), images, (3, 5)),
    "densenet_small": (
        lambda: DenseNet((2, 2), growth=4, stem=8, classes=5, small=True),
        images,
        (3, 5),
    ),
    "unet": (lambda: UNet(classes=5, width=4, levels=2), images, (3, 5, 32, 32)),
    "vit": (
        lambda: ViT(32, 8, width=16, depth=2, heads=2, classes=5, dropout=0.1),
        images,
        (3, 5),
    ),
    "encoder": (lambda: Encoder(50, 16, width=16, depth=2, heads=2, classes=5), ids, (3, 5)),
    "decoder": (lambda: Decoder(50, 16, width=16, depth=2, heads=2), ids, (3, 12, 50)),
    "lstm": (lambda: LSTMClassifier(50, width=8, classes=5), ids, (3, 5)),
    "gru": (lambda: GRUClassifier(50, width=8, classes=5), ids, (3, 5)),
    "generator": (
        lambda: Generator(8, image=16, width=4),
        lambda: torch.randn(3, 8),
        (3, 3, 16, 16),
    ),
    "discriminator": (lambda: Discriminator(image=32, width=4), images, (3,)),
}


@pytest.mark.parametrize("name", TINY)
def test_tiny_model_gives_its_shape_and_a_gradient_for_every_parameter(name: str) -> None:
    torch.manual_seed(0)
    build, inputs, shape = TINY[name]
    model = build().train()
    out = model(inputs())
    assert out.shape == shape
    (out * torch.randn_like(out)).sum().backward()
    for path, parameter in model.named_parameters():
        assert parameter.grad is not None, path
        assert parameter.grad.isfinite().all(), path


def test_decoder_does_not_see_the_future() -> None:
    torch.manual_seed(0)
    model = Decoder(50, 16, width=16, depth=2, heads=2).eval()
    a = torch.randint(0, 50, (1, 8))
    b = a.clone()
    b[0, -1] = (b[0, -1] + 1) % 50
    with torch.no_grad():
        torch.testing.assert_close(model(a)[:, :-1], model(b)[:, :-1])
        assert not torch.equal(model(a)[:, -1], model(b)[:, -1])


def test_decoder_head_and_embedding_are_one_parameter() -> None:
    model = Decoder(50, 16, width=16, depth=1, heads=2)
    assert model.head.weight is model.tokens.weight


@pytest.mark.parametrize(
    "build",
    [
        lambda: Encoder(50, 16, width=16, depth=2, heads=2),
        lambda: Encoder(50, 16, width=16, depth=2, heads=2, first=True),
        lambda: LSTMClassifier(50, width=16, depth=2),
        lambda: GRUClassifier(50, width=16),
    ],
)
def test_text_models_ignore_padding(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = build().eval()
    tokens = torch.randint(0, 50, (2, 10))
    keep = torch.arange(10).expand(2, 10) < 6
    other = tokens.masked_fill(~keep, 7)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens, keep), model(other, keep))


@pytest.mark.parametrize("side", [64, 50])
def test_detector_speaks_of_every_place_and_in_their_order(side: int) -> None:
    torch.manual_seed(0)
    model = Detector(3, width=8, depth=1, pyramid=16, tower=1)
    x = torch.randn(2, 3, side, side)
    said = model(x)
    where = places(side, side)
    count = len(where.points)
    assert count == sum((-(-side // stride)) ** 2 for stride in (4, 8, 16))
    assert said.logits.shape == (2, count, 3)
    assert said.distances.shape == (2, count, 4)
    assert said.centerness.shape == (2, count)
    assert (said.distances > 0).all()
    assert said.logits.sigmoid().mean().item() == pytest.approx(0.01, rel=0.2)
    # the gradient of a place's answer to the picture is centred near the place; convolutions
    # of stride 2 look a little to the top left
    x.requires_grad_()
    wanted = torch.tensor([0.3, 0.7]) * side
    index = int(((where.points - wanted).abs().sum(1) + 100 * (where.strides != 4)).argmin())
    model(x).logits[0, index].sum().backward()
    assert x.grad is not None
    power = x.grad[0].square().sum(0)
    grid = torch.arange(side) + 0.5
    middle = torch.stack([(power.sum(0) * grid).sum(), (power.sum(1) * grid).sum()]) / power.sum()
    place = where.points[index]
    assert (middle - place).norm() < 0.5 * (middle - place.flip(0)).norm()


def test_detector_has_a_gradient_for_every_parameter() -> None:
    torch.manual_seed(0)
    model = Detector(3, width=8, depth=1, pyramid=16, tower=1).train()
    said = model(torch.randn(2, 3, 32, 32))
    sum((each * torch.randn_like(each)).sum() for each in said).backward()
    for path, parameter in model.named_parameters():
        assert parameter.grad is not None, path
        assert parameter.grad.isfinite().all(), path


def test_a_small_resnet_learns_two_samples() -> None:
    torch.manual_seed(0)
    model = cifar_resnet(8, classes=2, width=4)
    x, y = torch.randn(2, 3, 8, 8), torch.tensor([0, 1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        loss = F.cross_entropy(model(x), y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: cifar_resnet(9), "6n \\+ 2"),
        (lambda: Detector(2, pyramid=20), "8 groups, got 20"),
        (lambda: ViT(image=30, patch=16), "tile the image"),
        (lambda: Generator(image=20), "side of 8, 16"),
        (lambda: UNet(width=2, levels=2)(torch.zeros(1, 3, 30, 32)), "multiples of 4"),
        (
            lambda: Decoder(50, 8, 16, 1, 2)(torch.zeros(1, 9, dtype=torch.long)),
            "length=9",
        ),
    ],
)
def test_impossible_sizes_are_refused_with_advice(
    build: Callable[[], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build()
