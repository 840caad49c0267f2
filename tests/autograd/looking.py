"""A method that looks at every backward, and a small network to look at."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import actzip
from actzip.codecs import Group
from actzip.codecs.base import Codec
from actzip.control.reading import Reading
from actzip.control.statistics import Statistics
from actzip.methods.base import Role, Site, Stateless


@dataclass(frozen=True)
class Looking(Stateless):
    """8-bit codes everywhere; the steps named are looked at, or all of them."""

    steps: tuple[int, ...] | None = None
    roles: tuple[Role, ...] = (Role.LINEAR, Role.NONLINEAR)
    asked: list[str] = field(default_factory=list)

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        self.asked.append(site.name)
        return Group(8) if site.role in self.roles else None

    def begin(self, step: int, statistics: Statistics) -> bool:
        return self.steps is None or step in self.steps


def convnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 64, 10),
    )


def batch(n: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def of(session: actzip.Session, site: str) -> Reading:
    found = session._statistics.of(site)
    assert found is not None, (site, session._statistics.sites, session._statistics.missing)
    return found
