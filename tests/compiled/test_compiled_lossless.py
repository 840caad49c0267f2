"""`lossless` changes no bit of what a compiled model does by itself, over several steps.

With a backend that takes ops apart as inductor does and compiles no C++. With inductor itself, on
one thread, the same was tried by hand: docs/compile.md says for which models.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import actzip
from actzip.tasks.models.decoder import Decoder
from actzip.tasks.models.encoder import Encoder
from actzip.tasks.models.resnet import resnet18
from actzip.tasks.models.unet import UNet
from actzip.tasks.models.vit import ViT

TEXT = {"gpt", "bert"}
MODELS = {
    "gpt": lambda: Decoder(64, 32, 64, 1, 4, 0.1),
    "bert": lambda: Encoder(64, 32, 64, 1, 4),
    "vit": lambda: ViT(32, 8, 64, 1, 4, 10),
    "resnet18": lambda: resnet18(10, width=8),
    "unet": lambda: UNet(width=8, levels=1),
}
SHAPES = [(4, 32), (6, 24), (3, 17)]


def _trained(model: nn.Module, name: str, hard: bool) -> list[Tensor]:
    """Losses and gradients of three steps of SGD; `hard`: in bf16, and shapes change."""
    torch._dynamo.reset()
    call = torch.compile(model, backend="aot_eager_decomp_partition", dynamic=hard or None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for step in range(3):
        torch.manual_seed(step)
        batch, length = SHAPES[step if hard else 0]
        text = torch.randint(1, 64, (batch, length))
        x = text if name in TEXT else torch.randn(batch, 3, 32, 32)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=hard):
            loss = call(x).float().square().mean()
        loss.backward()
        found += [
            loss.detach(),
            *(p.grad.clone() for p in model.parameters() if p.grad is not None),
        ]
        optimizer.step()
    return found


@pytest.mark.parametrize("hard", [False, True], ids=["float, static", "bf16, dynamic"])
@pytest.mark.parametrize("name", MODELS)
def test_three_steps_have_the_bits_of_the_compiled_model(name: str, hard: bool) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = MODELS[name]()
        expected = _trained(copy.deepcopy(model), name, hard)
        with actzip.compress(model, min_bytes=0) as session:
            ours = _trained(model, name, hard)
            assert session.stats().sites
    finally:
        torch.set_num_threads(threads)
    assert len(expected) == len(ours)
    assert all(torch.equal(a, b) for a, b in zip(expected, ours, strict=True))
