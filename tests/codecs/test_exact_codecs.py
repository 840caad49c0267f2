"""BitMask, Index, Keep and Cast: sizes, exactness and refusals."""

from __future__ import annotations

import pytest
import torch

from actzip.codecs import BitMask, Cast, Index, Keep

HEADER = 16  # bytes of a payload beside its data, and 16 per dimension


def test_a_mask_takes_one_bit_an_element(backend: str) -> None:
    x = torch.randn(1001)
    payload = BitMask().encode(x)
    assert payload.nbytes == 126 + HEADER + 16
    assert torch.equal(BitMask().decode(payload), (x > 0).float())


def test_nan_counts_as_on_and_negative_zero_as_off(backend: str) -> None:
    x = torch.tensor([float("nan"), -0.0, 0.0, -float("inf"), float("inf"), 1e-45])
    assert BitMask().decode(BitMask().encode(x)).tolist() == [1, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("n", [5, 40, 100_000])
def test_a_third_value_is_refused(dtype: torch.dtype, n: int, backend: str) -> None:
    noise = ((torch.rand(n) > 0.1).double() / 0.9).to(dtype)
    codec = BitMask(on=1 / 0.9)
    assert torch.equal(codec.decode(codec.encode(noise)), noise)
    for other in (0.5, float("nan"), -0.0):
        noise[n - 2] = other
        with pytest.raises(ValueError, match=r"exactly 0 and 1\.1"):
            codec.encode(noise)


def test_bools_that_are_not_0_or_1_in_memory_come_back(backend: str) -> None:
    x = torch.tensor([0, 1, 2, 128, 255] * 20, dtype=torch.uint8).view(torch.bool)
    assert BitMask().decode(BitMask().encode(x)).tolist() == [False, True, True, True, True] * 20


@pytest.mark.parametrize("on", [0.0, float("nan"), float("inf")])
def test_a_mask_level_is_a_finite_number(on: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        BitMask(on=on)


def test_masks_are_not_for_integers() -> None:
    with pytest.raises(TypeError, match=r"Index\(\)"):
        BitMask().encode(torch.arange(3))


@pytest.mark.parametrize(
    ("low", "high", "bits"), [(5, 6, 0), (0, 2, 1), (0, 9, 4), (-3, 5, 3), (0, 50_000, 16)]
)
def test_integers_take_the_bits_of_their_range(
    low: int, high: int, bits: int, backend: str
) -> None:
    x = torch.randint(low, high, (1000,))
    x[0], x[1] = low, high - 1
    payload = Index().encode(x)
    assert payload.data.numel() == 9 + (1000 * bits + 7) // 8
    assert torch.equal(Index().decode(payload), x)


def test_the_whole_range_of_64_bits_is_exact(backend: str) -> None:
    info = torch.iinfo(torch.int64)
    x = torch.tensor([info.min, info.max, 0, -1, 1] * 7)
    assert torch.equal(Index().decode(Index().encode(x)), x)
    big = x.view(torch.uint64)
    assert torch.equal(Index().decode(Index().encode(big)).view(torch.int64), x)


@pytest.mark.parametrize("x", [torch.zeros(2), torch.zeros(2, dtype=torch.bool)])
def test_index_is_for_integers(x: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="integer tensor"):
        Index().encode(x)


def test_keep_stores_complex_with_its_conjugate_bit() -> None:
    x = torch.randn(5, dtype=torch.complex64).conj()
    assert torch.equal(Keep().decode(Keep().encode(x)), x)


def test_cast_is_the_rounding_of_torch() -> None:
    x = torch.randn(1000)
    for dtype in (torch.bfloat16, torch.float16):
        payload = Cast(dtype).encode(x)
        assert payload.data.numel() == 2000
        assert torch.equal(Cast(dtype).decode(payload), x.to(dtype).float())


def test_cast_keeps_finite_values_finite() -> None:
    x = torch.tensor([1e30, -1e30, float("inf"), float("nan")])
    y = Cast(torch.float16).decode(Cast(torch.float16).encode(x))
    assert y[:3].tolist() == [65504.0, -65504.0, float("inf")]
    assert torch.isnan(y[3])
    with pytest.raises(ValueError, match="bfloat16"):
        Cast(torch.float32)


def test_out_is_checked() -> None:
    payload = Keep().encode(torch.randn(3))
    with pytest.raises(ValueError, match=r"out must be \(3,\)"):
        Keep().decode(payload, out=torch.empty(4))
