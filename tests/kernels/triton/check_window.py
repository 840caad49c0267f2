"""Places of max-pool indices, in one to three dimensions and in channels_last."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from agreement import assert_same

from actzip.codecs import PayloadError, Window

POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
GEOMETRY = [
    ((3,), (2,), (1,), (1,), (11,)),
    ((2, 2), (2, 2), (0, 0), (1, 1), (8, 10)),
    ((3, 4), (2, 1), (1, 2), (2, 1), (9, 12)),
    ((2, 3, 1), (2, 1, 1), (1, 1, 0), (1, 2, 1), (5, 6, 7)),
]


@pytest.mark.parametrize("geometry", GEOMETRY)
def test_places(geometry: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, stride, padding, dilation, size = geometry
    x = torch.randn(2, 3, *size)
    _, indices = POOLS[len(size)](x, kernel, stride, padding, dilation, return_indices=True)
    assert_same(Window(*geometry), indices, 0, monkeypatch)
    if len(size) == 2:
        last = indices.contiguous(memory_format=torch.channels_last)
        assert_same(Window(*geometry), last, 0, monkeypatch)


def test_what_does_not_fit_is_refused() -> None:
    codec = Window((3, 3), (2, 2), (1, 1), (1, 1), (9, 9))
    _, indices = F.max_pool2d(torch.randn(2, 4, 9, 9), 3, 2, 1, return_indices=True)
    payload = codec.encode(indices)
    assert torch.equal(codec.decode(payload), indices)
    for wrong in (80, -1, 81, 2**40):
        broken = indices.clone()
        broken[0, 0, 0, 0] = wrong
        with pytest.raises(ValueError, match="outside its window"):
            codec.encode(broken)
    payload.data.fill_(255)
    with pytest.raises(PayloadError, match="outside the window"):
        codec.decode(payload)
