"""A session inside a session: the inner one wins for its part, whatever way the pass ends."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode

import actzip
from actzip.codecs import Group
from training import assert_equal, gradients

COARSE = actzip.Fixed(linear=Group(bits=2), nonlinear=Group(bits=2))


class Net(nn.Module):
    """Head, a part of its own, tail; the part may raise."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 64)
        self.part = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
        self.tail = nn.Linear(64, 64)
        self.error: type[BaseException] | None = None
        self.part[1].register_forward_hook(self._raise)

    def _raise(self, *_: object) -> None:
        if self.error is not None:
            raise self.error

    def forward(self, x: Tensor) -> Tensor:
        h = self.part(torch.sigmoid(self.head(x)))
        out: Tensor = self.tail(torch.relu(h))
        return out


def loss(model: nn.Module) -> Tensor:
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    out: Tensor = model(x).square().sum()
    return out


def nodes(session: actzip.Session) -> list[str]:
    return [row.name for row in session.stats().sites]


OUTER = [
    "head:AddmmBackward0.mat1",
    ":SigmoidBackward0.result",
    ":ReluBackward0.result",
    "tail:AddmmBackward0.mat1",
]
INNER = ["0:AddmmBackward0.mat1", "1:TanhBackward0.result", "2:AddmmBackward0.mat1"]


@pytest.mark.parametrize("inner_first", [True, False])
def test_each_has_its_part_and_outside_the_inner_one_gradients_are_exact(inner_first: bool) -> None:
    net = Net()
    expected = gradients(copy.deepcopy(net), loss)
    if inner_first:
        inner, outer = actzip.compress(net.part, COARSE), actzip.compress(net)
    else:
        outer, inner = actzip.compress(net), actzip.compress(net.part, COARSE)
    for step in (1, 2):
        net.zero_grad()
        ours = gradients(net, loss)
        assert nodes(outer) == OUTER
        assert nodes(inner) == INNER
        assert outer.step == inner.step == step
        for name, value in ours.items():
            # what the part passes down to the head has gone through the coarse tanh
            exact = name.startswith("tail") or name == "part.2.bias"
            assert torch.equal(value, expected[name]) == exact, name
    assert inner.stats().ratio > 10
    assert inner.live_bytes == outer.live_bytes == 0
    assert actzip.session_of(net) is outer
    assert actzip.session_of(net.part) is inner
    inner.remove()
    assert_equal(gradients(net, loss), expected)
    assert len(nodes(outer)) == len(OUTER) + len(INNER)
    outer.remove()


def test_nothing_is_stored_twice() -> None:
    net = Net()
    with actzip.compress(net, COARSE) as alone:
        kept = loss(net)
        once = alone.live_bytes
        del kept
    with actzip.compress(net, COARSE) as outer, actzip.compress(net.part, COARSE) as inner:
        kept = loss(net)
        held = [s.live_bytes for s in (outer, inner)]
        for session, live in zip((outer, inner), held, strict=True):
            coded = sum(row.stored_bytes for row in session.stats().sites if row.codec)
            assert live == coded == session.peak_stored_bytes > 0
        # the sigmoid's result, saved on both sides of the border, is in both
        border = next(r.stored_bytes for r in inner.stats().sites if r.name == INNER[0])
        assert sum(held) == once + border
        kept.backward()
        assert outer.live_bytes == inner.live_bytes == 0


