"""Backward in micro-batches inside a session: the peak it saves, and all that must not change."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
from sliced import LowBit, backward, batch, blocks, both, close, count_slices, read_whole, weights
from torch import Tensor, nn

import actzip
from actzip.autograd.sliced_tensor import Sliced
from actzip.codecs import Codec, Group
from actzip.control.statistics import Statistics
from actzip.memory.measure import live_peak
from actzip.methods.base import Policy, Site

MIB = 1 << 20


# the peak


def peak(model: nn.Module, x: Tensor, slice_bytes: int | None) -> int:
    """Live peak of backward alone, above what the graph holds."""
    model.zero_grad(set_to_none=True)
    with actzip.compress(model, LowBit(slice_bytes)):
        y = model(x)
        gradient = torch.ones_like(y)
        return live_peak(lambda: y.backward(gradient))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_live_peak_of_backward_is_a_third_lower(layout: torch.memory_format) -> None:
    model = blocks()[:6].to(memory_format=layout)
    x = batch(16, side=64).to(memory_format=layout)  # 4 MiB, and so is each map
    whole, sliced = peak(model, x, None), peak(model, x, MIB)
    assert whole > 16 * MIB, "a gradient that came, one that is made, decoded tensors, scratch"
    assert sliced < 11 * MIB, "the two gradients and slices"


@pytest.mark.parametrize(
    ("op", "gradients"),
    [
        (nn.Conv2d(16, 16, 3, padding=1), 1.0),
        (nn.BatchNorm2d(16), 1.0),
        (nn.SiLU(), 1.0),
        (nn.MaxPool2d(2), 1.5),  # with the places of the maxima, in 64 bits
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_op_decodes_its_input_whole(op: nn.Module, gradients: float) -> None:
    model = op.to(memory_format=torch.channels_last)
    x = batch(16, side=64).to(memory_format=torch.channels_last).requires_grad_()
    assert peak(model, x, None) >= (gradients + 1) * 4 * MIB
    assert peak(model, x, MIB) <= (gradients + 0.5) * 4 * MIB


def test_level_3_1_of_actnn_has_a_lower_peak_than_level_3() -> None:
    model = blocks()[:6]
    x = batch(16, side=64)
    found = {}
    for level in ("L3", "L3.1"):
        with actzip.compress(model, actzip.ActNN(level=level, slice_bytes=MIB)):
            for step in range(4):  # it looks at the gradients in steps 0, 1 and 2
                y = model(x)
                y.sum().backward() if step < 3 else None
            gradient = torch.ones_like(y)
            model.zero_grad(set_to_none=True)
            found[level] = live_peak(lambda y=y, g=gradient: y.backward(g))
    assert found["L3.1"] < 11 * MIB
    assert found["L3.1"] < 0.6 * found["L3"]


def test_a_small_tensor_is_read_whole() -> None:
    with count_slices() as counts:
        backward(blocks(), batch(), LowBit(8 * MIB))
        assert counts == []
        backward(blocks(), batch(), LowBit(None))
        assert counts == []
        backward(blocks(), batch(1), LowBit(1))
        assert counts == [], "one sample cannot be cut"


def test_slices_are_as_large_as_was_asked_for() -> None:
    x = batch(16)  # 64 KiB a sample, and as much of the output
    with count_slices() as counts:
        backward(nn.Conv2d(16, 16, 3, padding=1), x, LowBit(512 << 10))
    assert counts == [4]


# one stored tensor, several readers


def test_a_relus_mask_is_read_in_slices_from_the_convolutions_code() -> None:
    model, x = blocks(), batch()
    with actzip.compress(model, LowBit()) as session:
        model(x)
        rows = {row.name: row for row in session.stats().sites}
    relu, conv = rows["2:ReluBackward0.result"], rows["3:ConvolutionBackward0.input"]
    assert relu.shared_with == conv.name
    assert conv.codec == "Split(codec=Group(bits=2, zero=True), parts=8)"
    ours, whole = both(model, x)
    close(ours, whole, 1e-4)


@dataclass(frozen=True)
class Coded(LowBit):
    """One codec for all; `left` names the node whose tensors stay exact."""

    slice_bytes: int | None = 20_000
    code: Codec | None = None
    left: str = ""

    def codec(self, site: Site, tensor: Tensor) -> Codec | None:
        return None if site.node == self.left else self.code


def test_bits_of_a_mask_that_stand_alone_are_read_in_slices() -> None:
    """And with the values: what ReLU made zero is zero in each part."""
    model, x = nn.Sequential(nn.Conv2d(16, 16, 1), nn.ReLU(), nn.Conv2d(16, 4, 1)), batch()
    method = Coded(slice_bytes=200_000, code=Group(2))  # it cannot tell zeros
    with count_slices() as counts:
        ours = backward(model, x, method)
    assert counts == [4, 4, 6], "the mask has the parts of the convolution that needs it"
    with read_whole():
        close(ours, backward(model, x, method))


def test_what_is_kept_exactly_is_read_through_views() -> None:
    """exp keeps its result as it is; the convolution reads it there."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(16, 16, 1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.conv(x.exp())
            return out

    model, x = Net(), batch().requires_grad_()
    with count_slices() as counts:
        ours = backward(model, x, Coded(code=Group(2), left="ExpBackward0"))
    assert counts == [8]
    with torch.enable_grad():
        y = model(x)
        plain = torch.autograd.grad((y * weights(y)).sum(), [x, *model.parameters()])
    close(ours, list(plain))


