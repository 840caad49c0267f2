"""Group(entropy=True): the same values, fewer bytes, and never more than a byte over plain."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from actzip.codecs import Group, PayloadError
from actzip.testing import conformance

N = 1 << 18


def _activations() -> Tensor:
    """What a convolution of a small network reads, a few training steps in, on real digits."""
    from actzip.tasks import digits
    from actzip.tasks.models.resnet import resnet8

    data = digits.load(32, 0)
    model = resnet8(10, digits.CHANNELS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for i in range(5):
        x, y = data.train_x[i * 64 : (i + 1) * 64], data.train_y[i * 64 : (i + 1) * 64]
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    seen: list[Tensor] = []
    convs = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    handle = convs[2].register_forward_pre_hook(lambda m, args: seen.append(args[0].detach()))
    model(data.train_x[:64])
    handle.remove()
    return seen[0]


DATA = {
    "gaussian": lambda: torch.randn(N),
    "laplace": lambda: torch.distributions.Laplace(0.0, 1.0).sample((N,)),
    "relu": lambda: torch.randn(N).relu(),
    "activations": _activations,
}


def _entropy_bits(codes: Tensor) -> float:
    p = torch.bincount(codes.long()).double() / codes.numel()
    return -sum(float(q * q.log2()) for q in p if q > 0)


def _codes(codec: Group, x: Tensor) -> Tensor:
    """The codes of a plain payload, one per element."""
    from actzip.kernels.reference import planes

    plain = replace(codec, entropy=False)
    dense = x.contiguous()
    data, layout = plain.encode(dense).data, plain._layout(dense)
    assert isinstance(plain.bits, int)
    return planes.unpack(data[layout.offsets[0] : layout.offsets[1]], layout.n, plain.bits)


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("name", DATA)
def test_stored_bits_are_within_four_percent_of_the_entropy(
    name: str, zero: bool, bits: int
) -> None:
    x = DATA[name]()
    codec = Group(bits=bits, zero=zero, entropy=True)
    payload = codec.encode(x)
    entropy = _entropy_bits(_codes(codec, x))
    metadata, table = 32 / 256, 8 * 600 / x.numel()
    plain = bits + metadata + 16 / x.numel()
    stored = 8 * payload.data.numel() / x.numel()
    assert stored <= min(1.04 * entropy + metadata + table, plain)
    assert torch.equal(
        codec.decode(payload),
        Group(bits=bits, zero=zero).decode(Group(bits=bits, zero=zero).encode(x)),
    )


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
