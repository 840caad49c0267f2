"""Window: max-pool indices as places in their windows, exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from actzip import kernels
from actzip.codecs import PayloadError, Window

POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


@st.composite
def poolings(draw: st.DrawFn) -> tuple[Window, Tensor]:
    """A max-pooling of random geometry and its indices."""
    count = draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(count))

    kernel, stride, dilation = each(1, 4), each(1, 4), each(1, 2)
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    size = tuple(
        draw(st.integers((k - 1) * d + 1, 12)) for k, d in zip(kernel, dilation, strict=True)
    )
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    ceil = draw(st.booleans())
    _, indices = POOLS[count](x, kernel, stride, padding, dilation, ceil, return_indices=True)
    return Window(kernel, stride, padding, dilation, size), indices


@given(poolings())
@settings(max_examples=200, deadline=None)
def test_indices_come_back_exactly_and_both_backends_write_the_same_bytes(
    pooling: tuple[Window, Tensor],
) -> None:
    codec, indices = pooling
    with pytest.MonkeyPatch.context() as patch:
        written = []
        for backend in ("native", "reference"):
            patch.setattr("actzip.kernels.FORCED", backend)
            assert kernels.backend_name() == backend
            payload = codec.encode(indices)
            assert torch.equal(codec.decode(payload), indices)
            written.append(payload.data)
    assert torch.equal(written[0], written[1])
    assert payload.data.numel() == (indices.numel() * codec.bits + 7) // 8


def _pooled() -> tuple[Window, Tensor]:
    _, indices = F.max_pool2d(torch.randn(2, 4, 9, 9), 3, 2, 1, return_indices=True)
    return Window((3, 3), (2, 2), (1, 1), (1, 1), (9, 9)), indices


def test_a_place_in_a_small_window_takes_few_bits() -> None:
    assert Window((2, 2), (2, 2), (0, 0), (1, 1), (56, 56)).bits == 2
    assert Window((3, 3), (2, 2), (1, 1), (1, 1), (112, 112)).bits == 4
    assert Window((1,), (1,), (0,), (1,), (7,)).bits == 0


def test_channels_last_strides_come_back(backend: str) -> None:
    codec, indices = _pooled()
    strided = indices.contiguous(memory_format=torch.channels_last)
    again = codec.decode(codec.encode(strided))
    assert torch.equal(again, strided)
    assert again.stride() == strided.stride()


def test_an_index_outside_its_window_is_refused(backend: str) -> None:
    codec, indices = _pooled()
    for wrong in (80, -1, 81, 2**40):
        broken = indices.clone()
        broken[0, 0, 0, 0] = wrong
        with pytest.raises(ValueError, match="outside its window"):
            codec.encode(broken)


def test_damage_gives_an_error_or_values_inside_the_map(backend: str) -> None:
    codec, indices = _pooled()
    payload = codec.encode(indices)
    for length in range(payload.data.numel()):
        with pytest.raises(PayloadError):
            codec.decode(replace(payload, data=payload.data[:length]))
    for bit in range(0, payload.data.numel() * 8, 3):
        data = payload.data.clone()
        data[bit // 8] ^= 1 << (bit % 8)
        try:
            found = codec.decode(replace(payload, data=data))
        except PayloadError:
            continue
        assert 0 <= int(found.min()) <= int(found.max()) < 81


def test_bytes_do_not_depend_on_threads() -> None:
    _, indices = F.max_pool2d(torch.randn(4, 16, 64, 64), 2, return_indices=True)
    codec = Window((2, 2), (2, 2), (0, 0), (1, 1), (64, 64))
    before = torch.get_num_threads()
    written = []
    for threads in (1, 2, 4, 8):
        torch.set_num_threads(threads)
        written.append(codec.encode(indices).data)
        assert torch.equal(codec.decode(codec.encode(indices)), indices)
    torch.set_num_threads(before)
    assert all(torch.equal(w, written[0]) for w in written)


def test_wrong_options_and_tensors_are_named() -> None:
    with pytest.raises(ValueError, match="one entry per dimension"):
        Window((2, 2), (2,), (0, 0), (1, 1), (4, 4))
    with pytest.raises(ValueError, match="more than 256"):
        Window((17, 17), (1, 1), (0, 0), (1, 1), (40, 40))
    with pytest.raises(ValueError, match="at least 1"):
        Window((2, 2), (0, 2), (0, 0), (1, 1), (4, 4))
    with pytest.raises(TypeError, match="Window needs int64 indices"):
        _pooled()[0].encode(torch.randn(4, 4))


def test_it_prints_as_the_code_that_makes_it() -> None:
    codec, _ = _pooled()
    assert eval(repr(codec), {"Window": Window}) == codec
