"""FixedPoint: per-channel steps, values that have no code, sizes, pinned bytes."""

from __future__ import annotations

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actzip.codecs import PayloadError
from actzip.codecs.fixedpoint import FixedPoint
from actzip.testing import conformance

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

CODECS = [
    FixedPoint(),
    FixedPoint(bits=2, skip_zeros=True),
    FixedPoint(bits=16, rounding="nearest"),
    FixedPoint(bits=9, rounding="stochastic", channel_dim=-1),
]


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_fixedpoint_keeps_every_promise_of_the_kit(codec: FixedPoint) -> None:
    conformance(codec)


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.floats(width=32), min_size=2, max_size=200),
    bits=st.integers(2, 16),
    dtype=st.sampled_from(FLOATS),
    rounding=st.sampled_from(["dither", "stochastic", "nearest"]),
    skip_zeros=st.booleans(),
)
def test_no_finite_element_is_further_off_than_max_error(
    values: list[float], bits: int, dtype: torch.dtype, rounding: str, skip_zeros: bool
) -> None:
    x = torch.tensor(values, dtype=torch.float64).to(dtype)
    codec = FixedPoint(bits, skip_zeros, rounding)
    y = codec.decode(codec.encode(x, seed=bits))
    finite = x.isfinite()
    off = (x.double() - y.double()).abs()
    assert bool((off <= codec.max_error(x))[finite].all())
    assert torch.equal(x[~finite].nan_to_num(7.0), y[~finite].nan_to_num(7.0))
    if skip_zeros:
        assert bool((y[x == 0] == 0).all())


def test_each_channel_has_its_own_step_and_bits() -> None:
    scale = torch.tensor([1.0, 1000.0, 1e-3]).view(1, 3, 1)
    x = torch.randn(8, 3, 500) * scale
    codec = FixedPoint(bits=(4, 8, 12))
    off = (codec.decode(codec.encode(x)) - x).abs().amax((0, 2))
    top = x.abs().amax((0, 2))
    steps = top / torch.tensor([7.0, 127.0, 2047.0])
    assert bool((off <= steps / 2 * 1.001).all())
    assert bool((off > steps / 2 * 0.95).all())


def test_variance_is_predicted() -> None:
    x = torch.randn(4, 8, 5000)
    for rounding in ("dither", "stochastic", "nearest"):
        codec = FixedPoint(bits=5, rounding=rounding)
        measured = float((codec.decode(codec.encode(x)) - x).double().square().mean())
        assert codec.variance(x) == pytest.approx(measured, rel=0.05)


def test_sign_scale_and_bitmap_are_counted() -> None:
    x = torch.randn(4, 16, 64, 64).relu()
    codes, chunks = x.numel() * 6 // 8, x.numel() // 4096
    assert FixedPoint(bits=6).encode(x).data.numel() == codes + 4 * 16 + 8 * chunks
    nonzero = int((x != 0).sum())
    skipped = FixedPoint(bits=6, skip_zeros=True).encode(x).data.numel()
    least = x.numel() // 8 + nonzero * 6 // 8 + 4 * 16 + 8 * chunks
    assert least <= skipped <= least + x.numel() // 64


def test_one_nan_costs_its_channel_nothing() -> None:
    x = torch.randn(2, 2, 300)
    clean = FixedPoint(bits=6)
    expected = clean.decode(clean.encode(x, seed=4))
    x[0, 0, 7] = float("nan")
    got = clean.decode(clean.encode(x, seed=4))
    assert bool(got[0, 0, 7].isnan())
    got[0, 0, 7] = expected[0, 0, 7]
    assert torch.equal(got, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 1}, "2 to 16"),
        ({"bits": 17}, "2 to 16"),
        ({"bits": ()}, "2 to 16"),
        ({"bits": (4, 40)}, "2 to 16"),
        ({"rounding": "up"}, "nearest, stochastic, dither"),
        ({"channel_dim": 2}, "1 or -1"),
    ],
)
def test_wrong_options_are_refused_with_what_is_allowed(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        FixedPoint(**options)  # type: ignore[arg-type]


def test_payload_cut_short_is_an_error(backend: str) -> None:
    codec = FixedPoint(bits=5, skip_zeros=True)
    payload = codec.encode(torch.randn(3, 2, 2000).relu())
    for size in (0, 7, 30, payload.data.numel() // 2, payload.data.numel() - 1):
        cut = type(payload)(
            codec, payload.shape, payload.stride, payload.dtype, payload.seed, payload.data[:size]
        )
        with pytest.raises(PayloadError):
            codec.decode(cut)


PINNED = {
    "even": (FixedPoint(bits=6), torch.float32, "8cc6b901382d14b1"),
    "mixed": (
        FixedPoint(bits=tuple(2 + i % 15 for i in range(30)), skip_zeros=True),
        torch.float16,
        "d8ccd469195f6229",
    ),
}


@pytest.mark.parametrize("name", PINNED)
def test_payload_bytes_are_pinned(backend: str, name: str) -> None:
    codec, dtype, digest = PINNED[name]
    i = torch.arange(9000)
    x = ((i * 2654435761 % 1009 - 504).clamp(min=0).double() / 256).to(dtype).view(3, 30, 100)
    payload = codec.encode(x, seed=11)
    assert hashlib.sha256(bytes(payload.data.tolist())).hexdigest()[:16] == digest
