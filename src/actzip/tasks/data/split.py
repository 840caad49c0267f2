"""Which examples are trained with and which are tested with."""

from __future__ import annotations

import torch
from torch import Tensor

TEST_SHARE = 0.2  #: of data that come without a split


def some(count: int, limit: int | None, seed: int) -> Tensor:
    """All of `count` indices in order, or `limit` of them that the seed chose."""
    if limit is None or limit >= count:
        return torch.arange(count)
    return shuffled(count, seed)[:limit].sort().values


def halves(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Indices to train with and to test with; both have one as soon as there are two."""
    order = shuffled(count, seed)
    test = min(max(1, round(count * TEST_SHARE)), count - 1)
    return order[test:], order[:test]


def shuffled(count: int, seed: int) -> Tensor:
    """The same order for the same seed; the user's random numbers are left alone."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))
