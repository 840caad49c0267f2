"""Bit planes of codes of 1 to 8 bits."""

from __future__ import annotations

import pytest
import torch

from actzip.kernels.reference import planes as reference
from actzip.kernels.triton import planes


@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_are_packed_as_in_the_reference(bits: int) -> None:
    for n in (1, 9, 32, 63, 17_000):
        codes = torch.randint(0, 1 << bits, (n,), dtype=torch.uint8)
        packed = planes.pack(codes, bits)
        assert torch.equal(packed, reference.pack(codes, bits))
        assert torch.equal(planes.unpack(packed, n, bits), codes)
