"""What the native kernels keep from call to call does not grow with the steps."""

from __future__ import annotations

import pytest
import torch

from actzip.codecs import Group, group
from actzip.kernels.native import library


def test_tables_of_bits_for_each_sample_are_not_kept() -> None:
    if not library.available():
        pytest.skip("needs the native library")
    x = torch.randn(8, 512)
    for bits in (2, 3):  # these repeat, and are kept
        Group(bits=bits).encode(x, seed=0)
    kept = group._known.cache_info().currsize
    for seed in range(20):
        drawn = torch.randint(1, 5, (8,), generator=torch.Generator().manual_seed(seed)).tolist()
        codec = Group(bits=(1, 2, *drawn[2:]))
        assert torch.equal(codec.decode(codec.encode(x, seed=seed)) != 0, x != 0)
    assert group._known.cache_info().currsize == kept
