"""Norms made again: the C++ kernels equal their plain-PyTorch twins, on every instruction set."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from actzip import kernels
from actzip.kernels.native import library
from actzip.kernels.native import norm as native
from actzip.kernels.reference import norm as reference

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
SHAPES = [(3, 5, 7, 9), (2, 64, 4, 4), (40, 33), (2, 3, 4, 5, 6), (2, 4, 100, 100)]
SHAPES += [(3, 5, 80, 80), (2, 511, 9, 9), (2, 513, 5, 7)]  # about a table of innermost channels


@pytest.fixture(params=range(len(library.ISA)), ids=library.ISA, autouse=True)
def _isa(request: pytest.FixtureRequest) -> object:
    best = library.isa_level()
    if request.param > best:
        pytest.skip("this processor does not have it")
    library.set_isa_level(request.param)
    yield
    library.set_isa_level(-1)


def _inputs(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(7)
    x = torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
    scale, shift, origin = (
        torch.randn(shape[1], generator=rng, dtype=torch.float64) for _ in "abc"
    )
    as_real = reference.real(dtype)
    return x, scale.to(as_real), shift.to(as_real), origin.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_channels_equal_their_twin(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, scale, shift, origin = _inputs(shape, dtype)
    x.view(-1)[:1] = torch.inf
    orders = [x]
    if x.dim() == 4:
        orders += [x.to(memory_format=torch.channels_last), x.transpose(2, 3)]
    for each in orders:
        for sides in (None, (origin, scale < 0)):
            made = native.channels(each, scale, shift, sides)
            twin = reference.channels(each, scale, shift, sides)
            assert made.dtype == dtype
            assert made.stride() == twin.stride()
            assert torch.equal(made, twin)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_relu_is_on_exactly_where_its_side_is(dtype: torch.dtype) -> None:
    x, scale, shift, origin = _inputs((4, 6, 10, 10), dtype)
    made = kernels.of(x, "norm").channels(x, scale, shift, (origin, scale < 0))
    around = (1, -1, 1, 1)
    above = x > origin.view(around)
    assert torch.equal(made > 0, above ^ (scale < 0).view(around))
    assert not (made < 0).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(70, 257), (1, 1), (2, 2, 30_000)])
@pytest.mark.parametrize("parts", ["mean weight bias", "weight", "", "mean bias"])
def test_rows_equal_their_twin(shape: tuple[int, ...], dtype: torch.dtype, parts: str) -> None:
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
    as_real = reference.real(dtype)

    def some(name: str, size: tuple[int, ...]) -> Tensor | None:
        found = torch.rand(size, generator=rng, dtype=torch.float64).to(as_real)
        return found if name in parts else None

    per_row = (*shape[:-1], 1)
    mean, rstd = some("mean", per_row), some("", per_row)
    weight, bias = some("weight", shape[-1:]), some("bias", shape[-1:])
    assert rstd is not None
    made = native.rows(x, mean, rstd, weight, bias)
    assert made.dtype == dtype
    assert torch.equal(made, reference.rows(x, mean, rstd, weight, bias))


def test_they_are_the_norms_of_pytorch() -> None:
    x, weight, bias = torch.randn(8, 12, 6, 6), torch.rand(12), torch.rand(12)
    y, mean, invstd = torch.native_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)
    scale = invstd * weight
    assert torch.allclose(native.channels(x, scale, bias - mean * scale), y, atol=1e-5)
    x, weight, bias = torch.randn(6, 40), torch.rand(40), torch.rand(40)
    y, mean, rstd = torch.native_layer_norm(x, (40,), weight, bias, 1e-5)
    assert torch.allclose(native.rows(x, mean, rstd, weight, bias), y, atol=1e-6)
    z = F.rms_norm(x, (40,), weight, 1e-5)
    r = x.square().mean(-1, keepdim=True).add(1e-5).rsqrt()
    assert torch.allclose(native.rows(x, None, r, weight, None), z, atol=1e-6)


@pytest.mark.parametrize("entry", ["norm_channels", "norm_rows"])
def test_a_buffer_that_is_too_short_is_refused(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(name: str, *args: int | Tensor) -> int:
        for i, given in enumerate(args):
            if isinstance(given, Tensor) and given.numel():
                less = given.reshape(-1)[:-1]
                with pytest.raises(ValueError, match=name):
                    library.call(name, *args[:i], less, *args[i + 1 :])
        return library.call(name, *args)

    monkeypatch.setattr(native, "call", cut)
    x, scale, shift, origin = _inputs((2, 3, 4, 4), torch.float32)
    if entry == "norm_channels":
        native.channels(x, scale, shift, (origin, scale < 0))
    else:
        native.rows(
            x.view(6, 16), torch.rand(6, 1), torch.rand(6, 1), torch.rand(16), torch.rand(16)
        )


def test_slopes_are_those_of_the_twin() -> None:
    x, scale, shift, origin = _inputs((2, 3, 4, 4), torch.float32)
    for sides in (None, (origin, scale < 0)):
        leaf = x.clone().requires_grad_()
        native.channels(leaf, scale, shift, sides).sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.abs().sum() > 0
    leaf = x.view(6, 16).clone().requires_grad_()
    native.rows(leaf, None, torch.rand(6, 1), None, None).sum().backward()
    assert leaf.grad is not None
