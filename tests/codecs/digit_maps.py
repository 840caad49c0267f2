"""What the layers of a really trained network keep: a small ResNet on the handwritten digits."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from actzip.tasks import digits
from actzip.tasks.models.resnet import resnet8

STEPS, BATCH, SIDE = 60, 64, 16


@functools.cache
def trained() -> tuple[nn.Module, float]:
    """The network after a few seconds of training, and its accuracy on the test images."""
    data = digits.load(SIDE, 0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = resnet8(digits.CLASSES, digits.CHANNELS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        batch = torch.randint(digits.TRAIN, (BATCH,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data.train_x[batch]), data.train_y[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        right = model(data.test_x).argmax(1) == data.test_y
    return model, float(right.float().mean())


@functools.cache
def activations() -> dict[str, Tensor]:
    """Inputs of its convolutions and BatchNorms for 256 training images, by layer."""
    model, _ = trained()
    seen: dict[str, Tensor] = {}
    handles = [
        layer.register_forward_pre_hook(
            lambda _, args, name=name: seen.update({name: args[0].detach()})
        )
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Conv2d | nn.BatchNorm2d)
    ]
    with torch.no_grad():
        model(digits.load(SIDE, 0).train_x[:256])
    for handle in handles:
        handle.remove()
    return seen
