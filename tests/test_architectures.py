"""Lossless gradients equal plain PyTorch's bit for bit, on whole models with dropout on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.tasks.models import (
    decoder,
    densenet,
    encoder,
    gan,
    lstm,
    resnet,
    unet,
    vgg,
    vit,
)
from training import assert_equal, assert_trains_the_same, gradients

Case = tuple[nn.Module, Callable[[nn.Module], Tensor]]


def _pictures(model: nn.Module, size: int = 32, batch: int = 4, classes: int = 10) -> Case:
    x = torch.randn(batch, 3, size, size)
    y = torch.randint(0, classes, (batch,))
    return model, lambda m: F.cross_entropy(m(x), y)


def _tokens(model: nn.Module, classes: int = 2) -> Case:
    x = torch.randint(1, 100, (4, 24))
    y = torch.randint(0, classes, (4,))
    return model, lambda m: F.cross_entropy(m(x), y)


def _next_token(model: nn.Module) -> Case:
    x = torch.randint(0, 100, (4, 25))
    return model, lambda m: F.cross_entropy(m(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def _segment(model: nn.Module) -> Case:
    x, y = torch.randn(2, 3, 32, 32), torch.randint(0, 3, (2, 32, 32))
    return model, lambda m: F.cross_entropy(m(x), y)


CASES: dict[str, Callable[[], Case]] = {
    "resnet18": lambda: _pictures(resnet.resnet18(10, width=16), 64),
    "resnet50": lambda: _pictures(resnet.resnet50(10, width=16), 64),
    "resnet20": lambda: _pictures(resnet.resnet20()),
    "vgg": lambda: _pictures(
        vgg.VGG([[16], [32, 32], [64]], classes=10, hidden=64, pooled=2, dropout=0.5)
    ),
    "densenet": lambda: _pictures(densenet.DenseNet((2, 2, 2), growth=8, stem=16, classes=10)),
    "unet": lambda: _segment(unet.UNet(3, width=8, levels=2)),
    "vit": lambda: _pictures(
        vit.ViT(image=32, patch=8, width=48, depth=2, heads=4, classes=10, dropout=0.1)
    ),
    "encoder": lambda: _tokens(
        encoder.Encoder(vocabulary=100, length=32, width=48, depth=2, heads=4)
    ),
    "decoder": lambda: _next_token(
        decoder.Decoder(vocabulary=100, length=32, width=48, depth=2, heads=4)
    ),
    "lstm": lambda: _tokens(lstm.LSTMClassifier(vocabulary=100, width=48)),
    "gru": lambda: _tokens(lstm.GRUClassifier(vocabulary=100, width=48)),
}


@pytest.mark.parametrize("name", CASES)
def test_lossless_trains_bit_for_bit(name: str) -> None:
    model, loss = CASES[name]()
    stats = assert_trains_the_same(model, loss)
    assert not stats.unknown, f"no rule for {dict(stats.unknown)}"
    assert stats.ratio > 1.0, "dropout or ReLU is there: something must be smaller"


@pytest.mark.parametrize("name", ["resnet18", "unet", "vgg"])
def test_channels_last_trains_bit_for_bit(name: str) -> None:
    model, loss = CASES[name]()
    assert_trains_the_same(model.to(memory_format=torch.channels_last), loss)


@pytest.mark.parametrize("name", ["resnet18", "vit", "encoder", "decoder"])
def test_autocast_trains_bit_for_bit(name: str) -> None:
    model, loss = CASES[name]()

    def autocast(m: nn.Module) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss(m)

    stats = assert_trains_the_same(model, autocast)
    assert stats.ratio > 1.0


def test_gan_step_with_two_sessions_is_bit_for_bit() -> None:
    def run(compressed: bool) -> list[dict[str, Tensor]]:
        torch.manual_seed(0)
        maker = gan.Generator(latent=16, image=16, width=8)
        judge = gan.Discriminator(image=16, width=8)
        sessions = [actzip.compress(m) for m in (maker, judge)] if compressed else []
        real = torch.randn(4, 3, 16, 16)
        steps: list[dict[str, Tensor]] = []
        for step in range(3):
            z = torch.randn(4, 16, generator=torch.Generator().manual_seed(step))

            def judged(m: nn.Module, z: Tensor = z) -> Tensor:
                fake = m(maker(z).detach())
                return F.softplus(-m(real)).mean() + F.softplus(fake).mean()

            def fooled(m: nn.Module, z: Tensor = z) -> Tensor:
                return F.softplus(-judge(m(z))).mean()

            steps += [gradients(judge, judged, step), gradients(maker, fooled, step)]
        for session in sessions:
            assert session.live_bytes == 0
            session.remove()
        return steps

    for ours, plain in zip(run(True), run(False), strict=True):
        assert_equal(ours, plain)
