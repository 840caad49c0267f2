"""Group(entropy=True): the same values, fewer bytes, and never more than a byte over plain."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import pytest
import torch
from digit_maps import activations
from torch import Tensor

from actzip.codecs import Group, PayloadError
from actzip.kernels.entropy_table import Table, entropy_bits
from actzip.testing import conformance

N = 1 << 18


DATA = {
    "gaussian": lambda: torch.randn(N),
    "laplace": lambda: torch.distributions.Laplace(0.0, 1.0).sample((N,)),
    "relu": lambda: torch.randn(N).relu(),
    "convolution": lambda: activations()["stages.1.0.conv1"],
    "deep convolution": lambda: activations()["stages.2.0.conv2"],
    "batch norm": lambda: activations()["stages.0.0.bn2"],
    "deep batch norm": lambda: activations()["stages.2.0.bn2"],
}


def _codes(codec: Group, x: Tensor) -> Tensor:
    """The codes of a plain payload, one per element."""
    from actzip.kernels.reference import planes

    plain = replace(codec, entropy=False)
    dense = x.contiguous()
    data, layout = plain.encode(dense).data, plain._layout(dense)
    assert isinstance(plain.bits, int)
    return planes.unpack(data[layout.offsets[0] : layout.offsets[1]], layout.n, plain.bits)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("name", DATA)
def test_stored_bytes_are_within_four_percent_of_the_entropy_and_the_table(
    name: str, zero: bool, bits: int
) -> None:
    x = DATA[name]()
    codec = Group(bits=bits, zero=zero and bits > 1, entropy=True)
    plain = replace(codec, entropy=False)
    payload = codec.encode(x)
    metadata = plain._layout(x.contiguous()).offsets[0]
    least = entropy_bits(torch.bincount(_codes(codec, x).long()).tolist()) / 8
    fixed = 1 + metadata
    if int(payload.data[0]) == 1:
        fixed += 8 + Table.load(payload.data[1 + metadata + 8 :])[1]
    assert payload.data.numel() - fixed <= 1.04 * least
    assert torch.equal(codec.decode(payload), plain.decode(plain.encode(x)))


def test_neighbours_in_a_map_share_their_bits() -> None:
    """Codes of smooth maps take less than their entropy as single codes: 1.56 bits for 1.77."""
    x = activations()["stages.0.0.bn1"]
    payload = Group(bits=2, entropy=True).encode(x)
    least = entropy_bits(torch.bincount(_codes(Group(bits=2), x).long()).tolist()) / 8
    assert payload.data.numel() - x.numel() / 64 < 0.92 * least


@pytest.mark.parametrize("n", [1, 31, 127, 128, 129, 5000, 70_001, 300_000])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, (1, 2), (3, 3), (8, 1)])
def test_every_length_comes_back(backend: str, n: int, bits: int | tuple[int, ...]) -> None:
    x = (torch.arange(2 * n) * 2654435761 % 1009 % 37).clamp(max=12).view(2, n).float()
    codec = Group(bits=bits, entropy=True)
    plain = replace(codec, entropy=False)
    assert torch.equal(codec.decode(codec.encode(x)), plain.decode(plain.encode(x)))


def test_two_bit_codes_of_gaussian_data_take_one_and_a_half_bits() -> None:
    payload = Group(bits=2, entropy=True).encode(torch.randn(N))
    assert 8 * payload.data.numel() / N == pytest.approx(1.5 + 0.125, abs=0.07)


def test_uniform_codes_fall_back_to_plain_packing() -> None:
    x = torch.rand(N)
    plain, squeezed = Group(bits=8).encode(x), Group(bits=8, entropy=True).encode(x)
    assert squeezed.data.numel() <= plain.data.numel() + 1


@pytest.mark.parametrize(
    "codec",
    [Group(bits=2, entropy=True), Group(bits=3, zero=True, entropy=True)],
    ids=repr,
)
def test_it_keeps_every_promise(codec: Group) -> None:
    conformance(codec)


def test_masks_are_read_through_the_entropy_code() -> None:
    x = torch.randn(1000).relu()
    codec = Group(bits=2, zero=True, entropy=True)
    assert torch.equal(codec.mask(codec.encode(x)), (x > 0).float())


def test_bits_per_sample_and_nan_go_together_with_it() -> None:
    x = torch.randn(3, 70_000)
    x[1, 5] = math.nan
    codec = Group(bits=(2, 4, 8), entropy=True)
    assert torch.equal(
        codec.decode(codec.encode(x)).nan_to_num(9.0),
        Group(bits=(2, 4, 8)).decode(Group(bits=(2, 4, 8)).encode(x)).nan_to_num(9.0),
    )


@pytest.mark.parametrize(
    ("bits", "digest"),
    [(2, "dbb77580dee1593b"), (4, "91a16ed68c66a38a"), ((1, 3, 3), "0501e1f19cc0bdb3")],
    ids=["2", "4", "samples"],
)
def test_payload_bytes_are_pinned(backend: str, bits: int | tuple[int, ...], digest: str) -> None:
    i = torch.arange(3 * 90_000)
    x = ((i * 2654435761 % 1009 % 61 - 40).clamp(min=0).float() / 32).view(3, -1)
    payload = Group(bits=bits, rounding="nearest", entropy=True).encode(x, seed=11)
    assert int(payload.data[0]) == 1
    assert hashlib.sha256(bytes(payload.data.tolist())).hexdigest()[:16] == digest


def test_damage_is_told(backend: str) -> None:
    codec = Group(bits=2, entropy=True)
    payload = codec.encode(torch.randn(70_000))
    for keep in (0, 1, 5, 9, 100, 5000, payload.data.numel() - 1):
        with pytest.raises(PayloadError):
            codec.decode(replace(payload, data=payload.data[:keep]))
    data = payload.data.clone()
    data[0] = 7
    with pytest.raises(PayloadError, match="starts with 0 or 1"):
        codec.decode(replace(payload, data=data))