def test_samples_per_sample_bits_are_cut_with_the_samples() -> None:
    method = Coded(code=Group((1, 2, 3, 4, 5, 6, 7, 8)))
    model, x = nn.Conv2d(16, 16, 3), batch()
    ours = backward(model, x, method)
    with read_whole():
        close(ours, backward(model, x, method))


# the tensor itself


def test_a_slice_of_samples_decodes_only_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Conv2d(16, 4, 3), batch()
    with actzip.compress(model, LowBit()):
        y = model(x)
    saved = y.grad_fn._saved_input  # type: ignore[union-attr]
    assert type(saved) is Sliced
    assert (saved.shape, saved.stride(), saved.dtype) == (x.shape, x.stride(), x.dtype)
    whole = saved + 0
    assert type(whole) is Tensor
    decoded = []
    plain = Group.decode
    monkeypatch.setattr(
        Group, "decode", lambda self, p, out=None: decoded.append(p.shape[0]) or plain(self, p, out)
    )
    parts = len(list(saved.slices()))
    decoded.clear()
    for part in (slice(2, 3), slice(1, 6), slice(None), slice(-2, None)):
        assert torch.equal(saved[part], whole[part])
    assert len(decoded) < 2 + 5 + parts + 3
    assert torch.equal(saved[3:3], whole[3:3])
    assert torch.equal(saved[::2], whole[::2])
    assert torch.equal(saved[:, 1:3], whole[:, 1:3])


def test_what_backward_tells_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """An observed pass reads in slices too, and learns what it would have learned."""

    class Watching(LowBit):
        def start(self, optimizer: object) -> Policy:
            return copy.copy(self)

        def begin(self, step: int, statistics: Statistics) -> bool:
            learned.append(statistics)
            return True

    learned: list[Statistics] = []
    model, x = blocks(), batch()
    with count_slices() as counts:
        backward(model, x, Watching())
    assert len(counts) > 8
    with read_whole():
        backward(model, x, Watching())
    ours, whole = learned
    assert len(ours.sites) == 5
    assert ours.sites == whole.sites
    assert ours.missing == whole.missing == {}
    for site in ours.sites:
        a, b = ours.of(site), whole.of(site)
        assert a is not None
        assert b is not None
        torch.testing.assert_close(a.parameter, b.parameter, rtol=1e-3, atol=1e-12)
        torch.testing.assert_close(a.input, b.input, rtol=1e-3, atol=1e-12)
        torch.testing.assert_close(a.peak, b.peak)
