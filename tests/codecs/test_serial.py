"""Payloads as bytes: the format is pinned by fixtures, damage is found.

The fixtures are written by `python tests/codecs/test_serial.py`, once per format version.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch
from torch import Tensor

from actzip.codecs import (
    BitMask,
    Cast,
    Codec,
    Dual,
    Group,
    Index,
    Keep,
    PayloadError,
    Window,
)
from actzip.codecs.serial import from_bytes, to_bytes

FIXTURES = Path(__file__).parent / "fixtures"


def ramp(*shape: int) -> Tensor:
    """Values made by integer arithmetic only, so that no library version can change them."""
    n = torch.Size(shape).numel()
    i = torch.arange(n)
    return ((i * i * 37 + i * 11) % 257 - 90).clamp(min=0).view(shape).double() / 64


CASES: dict[str, tuple[Codec, Tensor]] = {
    "group2": (Group(bits=2), ramp(3, 100).float()),
    "group5_zero": (Group(bits=5, group_size=50, zero=True), ramp(2, 60).bfloat16()),
    "group_samples": (Group(bits=(1, 3), group_size=32, rounding="stochastic"), ramp(2, 70).half()),
    "group_double": (Group(bits=8, group_size=64, rounding="nearest"), ramp(130)),
    "group_raw": (Group(bits=1, group_size=8), ramp(24).float() / torch.tensor([0.0] + [1.0] * 23)),
    "group_entropy": (Group(bits=2, entropy=True), ramp(40, 100).float()),
    "window": (Window((3,), (2,), (1,), (1,), (9,)), torch.tensor([[1, 1, 5, 7, 8]])),
    "dual": (Dual(bits=2), ramp(1, 2, 9, 10).float()),
    "dual_original": (Dual(block=4, align="original", bits=3), ramp(1, 2, 30).float()),
    "dual_zero": (Dual(bits=2, zero=True), ramp(1, 2, 9, 10).float()),
    "dual_tokens": (Dual(block=8, bits=4, axes=(1,)), ramp(2, 20, 33).bfloat16()),
    "dual_channels_last": (
        Dual(bits=3, zero=True, rounding="stochastic"),
        ramp(1, 9, 10, 32).permute(0, 3, 1, 2),
    ),
    "mask": (BitMask(), ramp(45).float() - 1),
    "noise": (BitMask(on=1.25), (ramp(45) > 1).float() * 1.25),
    "index": (Index(), (ramp(50) * 64).long()),
    "keep": (Keep(), ramp(5).half()),
    "cast": (Cast(torch.bfloat16), ramp(9).float()),
}


@pytest.mark.parametrize("name", CASES)
def test_bytes_are_those_of_the_fixture(name: str, backend: str) -> None:
    codec, x = CASES[name]
    pinned = (FIXTURES / f"{name}.bin").read_bytes()
    assert to_bytes(codec.encode(x, seed=2026)) == pinned
    payload = from_bytes(pinned)
    assert payload.codec == codec
    expected = codec.decode(codec.encode(x, seed=2026))
    assert torch.equal(codec.decode(payload).nan_to_num(), expected.nan_to_num())


def test_every_damaged_byte_is_found() -> None:
    raw = to_bytes(Group().encode(torch.randn(20), seed=1))
    for at in range(len(raw)):
        for bit in (1, 128):
            damaged = bytearray(raw)
            damaged[at] ^= bit
            with pytest.raises(PayloadError):
                from_bytes(bytes(damaged))
        with pytest.raises(PayloadError):
            from_bytes(raw[:at])


def test_another_format_is_named() -> None:
    raw = bytearray(to_bytes(Keep().encode(torch.zeros(1))))
    raw[4:6] = struct.pack("<H", 99)
    with pytest.raises(PayloadError, match="format 99"):
        from_bytes(bytes(raw))


def test_payloads_of_any_seed_and_shape_return() -> None:
    for shape in ((), (0,), (2, 0, 3), (1, 2, 3, 4, 5)):
        x = torch.randn(shape)
        payload = Group(bits=4).encode(x, seed=2**64 - 1)
        again = from_bytes(to_bytes(payload))
        assert (again.seed, again.shape, again.stride) == (2**64 - 1, shape, payload.stride)
        assert torch.equal(again.codec.decode(again), payload.codec.decode(payload))


if __name__ == "__main__":
    for name, (codec, x) in CASES.items():
        (FIXTURES / f"{name}.bin").write_bytes(to_bytes(codec.encode(x, seed=2026)))
