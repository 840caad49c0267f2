"""Training steps with and without actzip, compared bit for bit."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import actzip
from actzip.methods.base import Derives

Loss = Callable[[nn.Module], Tensor]


class Derived(actzip.Fixed):
    """A lossy method's derivation, from codes that lose nothing: bit-equal, but for norms."""

    derives = Derives.LOSSY


KEEP = actzip.Fixed(linear=actzip.codecs.Keep(), nonlinear=actzip.codecs.Keep())
DERIVED = Derived(linear=actzip.codecs.Keep(), nonlinear=actzip.codecs.Keep())
#: Methods under which every program must train bit for bit as in plain PyTorch.
EXACT = {"lossless": actzip.Lossless(), "keep": KEEP, "derived": DERIVED}


def gradients(model: nn.Module, loss: Loss, seed: int = 0) -> dict[str, Tensor]:
    """Gradients of one backward pass; the seed fixes dropout."""
    torch.manual_seed(seed)
    model.zero_grad()
    loss(model).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def train(model: nn.Module, loss: Loss, steps: int = 3) -> list[dict[str, Tensor]]:
    """Gradients of each of a few SGD steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    history = []
    for step in range(steps):
        history.append(gradients(model, loss, seed=step))
        optimizer.step()
    return history


def assert_equal(ours: dict[str, Tensor], plain: dict[str, Tensor]) -> None:
    assert ours.keys() == plain.keys()
    assert plain, "no gradient at all: the comparison would be empty"
    for name in plain:
        assert torch.equal(ours[name], plain[name]), f"{name} differs"


def assert_trains_the_same(
    model: nn.Module, loss: Loss, *, compresses: bool | None = True, **options: Any
) -> actzip.Stats:
    """Three steps with dropout on give the very bits that plain PyTorch gives.

    compresses  whether any tensor is in actzip's hands, without which plain is compared with plain;
                None: either will do
    """
    twin = copy.deepcopy(model)
    plain = train(twin, loss)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", actzip.ActzipWarning)
        session = actzip.compress(model, **options)
        ours = train(model, loss)
    for mine, theirs in zip(ours, plain, strict=True):
        assert_equal(mine, theirs)
    for (name, mine), (_, theirs) in zip(
        model.state_dict().items(), twin.state_dict().items(), strict=True
    ):
        assert torch.equal(mine, theirs), f"{name} differs after training"
    assert session.live_bytes == 0
    stats = session.stats()
    session.remove()
    if compresses is not None:
        assert bool(stats.compressed) is compresses, f"{stats.compressed} tensors were compressed"
    return stats
