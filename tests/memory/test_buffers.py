"""Slabs and buffers: used again when free, never while held, gone when not needed."""

from __future__ import annotations

import gc

import torch
from torch import nn

import actzip
from actzip.memory.buffers import SMALLEST_BUFFER, Buffers, Slabs

CPU = torch.device("cpu")
BIG = (SMALLEST_BUFFER // 4,)


def _empty(buffers: Buffers, numel: int) -> torch.Tensor:
    return buffers.empty((numel,), (1,), torch.float32, CPU)


def test_payloads_share_a_slab_without_overlap() -> None:
    slabs = Slabs(smallest=1 << 16, largest=1 << 16)
    parts = [slabs.allocate(n, CPU) for n in (100, 1, 0, 4000)]
    for i, part in enumerate(parts):
        part.fill_(i)
    assert [p.unique().tolist() for p in parts] == [[0], [1], [], [3]]
    assert len({p.untyped_storage()._cdata for p in parts}) == 1
    assert slabs.nbytes == 1 << 16


def test_a_slab_goes_with_its_last_payload() -> None:
    slabs = Slabs(smallest=1 << 16, largest=1 << 16)
    first = [slabs.allocate(10_000, CPU) for _ in range(6)]
    second = [slabs.allocate(10_000, CPU) for _ in range(6)]
    slabs.close()
    whole = slabs.nbytes
    assert 120_000 <= whole <= 2 << 16
    del first
    assert slabs.nbytes == whole // 2
    del second
    assert slabs.nbytes == 0


def test_slabs_grow_with_what_is_stored() -> None:
    slabs = Slabs()
    parts = [slabs.allocate(100_000, CPU) for _ in range(1000)]
    stored = sum(p.numel() for p in parts)
    assert stored <= slabs.nbytes < 1.03 * stored
    assert len({p.untyped_storage()._cdata for p in parts}) < 400
    parts.clear()
    slabs.close()
    assert slabs.nbytes == 0


def test_slabs_waste_little_on_payloads_of_all_sizes() -> None:
    slabs = Slabs()
    sizes = [200 * (i * 7919 % 4001) for i in range(400)]
    parts = [slabs.allocate(n, CPU) for n in sizes]
    assert sum(sizes) <= slabs.nbytes < 1.03 * sum(sizes)
    del parts


def test_a_slab_that_was_opened_in_inference_mode_is_written_to_outside() -> None:
    """PyTorch refuses to edit a tensor of inference mode: the next payloads of the pass raised."""
    slabs = Slabs()
    with torch.inference_mode():
        slabs.allocate(64, torch.device("cpu")).fill_(1)
    slabs.allocate(64, torch.device("cpu")).fill_(2)


def test_a_large_payload_is_a_slab_by_itself() -> None:
    slabs = Slabs(smallest=1 << 16, largest=1 << 16)
    large = slabs.allocate(1 << 20, CPU)
    assert large.untyped_storage().nbytes() == 1 << 20
    assert slabs.nbytes == 0


def test_a_buffer_is_used_again_once_nobody_holds_it() -> None:
    buffers = Buffers()
    a = _empty(buffers, BIG[0])
    address = a.data_ptr()
    del a
    b = _empty(buffers, BIG[0])
    assert b.data_ptr() == address
    assert buffers.nbytes == SMALLEST_BUFFER


def test_a_buffer_is_never_handed_out_while_a_view_of_it_lives() -> None:
    buffers = Buffers()
    a = _empty(buffers, BIG[0])
    view = a[5:10].fill_(7.0)
    del a
    b = _empty(buffers, BIG[0]).fill_(1.0)
    assert view.tolist() == [7.0] * 5
    assert b.untyped_storage()._cdata != view.untyped_storage()._cdata


def test_one_idle_buffer_at_most_is_held_between_requests() -> None:
    buffers = Buffers()
    held = [_empty(buffers, BIG[0] * n) for n in (1, 3, 2)]
    assert buffers.nbytes == 6 * SMALLEST_BUFFER
    held.clear()
    small = _empty(buffers, BIG[0])
    assert buffers.nbytes == 3 * SMALLEST_BUFFER, "the largest serves, the others are freed"
    del small
    assert _empty(buffers, BIG[0] * 4).numel() == BIG[0] * 4
    assert buffers.nbytes == 4 * SMALLEST_BUFFER


def test_strides_and_small_tensors_are_as_asked() -> None:
    buffers = Buffers()
    t = buffers.empty((64, 3, 64, 64), (12288, 1, 192, 3), torch.float32, CPU)
    assert t.stride() == (12288, 1, 192, 3)
    assert buffers.nbytes == t.numel() * 4
    buffers.clear()
    assert buffers.empty((4,), (1,), torch.float64, CPU).shape == (4,)
    assert buffers.empty((0, 1 << 20), (1 << 20, 1), torch.float64, CPU).numel() == 0
    assert buffers.nbytes == 0


def test_a_session_holds_no_memory_after_backward() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.LeakyReLU())
    x = torch.randn(16, 3, 64, 64)
    with actzip.compress(model) as session:
        loss = model(x).sum()
        assert session.stats().slab_bytes > 0
        loss.backward()
        del loss
        gc.collect()
        assert session.stats().slab_bytes == 0
        assert session.stats().buffer_bytes == 0
