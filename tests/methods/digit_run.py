"""Short training runs on the digits, compared step by step with the exact gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from actzip.tasks import digits
from actzip.tasks.models.resnet import cifar_resnet
from actzip.tasks.models.vit import ViT

SIDE = 16
BATCH = 32


def batches(seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    split = digits.load(SIDE)
    rng = torch.Generator().manual_seed(seed)
    while True:
        at = torch.randint(0, len(split.train_x), (BATCH,), generator=rng)
        yield split.train_x[at], split.train_y[at]


def resnet() -> nn.Module:
    torch.manual_seed(0)
    return cifar_resnet(8, 10, 1, width=8)


def plain() -> nn.Module:
    """Convolutions without norms: nothing travels."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def transformer() -> nn.Module:
    torch.manual_seed(0)
    return ViT(SIDE, 4, 32, 2, 2, 10, 1, 0.0)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=5e-4)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 1e-3)


@dataclass
class Checks:
    """Relative squared gradient errors, of each layer and of all together, at every check."""

    layers: list[dict[str, float]] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)

    @property
    def worst(self) -> tuple[float, str]:
        return max((error, name) for found in self.layers for name, error in found.items())

    @property
    def mean(self) -> float:
        return sum(self.totals) / len(self.totals)

    def add(self, ours: nn.Module, exact: nn.Module) -> None:
        error: dict[str, float] = {}
        signal: dict[str, float] = {}
        for (name, p), q in zip(ours.named_parameters(), exact.parameters(), strict=True):
            assert p.grad is not None
            assert q.grad is not None
            layer = name.rpartition(".")[0] or name
            difference = (p.grad - q.grad).double().square().sum()
            error[layer] = error.get(layer, 0.0) + float(difference)
            signal[layer] = signal.get(layer, 0.0) + float(q.grad.double().square().sum())
        self.layers.append({n: error[n] / signal[n] for n in error if signal[n] > 0})
        self.totals.append(sum(error.values()) / sum(signal.values()))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> float:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def checked_run(
    build: Callable[[], nn.Module],
    optimize: Callable[[nn.Module], torch.optim.Optimizer],
    method: actzip.Method,
    steps: int,
    every: int,
) -> tuple[Checks, actzip.Session]:
    """Train, and every few steps compare with the exact gradients of the same batch."""
    model, twin = build(), build()
    optimizer = optimize(model)
    session = actzip.compress(model, method=method, optimizer=optimizer)
    found, data = Checks(), batches()
    for i in range(steps):
        x, y = next(data)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if i % every == every - 1:
            twin.load_state_dict(copy.deepcopy(model.state_dict()))
            twin.zero_grad()
            F.cross_entropy(twin(x), y).backward()
            found.add(model, twin)
        optimizer.step()
    return found, session


def assert_resumes(method: actzip.Method, steps: int = 6) -> None:
    """A run that is resumed at any step goes on bit for bit."""
    data = batches()
    given = [next(data) for _ in range(steps)]
    model = resnet()
    optimizer = sgd(model)
    losses, states = [], []
    with actzip.compress(model, method=method, optimizer=optimizer) as session:
        for x, y in given:
            parts = (model.state_dict(), optimizer.state_dict(), session.state_dict())
            states.append(copy.deepcopy(parts))
            losses.append(step(model, optimizer, x, y))
    for point, (weights, momentum, learned) in enumerate(states):
        again = resnet()
        again.load_state_dict(weights)
        optimizer = sgd(again)
        optimizer.load_state_dict(momentum)
        with actzip.compress(again, method=method, optimizer=optimizer, seed=7) as session:
            session.load_state_dict(learned)
            for (x, y), loss in zip(given[point:], losses[point:], strict=True):
                assert step(again, optimizer, x, y) == loss, f"resumed at {point}"
