"""What a CUDA graph may hold: no read by the host, and no memory whose size follows from values.

A graph is captured once and replayed with other values in the same memory. There is no GPU here: an
encode and a decode of two tensors of one shape must ask for the same memory in the same order.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from actzip.codecs import (
    BitMask,
    Bounded,
    Cast,
    Codec,
    Dual,
    FixedPoint,
    Group,
    Keep,
    Payload,
    Split,
    Window,
    lengths,
    unsettled,
)
from host_reads import counted


@pytest.fixture(autouse=True)
def _captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actzip.kernels.FORCED", "reference")
    monkeypatch.setattr(unsettled, "reading_is_free", lambda device: False)
    for module in (unsettled, lengths):
        monkeypatch.setattr(module, "is_capturing", lambda device: True)


class _Memory(TorchDispatchMode):
    """Ops and the sizes of what they give."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        found = out if isinstance(out, (tuple, list)) else (out,)
        name = func.overloadpacket.__name__
        self.asked += [(name, tuple(t.shape)) for t in found if isinstance(t, Tensor)]
        return out


def _replayed(codec: Codec, x: Tensor) -> tuple[list[tuple[str, tuple[int, ...]]], Payload, Tensor]:
    with counted() as reads, _Memory() as memory:
        payload = codec.encode(x, seed=3)
        y = codec.decode(payload)
    assert not reads
    return memory.asked, payload, y


CALM = torch.randn(8, 4, 12, 12, generator=torch.Generator().manual_seed(1)).relu()
WILD = CALM * 1e3
WILD[0, 0, 0, :3] = torch.tensor([float("nan"), float("inf"), 3e38])
SPREAD = CALM + torch.rand(CALM.shape, generator=torch.Generator().manual_seed(2))
INDEX = torch.nn.functional.max_pool2d(SPREAD, 2, return_indices=True)[1]
POOL = Window((2, 2), (2, 2), (0, 0), (1, 1), (12, 12))
CASES: list[tuple[Codec, Tensor, Tensor]] = [
    (Group(2), CALM, WILD),
    (Group(4, zero=True), CALM, WILD),
    (Group((1, 2, 3, 4, 5, 6, 7, 8), 64), CALM, WILD),
    (Dual(), CALM, WILD),
    (BitMask(), CALM, WILD),
    (Cast(), CALM, WILD),
    (Keep(), CALM, WILD),
    (POOL, INDEX, INDEX.flip(0)),
    (Split(Group(2), 4), CALM, WILD),
    (Bounded(0.01), CALM, WILD),
    (FixedPoint(5, skip_zeros=True), CALM, WILD),
    (Split(Bounded(0.01), 3), CALM, WILD),
]


@pytest.mark.parametrize(("codec", "calm", "wild"), CASES, ids=[repr(c[0])[:40] for c in CASES])
def test_memory_follows_from_shapes_alone(codec: Codec, calm: Tensor, wild: Tensor) -> None:
    codec.decode(codec.encode(calm))  # tables that are kept
    first, second = _replayed(codec, calm), _replayed(codec, wild)
    assert first[0] == second[0]
    assert first[1].data.numel() == second[1].data.numel()


@pytest.mark.parametrize("codec", [Bounded(0.01), FixedPoint(5), Split(Bounded(0.01), 3)])
def test_a_captured_payload_of_unknown_length_gives_its_values(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, payload, y = _replayed(codec, WILD)
    assert payload.lengths
    unsettled.settle()
    assert payload.lengths  # nobody tells
    monkeypatch.setattr(unsettled, "reading_is_free", lambda device: True)
    expected = codec.decode(codec.encode(WILD, seed=3))
    assert torch.equal(y.nan_to_num(7.0), expected.nan_to_num(7.0))
