"""In which order a codec sees the elements of a tensor."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor

from actzip.codecs.memory_order import as_it_lies, dense_view, overlaps


def some_tensor(rng: random.Random) -> Tensor:
    """Permuted, with gaps, expanded, or none of it."""
    shape = [rng.choice((1, 2, 3, 5)) for _ in range(rng.randint(1, 5))]
    x = torch.arange(math.prod(shape)).view(shape)
    x = x.permute(rng.sample(range(x.dim()), x.dim()))
    dim = rng.randrange(x.dim())
    if rng.random() < 0.3:
        x = x.narrow(dim, 0, rng.randint(1, x.size(dim)))
    elif rng.random() < 0.2:
        x = x.unsqueeze(dim).expand(*x.shape[:dim], 3, *x.shape[dim:])
    return x


@pytest.mark.parametrize("leading", [0, 1, 2])
def test_a_view_in_memory_order_is_given_exactly_when_there_is_one(leading: int) -> None:
    rng, found = random.Random(leading), set()
    for _ in range(3000):
        x = some_tensor(rng)
        first = list(range(min(leading, x.dim())))
        rest = sorted(range(len(first), x.dim()), key=lambda d: (x.stride(d), x.size(d)))
        in_order = x.permute(*first, *reversed(rest))
        view = dense_view(x, logical=False, leading=leading)
        if x.is_contiguous():
            assert view is x
        elif in_order.is_contiguous():
            assert view is not None
            assert view.is_contiguous()
            assert view.data_ptr() == x.data_ptr()
            assert torch.equal(view, in_order)
        else:
            assert view is None
        found.add((x.is_contiguous(), view is None))
    assert len(found) == 3, "not every case came up"


def test_a_tensor_is_taken_as_it_lies_when_it_fills_its_memory() -> None:
    rng = random.Random(0)
    for _ in range(1000):
        x = some_tensor(rng)
        dense = dense_view(x, logical=False) is not None
        assert as_it_lies(x) is (x if dense else None)


def test_only_elements_that_share_memory_overlap() -> None:
    assert not overlaps(torch.zeros(4, 5).t())
    assert not overlaps(torch.zeros(4, 1).expand(4, 5))  # by expansion: each is written once
    assert overlaps(torch.zeros(10).unfold(0, 4, 2))
    assert not overlaps(torch.zeros(10).unfold(0, 4, 4))
    assert overlaps(torch.zeros(10).as_strided((3, 3), (1, 1)))
