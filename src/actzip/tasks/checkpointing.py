"""Checkpointing per block: what lies inside a block is computed again in backward, not kept."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from actzip.tasks.models import decoder, encoder, vit
from actzip.tasks.models.densenet import DenseNet
from actzip.tasks.models.pretrained import Pretrained
from actzip.tasks.models.resnet import BasicBlock, Bottleneck
from actzip.tasks.models.unet import UNet
from actzip.tasks.models.vgg import VGG

_BLOCKS = (BasicBlock, Bottleneck, vit.Block, encoder.Layer, decoder.Block)


class Recomputed(nn.Module):
    """A block that keeps its inputs only."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, *inputs: Any) -> Any:
        return checkpoint(self.block, *inputs, use_reentrant=False)


def recompute_blocks(model: nn.Module) -> int:
    """Wrap each residual block, stage or transformer block of `model`; how many there were.

    A model without blocks, a recurrent one, stays as it is.
    """
    if isinstance(model, Pretrained):
        return model.recompute()
    rows = {id(row) for row in _rows(model)}
    count = 0
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BLOCKS) or id(parent) in rows:
                setattr(parent, name, Recomputed(child))
                count += 1
    return count


def _rows(model: nn.Module) -> list[nn.Module]:
    """The rows of blocks that have no class of their own."""
    if isinstance(model, VGG):
        return [model.stages]
    if isinstance(model, DenseNet):
        return [model.blocks]
    if isinstance(model, UNet):
        return [model.down, model.merge]
    return []
