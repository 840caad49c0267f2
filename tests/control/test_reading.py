"""Readings: sums over samples and channels, against the same sums written down."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from actzip.autograd import slots
from actzip.control.backward import Backward, ErrorWeights, chunks, energy_of
from actzip.control.op import channel_dim
from actzip.control.reading import Groups, Reading, reading

NODE = "ConvolutionBackward0"


def a_backward(x: Tensor, node: str = NODE) -> Backward:
    gave = (torch.full((2,), 3.0), torch.full((4,), 2.0), None)
    return Backward(
        node, slots.op(node), "input", x, torch.full((5,), 2.0), gave, (False, True, True), {}
    )


def maps() -> tuple[Tensor, Tensor]:
    x = torch.randn(6, 3, 4, 5).relu()
    return x, torch.rand(6, 3, 4, 5)


def test_sums_by_sample_and_channel_leave_zeros_out() -> None:
    x, w = maps()
    found = reading(a_backward(x), ErrorWeights(parameter=w, input=2 * w), x)
    kept = (w * (x != 0)).double()
    assert torch.allclose(found.parameter, kept.sum((1, 2, 3)))
    assert torch.allclose(found.input, 2 * kept.sum((1, 2, 3)))
    assert torch.allclose(found.channel_parameter, kept.sum((0, 2, 3)))
    assert torch.allclose(found.channel_input, 2 * kept.sum((0, 2, 3)))
    assert float(found.zeros) == pytest.approx(1 - float(kept.sum() / w.double().sum()))
    assert torch.allclose(found.peak, x.double().amax((0, 2, 3)))
    assert float(found.power) == pytest.approx(float(x.double().square().mean()))


def test_signals_are_those_of_parameters_and_of_all_others() -> None:
    x, w = maps()
    found = reading(a_backward(x), ErrorWeights(parameter=w), x)
    assert float(found.parameter_signal) == 16
    assert float(found.input_signal) == pytest.approx(18)
    assert float(found.parameter_count) == 4
    assert float(found.outer_signal) == pytest.approx(20)


@pytest.mark.parametrize("shape", [(6, 1, 4, 5), (1, 3, 1, 1), (6, 1, 1, 1), (3, 1, 1), ()])
def test_weights_that_broadcast(shape: tuple[int, ...]) -> None:
    x, _ = maps()
    w = torch.rand(shape)
    whole = reading(a_backward(x), ErrorWeights(input=w.expand(x.shape).contiguous()), x)
    found = reading(a_backward(x), ErrorWeights(input=w), x)
    assert torch.allclose(found.input, whole.input)
    assert torch.allclose(found.channel_input, whole.channel_input)
    assert torch.allclose(found.zeros, whole.zeros)


def same(a: Reading, b: Reading) -> None:
    for name in vars(a):
        assert torch.allclose(getattr(a, name), getattr(b, name)), name


@pytest.mark.parametrize("by_sample", [True, False])
def test_large_tensors_are_read_in_parts_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch, by_sample: bool
) -> None:
    x, w = maps()
    groups = Groups(60, by_sample)  # a sample's size: no group is cut by a part
    whole = reading(a_backward(x), ErrorWeights(parameter=w, input=w[:, :1]), x, groups)
    monkeypatch.setattr("actzip.control.reading.chunk", lambda n: 130)  # two samples at a time
    same(reading(a_backward(x), ErrorWeights(parameter=w, input=w[:, :1]), x, groups), whole)


def _focus_by_hand(x: Tensor, w: Tensor, size: int, by_sample: bool) -> Tensor:
    rows = x.flatten(1) if by_sample else x.reshape(1, -1)
    squares = torch.empty_like(rows)
    for row, out in zip(rows, squares, strict=True):
        for first in range(0, rows.shape[1], size):
            part = row[first : first + size]
            out[first : first + size] = (part.max() - part.min()) ** 2
    squares, there = squares.view(len(x), -1), (x != 0).flatten(1)
    weights = w.flatten(1) * there
    mean = (squares * there).sum(1) / there.sum(1)
    return ((weights * squares).sum(1) / (weights.sum(1) * mean)).double()


@pytest.mark.parametrize("size", [7, 32, 60, 100, 1000])
@pytest.mark.parametrize("by_sample", [True, False])
def test_the_focus_is_how_far_large_ranges_meet_large_weights(size: int, by_sample: bool) -> None:
    x, w = maps()
    found = reading(a_backward(x), ErrorWeights(parameter=w), x, Groups(size, by_sample))
    assert torch.allclose(found.parameter_focus, _focus_by_hand(x, w, size, by_sample))
    assert (found.input_focus == 1).all(), "nothing travels"


def test_the_focus_follows_the_order_of_memory() -> None:
    x, w = maps()
    last = x.to(memory_format=torch.channels_last)
    found = reading(a_backward(last), ErrorWeights(parameter=w), last, Groups(7, True))
    x, w = (t.permute(0, 2, 3, 1).contiguous() for t in (x, w))
    assert torch.allclose(found.parameter_focus, _focus_by_hand(x, w, 7, True))


def test_a_code_without_groups_has_no_focus() -> None:
    x, w = maps()
    found = reading(a_backward(x), ErrorWeights(parameter=w), x)
    assert (found.parameter_focus == 1).all()


def test_a_group_with_a_nan_has_no_error_and_spoils_no_other() -> None:
    x, w = maps()
    x[0, 0, 0, 0] = torch.nan
    found = reading(a_backward(x), ErrorWeights(parameter=w), x, Groups(20, True))
    assert found.parameter_focus.isfinite().all()
    assert not found.is_finite(), "the mean square of x is not"


def test_a_view_has_the_power_of_what_is_read() -> None:
    """Of q in a tensor of q, k and v only a third is read; the rest is lifted to zeros."""
    q = torch.randn(4, 5, 8)
    full = torch.cat([q, torch.zeros(4, 5, 16)], -1)
    w = torch.cat([torch.ones(4, 5, 8), torch.zeros(4, 5, 16)], -1)
    found = reading(a_backward(q, "AddmmBackward0"), ErrorWeights(input=w), full)
    assert float(found.power) == pytest.approx(float(q.double().square().mean()))
    assert float(found.input.sum()) == 4 * 5 * 8


# -- the worst case ---------------------------------------------------------------------------


def test_without_a_bound_of_its_own_an_op_has_that_of_every_linear_map() -> None:
    """‖J·e‖² <= ‖J‖²·‖e‖², zeros included: a code may not keep them."""
    x, _ = maps()
    jacobian = torch.randn(11, x.numel())
    w = jacobian.square().sum(0).view(x.shape)
    found = reading(a_backward(x), ErrorWeights(input=w), x)
    worst = float(found.worst_input.sum())
    e = torch.sign(jacobian[0])
    assert worst >= float((jacobian @ e).square().sum())
    assert worst == pytest.approx(float(w.double().sum()) * x.numel())


def test_a_bound_per_channel_is_kept_and_another_one_is_spread() -> None:
    x, w = maps()
    given = torch.tensor([1.0, 2.0, 3.0])
    found = reading(a_backward(x), ErrorWeights(w, w, given, torch.tensor(6.0)), x)
    assert found.worst_parameter.tolist() == [1, 2, 3]
    assert found.worst_input.tolist() == [2, 2, 2]


# -- shapes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "dims", "dim"),
    [
        ("ConvolutionBackward0", 3, 1),
        ("ConvolutionBackward0", 4, 1),
        ("NativeBatchNormBackward0", 2, -1),
        ("AddmmBackward0", 2, -1),
        ("NativeLayerNormBackward0", 3, -1),
        ("SiluBackward0", 4, 1),
    ],
)
def test_where_channels_are(node: str, dims: int, dim: int) -> None:
    assert channel_dim(slots.op(node), dims) == dim


@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (4, 0), (1, 1)])
def test_odd_shapes(shape: tuple[int, ...]) -> None:
    x = torch.rand(shape)
    w = torch.ones(shape)
    found = reading(a_backward(x, "SiluBackward0"), ErrorWeights(input=w), x, Groups(256, False))
    assert float(found.input.sum()) == x.numel()
    assert found.is_finite()


def test_energy_is_added_in_a_dtype_that_holds_it() -> None:
    assert energy_of(torch.full((4,), 300.0, dtype=torch.float16)) == pytest.approx(
        360000, rel=1e-3
    )
    tiny = torch.full((4,), 1e-200, dtype=torch.float64)
    assert energy_of(tiny * 1e150) == pytest.approx(4e-100)


def test_chunks_cover_all_rows_once() -> None:
    for rows, elements, limit in ((10, 100, 30), (3, 3, 1000), (5, 5000, 10), (0, 0, 10)):
        covered = [i for first, last in chunks(rows, elements, limit) for i in range(first, last)]
        assert covered == list(range(rows))
