"""Networks of the usual sizes with real data: what one training step is measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actzip.tasks.data import load
from actzip.tasks.data.contract import PADDING
from actzip.tasks.data.pretrained_files import folder
from actzip.tasks.models.decoder import Decoder
from actzip.tasks.models.pretrained import Pretrained
from actzip.tasks.models.resnet import resnet50
from actzip.tasks.models.vgg import VGG, VGG16
from actzip.tasks.models.vit import ViT

Batches = list[tuple[Tensor, Tensor]]
DISTINCT = 12  #: batches, which then come again


@dataclass
class Network:
    """A model, its optimizer, and batches to step on."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Batches
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]


def pictures(count: int, side: int) -> tuple[Tensor, Tensor]:
    """Real pictures, enlarged."""
    data = load("digits" if side < 64 else "cifar10", "classify", limit=max(64, count))
    x, y = data.train.batch(torch.arange(count))
    x = x.expand(-1, 3, -1, -1)
    return F.interpolate(x, size=(side, side), mode="bicubic", antialias=True), y


def _classified(model: nn.Module, batch: int, side: int, last: bool = False) -> Network:
    x, y = pictures(batch * DISTINCT, side)
    if last:
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.contiguous(memory_format=torch.channels_last),
        )
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    batches = list(zip(x.split(batch), y.split(batch), strict=True))
    return Network(model, optimizer, batches, _cross_entropy)


def _cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x).flatten(0, -2), y.flatten())


def _masked(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x, x != PADDING), y)


def _resnet50(batch: int, tiny: bool) -> Network:
    return _classified(resnet50(10, width=4 if tiny else 64), batch, 32 if tiny else 224, True)


def _resnet50_nchw(batch: int, tiny: bool) -> Network:
    return _classified(resnet50(10, width=4 if tiny else 64), batch, 32 if tiny else 224)


def _vgg16(batch: int, tiny: bool) -> Network:
    model = VGG(((8,), (8,)), hidden=16) if tiny else VGG(VGG16)
    return _classified(model, batch, 32 if tiny else 224)


def _vit_s16(batch: int, tiny: bool) -> Network:
    return _classified(ViT(32, 8, 16, 2, 2) if tiny else ViT(), batch, 32 if tiny else 224)


def _gpt(batch: int, tiny: bool) -> Network:
    length, shape = (16, (16, 2, 2)) if tiny else (256, (768, 12, 12))
    batch = max(1, batch // 4)
    data = load("shakespeare", "lm", length=length, limit=batch * DISTINCT)
    model = Decoder(data.vocabulary, length, *shape)
    parts = torch.arange(batch * DISTINCT).split(batch)
    batches = [data.train.batch(part) for part in parts]
    return Network(model, torch.optim.AdamW(model.parameters(), 3e-4), batches, _cross_entropy)


def _minilm_lora(batch: int, tiny: bool) -> Network:
    count = 2 * batch * DISTINCT
    length = 16 if tiny else 128
    data = load("movie-reviews", "text", length=length, limit=count, tokens="minilm")
    model = Pretrained(folder("minilm"), len(data.classes), 0.1, 8)
    batches = [data.train.batch(part) for part in torch.arange(count).split(2 * batch)]
    trained = [p for p in model.parameters() if p.requires_grad]
    return Network(model, torch.optim.AdamW(trained, 2e-3), batches, _masked)


#: from a batch and whether it shall be tiny; the decoder has a quarter, the reviews twice as much
NETWORKS: dict[str, Callable[[int, bool], Network]] = {
    "resnet50": _resnet50,  # in channels_last, the layout in which oneDNN needs least scratch
    "vit_s16": _vit_s16,
    "gpt": _gpt,
    "minilm_lora": _minilm_lora,
    "vgg16": _vgg16,
    "resnet50_nchw": _resnet50_nchw,
}


def build(name: str, batch: int, tiny: bool = False) -> Network:
    """The same weights and batches in every process."""
    torch.manual_seed(0)
    return NETWORKS[name](batch, tiny)
