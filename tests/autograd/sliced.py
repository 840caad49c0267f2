"""Backward in micro-batches, and the same stored bytes read whole, for comparison."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from unittest import mock

import torch
from torch import Tensor, nn

import actzip
from actzip.autograd import forward_pass
from actzip.autograd.sliced_tensor import Sliced
from actzip.codecs import Codec, Group
from actzip.methods.base import Role, Site, Stateless

Grads = list[Tensor | None]


@dataclass(frozen=True)
class LowBit(Stateless):
    """Two bits for linear sites, four for curved ones; backward in slices over `slice_bytes`."""

    slice_bytes: int | None = 20_000

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        return Group(2 if site.role is Role.LINEAR else 4, zero=site.relu)


@contextlib.contextmanager
def read_whole() -> Iterator[None]:
    """What is stored in parts is decoded at once and given to PyTorch's own backward."""
    with mock.patch.object(forward_pass, "read", lambda reader, parts: reader.unpack()):
        yield


@contextlib.contextmanager
def count_slices() -> Iterator[list[int]]:
    """Collects, for each time a tensor was read in slices, how many there were."""
    counts: list[int] = []
    plain = Sliced.slices

    def counting(self: Sliced) -> Iterator[tuple[int, int, Tensor]]:
        counts.append(0)
        for item in plain(self):
            counts[-1] += 1
            yield item
            del item

    with mock.patch.object(Sliced, "slices", counting):
        yield counts


def backward(
    model: nn.Module, x: Tensor, method: LowBit, loss: Callable[[Tensor], Tensor] | None = None
) -> Grads:
    """Gradients of x (where it wants one) and of the parameters; nothing stays behind."""
    model.zero_grad()
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_(x.requires_grad)
    session = actzip.compress(model, method)
    try:
        y = model(x)
        (loss(y) if loss else (y.float() * weights(y)).sum()).backward()
        del y
        assert session.live_bytes == 0
    finally:
        session.remove()
    return [x.grad, *(None if p.grad is None else p.grad.clone() for p in model.parameters())]


def weights(y: Tensor) -> Tensor:
    """Fixed numbers, so that the gradient at the output is not the same everywhere."""
    return torch.randn(y.shape, generator=torch.Generator().manual_seed(0))


def both(model: nn.Module, x: Tensor, slice_bytes: int = 20_000) -> tuple[Grads, Grads]:
    """Gradients in slices, and those of the same payloads read whole."""
    method = LowBit(slice_bytes)
    with count_slices() as counts:
        ours = backward(model, x, method)
    assert max(counts, default=0) > 1, "nothing was read in slices"
    with read_whole():
        return ours, backward(model, x, method)


def blocks(width: int = 16) -> nn.Sequential:
    """What a CNN is made of."""
    return nn.Sequential(
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, width, 1),
    )


def batch(samples: int = 8, width: int = 16, side: int = 32) -> Tensor:
    return torch.randn(samples, width, side, side)


def close(ours: Grads, whole: Grads, tolerance: float = 1e-5) -> None:
    for mine, theirs in zip(ours, whole, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            assert (mine.dtype, mine.stride()) == (theirs.dtype, theirs.stride())
            error = (mine.double() - theirs.double()).norm()
            assert float(error) <= tolerance * float(theirs.double().norm())
