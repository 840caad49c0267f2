"""The checks of the conformance kit, in the order in which they run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from actzip import codecs
from actzip.codecs.base import Codec, Payload, PayloadError
from actzip.codecs.serial import from_bytes, to_bytes
from actzip.testing import inputs

#: Raises an AssertionError when y is not what the codec promises for x.
Promise = Callable[[Codec, Tensor, Tensor], None]

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def conformance(
    codec: Codec,
    *,
    promise: Promise | None = None,
    values: inputs.Values = inputs.ordinary,
    device: torch.device | str = "cpu",
) -> None:
    """Put a codec through everything that every codec promises.

    promise: what must hold between a tensor and its decoded self, both in host memory; by default
    bit equality for an exact codec, else `Codec.max_error`. values: makes tensors that the codec
    takes, for codecs that are not meant for all. device: where those tensors are put; types that
    it does not hold are left out.
    """
    on = torch.device(device)
    keep = promise or error_bound
    check_configuration(codec)
    tried = 0
    for dtype in inputs.DTYPES:
        for x in _accepted(codec, dtype, values, on):
            tried += 1
            for name, laid in inputs.layouts(x):
                if _takes(codec, laid):
                    _named(f"{name} {dtype} {tuple(x.shape)}", check_round_trip, codec, laid, keep)
            odd_too = dtype.is_floating_point and values is inputs.ordinary
            if odd_too and tuple(x.shape) in inputs.ODD:
                for name, made in inputs.special(x.cpu()):
                    odd = made.to(on)
                    _named(f"{name} {dtype} {tuple(x.shape)}", check_round_trip, codec, odd, keep)
    assert tried, f"{codec!r} took none of the kit's tensors; give it some with values="
    for dtype in inputs.DTYPES:
        for x in _accepted(codec, dtype, values, on):
            _named(f"{dtype} {tuple(x.shape)}", check_determinism, codec, x)
        small = [x for x in _accepted(codec, dtype, values, on) if 1 < x.numel() < 300]
        for x in small[:1]:
            _named(f"{dtype} {tuple(x.shape)}", check_damage, codec, x)


def error_bound(codec: Codec, x: Tensor, y: Tensor) -> None:
    """Exact codecs: every bit. Others: max_error, with NaN and infinities as they were."""
    if codec.exact:
        assert _same_bits(x, y), "an exact codec changed a bit"
        return
    bound = codec.max_error(x)
    assert bound is not None, "a codec without max_error needs a promise of its own"
    finite = torch.isfinite(x)
    assert torch.equal(torch.isnan(x), torch.isnan(y)), "NaN moved"
    odd = ~finite & ~torch.isnan(x)
    assert torch.equal(x[odd], y[odd]), "an infinity changed"
    error = (x.double() - y.double()).abs()
    bad = finite & ~(error <= bound.double())
    if bool(bad.any()):
        at = int(bad.flatten().nonzero()[0])
        raise AssertionError(
            f"error {float(error.flatten()[at])} above the promised "
            f"{float(bound.flatten()[at])} at element {at}: {float(x.flatten()[at])} came back as "
            f"{float(y.flatten()[at])}"
        )


def check_configuration(codec: Codec) -> None:
    """repr evaluates back, equality and hash follow from the fields."""
    names = {name: getattr(codecs, name) for name in codecs.__all__}
    again = eval(repr(codec), {"torch": torch, type(codec).__name__: type(codec), **names})
    assert again == codec, f"{codec!r} is not equal to what its repr gives"
    assert hash(again) == hash(codec), f"{codec!r} has another hash than its equal"


def check_round_trip(codec: Codec, x: Tensor, promise: Promise) -> None:
    """Shape, dtype, strides and the promise; also through bytes and into a given buffer."""
    before, state = x.clone(), torch.get_rng_state()
    payload = codec.encode(x, seed=7)
    y = codec.decode(payload)
    assert _same_bits(x, before), "encode changed its input"
    assert torch.equal(torch.get_rng_state(), state), "the user's random numbers moved"
    assert y.shape == x.shape, f"shape {tuple(y.shape)} came back"
    assert y.dtype == x.dtype, f"dtype {y.dtype} came back"
    overlaps = payload.stride != tuple(x.stride())
    assert tuple(y.stride()) == payload.stride, "strides changed"
    assert not overlaps or not _writable(x), f"strides {y.stride()} came back for {x.stride()}"
    assert payload.nbytes >= payload.data.numel(), "nbytes leaves bytes out"
    assert y.device == x.device, f"device {y.device} came back"
    promise(codec, x.cpu(), y.cpu())
    again = from_bytes(to_bytes(payload))
    used = payload.used().cpu()
    assert torch.equal(again.data, used), "bytes changed on the way through to_bytes"
    assert _same_bits(codec.decode(again), y), "a payload read from bytes decodes differently"
    buffer = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    assert _same_bits(codec.decode(payload, out=buffer), y), "decode(out=...) differs"


def check_determinism(codec: Codec, x: Tensor) -> None:
    """The same bytes and values for the same seed, for any number of threads."""
    first = codec.encode(x, seed=11)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            other = codec.encode(x, seed=11)
            assert torch.equal(first.used(), other.used()), f"other bytes with {count} threads"
            same = _same_bits(codec.decode(first), codec.decode(other))
            assert same, f"other values with {count} threads"
    finally:
        torch.set_num_threads(threads)


def check_damage(codec: Codec, x: Tensor) -> None:
    """Cut at every byte, every bit flipped: a PayloadError or some values, never a crash."""
    payload = codec.encode(x, seed=3)
    payload = replace(payload, data=payload.used())
    size = payload.data.numel()
    for length in range(size):
        _survives(codec, replace(payload, data=payload.data[:length].clone()))
    _survives(codec, replace(payload, data=torch.cat([payload.data, payload.data[:1]])))
    for bit in _some(range(8 * size)):
        data = payload.data.clone()
        data[bit // 8] ^= 1 << bit % 8
        _survives(codec, replace(payload, data=data))


def _survives(codec: Codec, payload: Payload) -> None:
    try:
        y = codec.decode(payload)
    except PayloadError:
        return
    assert tuple(y.shape) == payload.shape, "damage changed the shape"


def _some(bits: range) -> list[int]:
    """All of a short range, a fixed sample of a long one."""
    return list(bits) if len(bits) <= 256 else random.Random(0).sample(bits, 256)


def _accepted(
    codec: Codec, dtype: torch.dtype, values: inputs.Values, on: torch.device
) -> Iterator[Tensor]:
    if not _holds(on, dtype):
        return
    for shape in inputs.SHAPES:
        x = values(shape, dtype, torch.Generator().manual_seed(len(shape) + sum(shape)))
        if _takes(codec, x):
            yield x.to(on)


def _holds(on: torch.device, dtype: torch.dtype) -> bool:
    """Whether the device has tensors of this type: MPS has no float64."""
    try:
        torch.zeros(1, dtype=dtype, device=on)
    except TypeError:
        return False
    return True


def _takes(codec: Codec, x: Tensor) -> bool:
    try:
        codec.check(x)
    except (TypeError, ValueError):
        return False
    return True


def _named(case: str, check: Callable[..., None], codec: Codec, *args: object) -> None:
    try:
        check(codec, *args)
    except AssertionError as error:
        raise AssertionError(f"{codec!r}, {case}: {error}") from error


def _same_bits(a: Tensor, b: Tensor) -> bool:
    a, b, kind = a.cpu(), b.cpu(), _BITS[a.element_size()]
    return torch.equal(a.contiguous().view(-1).view(kind), b.contiguous().view(-1).view(kind))


def _writable(x: Tensor) -> bool:
    """Whether no two elements of x share memory, expansion aside."""
    offsets = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(x.shape, x.stride(), strict=True):
        steps = torch.arange(size if stride else min(size, 1)) * stride
        offsets = (offsets.unsqueeze(-1) + steps).flatten()
    return int(offsets.unique().numel()) == offsets.numel()