def test_lossless_inside_lossy_is_exact_where_only_its_tensors_are_read() -> None:
    net = Net()
    net.head.requires_grad_(False)
    net.tail.requires_grad_(False)
    expected = gradients(copy.deepcopy(net), loss)
    with actzip.compress(net, COARSE), actzip.compress(net.part):
        x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
        out = net(x)
        found = torch.autograd.grad(out.square().sum(), list(net.part.parameters()))
    for (name, _), value in zip(net.part.named_parameters(), found, strict=True):
        assert torch.equal(value, expected[f"part.{name}"]), name


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_exception_in_the_inner_part_both_work_as_before(
    error: type[BaseException],
) -> None:
    net = Net()
    expected = gradients(copy.deepcopy(net), loss)
    with actzip.compress(net) as outer, actzip.compress(net.part) as inner:
        for _ in range(2):
            net.error = error
            with pytest.raises(error):
                loss(net)
            net.error = None
            assert_equal(gradients(net, loss), expected)
            assert nodes(outer) == OUTER
            assert nodes(inner) == INNER
            net.zero_grad()
    assert _get_current_function_mode() is None


def test_an_exception_that_the_outer_forward_catches() -> None:
    class Careful(Net):
        def forward(self, x: Tensor) -> Tensor:
            try:
                self.part(x)
            except ValueError:
                self.error = None
            return super().forward(x)

    net = Careful()
    expected = gradients(copy.deepcopy(net), loss)
    with actzip.compress(net) as outer, actzip.compress(net.part) as inner:
        net.error = ValueError
        assert_equal(gradients(net, loss), expected)
        assert nodes(outer) == OUTER
        assert nodes(inner) == INNER


def test_a_mode_of_the_users_around_the_part_is_left_in_its_place() -> None:
    class Counting(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.calls += 1
            return func(*args, **(kwargs or {}))

    class Net2(Net):
        def forward(self, x: Tensor) -> Tensor:
            with Counting() as self.mode:
                h = self.part(torch.sigmoid(self.head(x)))
                h = torch.relu(h)
            out: Tensor = self.tail(h)
            return out

    net = Net2()
    expected = gradients(copy.deepcopy(net), loss)
    with actzip.compress(net) as outer, actzip.compress(net.part) as inner:
        assert_equal(gradients(net, loss), expected)
        assert net.mode.calls > 5
        assert nodes(outer) == OUTER
        assert nodes(inner) == INNER


def test_three_levels_and_a_with_around_them() -> None:
    net = Net()
    expected = gradients(copy.deepcopy(net), loss)
    with (
        actzip.compress() as around,
        actzip.compress(net) as outer,
        actzip.compress(net.part) as inner,
        actzip.compress(net.part[1], min_bytes=0) as innermost,
    ):
        assert_equal(gradients(net, loss), expected)
        assert nodes(outer) == OUTER
        assert nodes(inner) == [INNER[0], INNER[2]]
        assert nodes(innermost) == [":TanhBackward0.result"]
        assert nodes(around) == [":PowBackward0.self"]


def test_a_with_inside_a_models_forward_has_its_lines() -> None:
    class Mixed(Net):
        session = actzip.compress(method=COARSE)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.sigmoid(self.head(x))
            with self.session:
                h = torch.tanh(h)
            out: Tensor = self.tail(h)
            return out

    net = Mixed()
    with actzip.compress(net) as outer:
        loss(net).backward()
        assert nodes(outer) == [OUTER[0], OUTER[1], OUTER[3]]
        assert nodes(net.session) == [":TanhBackward0.result"]


def test_an_outer_session_with_nothing_but_the_part_does_not_warn() -> None:
    part = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    net = nn.Sequential(part)
    with actzip.compress(net) as outer, actzip.compress(part) as inner:
        net(torch.randn(64, 64)).sum().backward()  # a warning would be an error
        assert outer.stats().raw_bytes == 0 < inner.stats().raw_bytes


def test_gradient_noise_puts_the_inner_session_aside_as_well() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.Sequential(nn.Tanh(), nn.Linear(64, 4)))
    batch = torch.randn(32, 64), torch.randint(0, 4, (32,))
    with actzip.compress(net) as outer, actzip.compress(net[1], COARSE) as inner:
        total = outer.gradient_noise(batch, draws=2, parts=2).total
        assert total.quantization > 0
        assert outer.step == inner.step == 0
        assert inner.metrics()["passes"] == 0
