"""Checkpointing per block: the same gradients, fewer tensors, every family."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from actzip.memory.measure import measure
from actzip.tasks.checkpointing import recompute_blocks
from actzip.tasks.models.decoder import Decoder
from actzip.tasks.models.densenet import DenseNet
from actzip.tasks.models.detector import Detector
from actzip.tasks.models.encoder import Encoder
from actzip.tasks.models.lstm import LSTMClassifier
from actzip.tasks.models.resnet import cifar_resnet, resnet50
from actzip.tasks.models.unet import UNet
from actzip.tasks.models.vgg import VGG
from actzip.tasks.models.vit import ViT

FAMILIES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet8": (lambda: cifar_resnet(8, width=8), 3),
    "resnet50": (lambda: resnet50(10, width=8), 16),
    "vgg": (lambda: VGG(((8,), (8, 8)), 5, hidden=16, pooled=2, dropout=0.2), 2),
    "densenet": (lambda: DenseNet((2, 2), growth=4, stem=8, classes=5), 3),
    "unet": (lambda: UNet(5, width=8, levels=2), 4),
    "vit": (lambda: ViT(32, 8, width=16, depth=2, heads=2, classes=5, dropout=0.1), 2),
    "encoder": (lambda: Encoder(50, 16, width=16, depth=2, heads=2), 2),
    "decoder": (lambda: Decoder(50, 16, width=16, depth=2, heads=2), 2),
    "fcos": (lambda: Detector(2, width=8, depth=2, pyramid=16, tower=1), 6),
}


def inputs(name: str) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    if name in ("encoder", "decoder"):
        return torch.randint(0, 50, (4, 16), generator=rng)
    return torch.randn(4, 3, 32, 32, generator=rng)


def gradients(model: nn.Module, x: Tensor) -> tuple[list[Tensor], int]:
    """The gradients of a step, and the bytes held between forward and backward."""
    torch.manual_seed(1)
    with measure() as forward:
        out = model.train()(x)
        loss = sum(each.square().mean() for each in out) if isinstance(out, tuple) else out.mean()
    assert isinstance(loss, Tensor)
    loss.backward()
    return [p.grad for p in model.parameters() if p.grad is not None], forward.live_end


@pytest.mark.parametrize("name", FAMILIES)
def test_blocks_are_found_and_give_the_same_gradients_from_less(name: str) -> None:
    build, expected = FAMILIES[name]
    torch.manual_seed(0)
    plain = build()
    torch.manual_seed(0)
    model = build()
    assert recompute_blocks(model) == expected
    exact, held = gradients(plain, inputs(name))
    again, less = gradients(model, inputs(name))
    assert len(exact) == len(again) > 0
    for a, b in zip(exact, again, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    assert less < 0.9 * held


def test_a_model_without_blocks_stays_as_it_is() -> None:
    model = LSTMClassifier(50, width=8)
    before = list(model.state_dict())
    assert recompute_blocks(model) == 0
    assert list(model.state_dict()) == before
