"""The results of norms, made again: equal to plain PyTorch's bit for bit."""

from __future__ import annotations

import pytest
import torch
from agreement import QUIET, as_bits
from kernel_cases import FLOATS

from actzip import kernels
from actzip.kernels.reference import norm as reference

pytestmark = QUIET


@pytest.mark.parametrize("dtype", FLOATS)
def test_channels_with_and_without_relu(dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(7)
    real = reference.real(dtype)
    for shape in [(3, 5, 7, 9), (40, 33), (2, 64, 24, 10)]:
        x = torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
        x.view(-1)[:2] = torch.tensor([torch.inf, torch.nan])
        each = torch.randn(3, shape[1], generator=rng, dtype=torch.float64) * 1e5
        scale, shift, origin = each[0].to(real), each[1].to(real), (each[2] / 1e5).to(dtype)
        for order in [x, x.to(memory_format=torch.channels_last)] if x.dim() == 4 else [x]:
            for sides in (None, (origin, scale < 0)):
                made = kernels.of(x, "norm").channels(order, scale, shift, sides)
                twin = reference.channels(order, scale, shift, sides)
                assert made.stride() == twin.stride()
                assert torch.equal(made.isnan(), twin.isnan())
                made, twin = made.nan_to_num(0, 1, 2), twin.nan_to_num(0, 1, 2)
                assert torch.equal(as_bits(made), as_bits(twin)), (shape, sides is None)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rows(dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(3)
    real = reference.real(dtype)
    for parts, shape in (("mwb", (70, 257)), ("w", (1, 1)), ("", (2, 2, 300)), ("mb", (5, 3300))):
        x = torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
        mean, rstd = (torch.rand((*shape[:-1], 1), generator=rng).to(real) for _ in "mr")
        weight, bias = (torch.rand(shape[-1], generator=rng).to(real) for _ in "wb")
        given = (mean if "m" in parts else None, rstd, *(
            t if name in parts else None for name, t in (("w", weight), ("b", bias))
        ))  # fmt: skip
        made = kernels.of(x, "norm").rows(x, *given)
        assert torch.equal(as_bits(made), as_bits(reference.rows(x, *given))), (parts, shape)


def test_slopes_are_left_to_autograd() -> None:
    leaf = torch.randn(6, 16, requires_grad=True)
    kernels.of(leaf, "norm").rows(leaf, None, torch.rand(6, 1), None, None).sum().backward()
    assert leaf.grad is not None
