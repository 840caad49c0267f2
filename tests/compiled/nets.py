"""Small models of each architecture, and what compiled training of them gives."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import actzip
from actzip.tasks.models.decoder import Decoder
from actzip.tasks.models.encoder import Encoder
from actzip.tasks.models.resnet import resnet8
from actzip.tasks.models.unet import UNet
from actzip.tasks.models.vit import ViT

#: Eight bits everywhere: close to exact.
FINE = actzip.Fixed(actzip.codecs.Group(8, zero=True), actzip.codecs.Group(8))


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU())


def _cnn() -> nn.Module:
    norm = nn.BatchNorm2d(16)
    return nn.Sequential(nn.Conv2d(3, 16, 3), norm, nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU())


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "mlp": (_mlp, lambda: torch.randn(64, 64)),
    "cnn": (_cnn, lambda: torch.randn(8, 3, 16, 16)),
    "resnet": (resnet8, lambda: torch.randn(8, 3, 32, 32)),
    "vit": (
        lambda: ViT(32, 8, 64, 1, 4, 10),
        lambda: torch.randn(8, 3, 32, 32),
    ),
    "bert": (
        lambda: Encoder(64, 32, 64, 1, 4),
        lambda: torch.randint(1, 64, (8, 32)),
    ),
    "gpt": (
        lambda: Decoder(64, 32, 64, 1, 4),
        lambda: torch.randint(0, 64, (8, 32)),
    ),
    "unet": (
        lambda: UNet(width=8, levels=1),
        lambda: torch.randn(2, 3, 32, 32),
    ),
}


def make(name: str) -> tuple[nn.Module, Tensor]:
    model, batch = MODELS[name]
    return model(), batch()


def gradients(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Of one step; the seed fixes dropout."""
    torch.manual_seed(0)
    model.zero_grad()
    model(x).square().mean().backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return {name.removeprefix("_orig_mod."): g for name, g in found.items()}


def error(ours: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    """The squared error of the gradient as a whole, as a part of its square."""
    off = sum((ours[n] - g).double().square().sum().item() for n, g in exact.items())
    return off / sum(g.double().square().sum().item() for g in exact.values())


def saved_bytes(y: Tensor, model: nn.Module) -> int:
    """Bytes of the storages that a compiled forward returned for backward, beside parameters."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    node = y.grad_fn
    assert node is not None
    storages = [t.untyped_storage() for t in node.saved_tensors]  # type: ignore[attr-defined]
    found = {s.data_ptr(): s.nbytes() for s in storages}
    return sum(n for at, n in found.items() if at not in own)
