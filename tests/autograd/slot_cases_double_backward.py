"""Ops differentiated twice: what a gradient penalty stores."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from slot_case import CUBE, MAP, ROWS, case, const, ids
from torch import Tensor


def twice(name: str, f: Callable[..., Tensor], *shapes: tuple[int, ...], last: bool = True) -> None:
    """The gradients of f's inputs, from a gradient that depends on them, too."""

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(f(*inputs).square().sum(), inputs, create_graph=True)

    case(f"{name}, twice", run, *shapes, half=False, last=last)


def _batch_norm(x: Tensor, w: Tensor) -> Tensor:
    return F.batch_norm(x, x.new_zeros(8), x.new_ones(8), w, training=True)


classes, maps = const(48), const(8)
targets, pixels, words = ids(48, 64), ids(8, 4, 12, 12), ids(64, 256)

twice("relu", torch.relu)
twice("leaky_relu", F.leaky_relu)
twice("hardtanh", F.hardtanh)
twice("hardswish", F.hardswish)
twice("elu", F.elu)
twice("gelu", F.gelu)
twice("glu", F.glu)
twice("softplus", F.softplus)
twice("sigmoid", torch.sigmoid)
twice("tanh", torch.tanh)
twice("softmax", lambda x: x.softmax(-1))
twice("log_softmax", lambda x: x.log_softmax(-1))
twice("conv2d", lambda x, w: F.conv2d(x, w, padding=1), MAP, (8, 8, 3, 3))
twice("batch_norm", _batch_norm, MAP, (8,))
twice("layer_norm", lambda x, w: F.layer_norm(x, (48,), w), ROWS, (48,))
twice("max_pool2d", lambda x: F.max_pool2d(x, 2), MAP)
twice("max_pool3d", lambda x: F.max_pool3d(x, 2), CUBE)
twice("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 5), MAP)
twice("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, 3), CUBE)
twice("mse_loss", lambda x: F.mse_loss(x, x.detach() + 1, reduction="none"))
twice("nll_loss", lambda x: F.nll_loss(x, targets, classes(x), reduction="none"))
twice("nll_loss2d", lambda x: F.nll_loss(x, pixels, maps(x), reduction="none"), MAP, last=False)
twice("embedding", lambda x: F.embedding(words, x))
