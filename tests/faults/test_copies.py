"""Copies of tensors, and edits between copying, saving and backward."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from training import EXACT, KEEP, assert_trains_the_same

METHODS = pytest.mark.parametrize("method", EXACT.values(), ids=EXACT)


class Program(nn.Module):
    """A few lines of code around one parameter."""

    def __init__(self, code: Callable[[Tensor, Tensor], Tensor], width: int = 40):
        super().__init__()
        self.w = nn.Parameter(torch.randn(width, width))
        self.code = code

    def forward(self, x: Tensor) -> Tensor:
        return self.code(x, self.w).square().mean()


def _edited_under_no_grad(x: Tensor, w: Tensor) -> Tensor:
    a = x * w
    y = a.clone()
    with torch.no_grad():
        y.mul_(3.0)
    return a.exp() + y * w


def _edited_through_detach(x: Tensor, w: Tensor) -> Tensor:
    a = (x * w).exp()
    y = a.clone()
    y.detach().clamp_(-0.5, 0.5)
    return a + y * w


def _edited_through_data(x: Tensor, w: Tensor) -> Tensor:
    a = (x * w).exp()
    y = a.clone()
    y.data.mul_(3.0)
    return a + y * w


def _data_replaced(x: Tensor, w: Tensor) -> Tensor:
    a = (x * w).exp()
    y = a.clone()
    y.data = a.detach().round()  # the straight-through trick
    return a + y * w


def _source_edited_after_the_copy(x: Tensor, w: Tensor) -> Tensor:
    a = x * w
    (a * a).sum().sqrt()  # a is saved by a graph that is dropped
    c = a.clone()
    y = c * w
    a.add_(1.0)
    return y + a


def _reordered(x: Tensor, w: Tensor) -> Tensor:
    a = (x * w).exp()
    b = a.t().contiguous() * w + a.permute(1, 0).reshape(20, 80).view(40, 40) * w
    return b + a.to(torch.float64).float() * w + a.bfloat16() * w.bfloat16()


def _imaginary(x: Tensor, w: Tensor) -> Tensor:
    z = torch.complex(x * w, w)
    return z.imag * w + z.conj().imag * x * w + torch._neg_view(x * w) * w


def _overlapping(x: Tensor, w: Tensor) -> Tensor:
    a = (x * w).flatten()
    picked = a[:60].unfold(0, 5, 2) * w[:28, :5]
    ids = torch.arange(100)[3:30].unfold(0, 5, 2) % 40
    mask = (x.flatten() > 0)[:60].unfold(0, 5, 2)
    chosen = torch.where(mask, picked, picked.sin())
    strided = a.as_strided((4, 4), (3, 2), 5) * w[:4, :4]
    relus = F.leaky_relu(a[:60].unfold(0, 5, 2))
    return torch.cat([t.flatten() for t in (chosen, F.embedding(ids, w), strided, relus)])


PROGRAMS = {
    f.__name__.strip("_"): f
    for f in (
        _edited_under_no_grad,
        _edited_through_detach,
        _edited_through_data,
        _data_replaced,
        _source_edited_after_the_copy,
        _reordered,
        _imaginary,
        _overlapping,
    )
}


@METHODS
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_trains_bit_for_bit(name: str, method: actzip.Method) -> None:
    x = torch.randn(40, 40)
    keeps = True if method == KEEP else None  # lossless stores some of these as they are
    assert_trains_the_same(
        Program(PROGRAMS[name]), lambda m: m(x), compresses=keeps, method=method, min_bytes=0
    )


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_a_cast_does_not_keep_what_it_was_cast_from() -> None:
    w = torch.randn(200, 200, requires_grad=True)
    with actzip.compress() as session:
        a = w * 2
        (a * a).sum()
        c = a.to(torch.bfloat16).sin()
        del a
    assert c.grad_fn is not None
    kept = [r for r in session.stats().sites if r.node == "SinBackward0"]
    assert kept[0].reason, "the copy itself is kept, not its larger source"


@METHODS
@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_slices_of_a_constant_are_counted_once_each(method: actzip.Method) -> None:
    data = torch.randn(100, 64)
    model = Program(lambda x, w: torch.stack([x[i] * w[0, 0] for i in range(20)]))
    with actzip.compress(model, method=method, min_bytes=0) as session:
        model(data)
        rows = [r for r in session.stats().sites if r.node == "MulBackward0"]
    assert sum(r.raw_bytes for r in rows) == 20 * 64 * 4
    assert sum(r.stored_bytes for r in rows) >= 20 * 64 * 4


def test_a_session_used_by_several_threads_around_code_unwinds_each() -> None:
    session = actzip.compress()
    left: list[object] = []

    def work() -> None:
        w = torch.randn(64, 64, requires_grad=True)
        for _ in range(50):
            with session:
                F.relu(w).sum().backward()
        left.append(torch.overrides._get_current_function_mode())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert left == [None] * 4


def test_jit_tracing_sees_the_plain_model() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.0))
    x = torch.randn(64, 64)
    with actzip.compress(model) as session:
        traced = torch.jit.trace(model, (x,))
        assert session.step == 0
    assert torch.equal(traced(x), model(x))


def test_meta_tensors_and_inference_mode_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5), nn.GELU()).to("meta")
    with actzip.compress(model, min_bytes=0) as session:
        with pytest.warns(actzip.ActzipWarning, match="meta"):
            model(torch.randn(64, 64, device="meta")).sum().backward()
        assert any("meta" in kind for kind in session.stats().unseen)
    plain = nn.Linear(64, 64)
    with torch.inference_mode(), pytest.warns(actzip.ActzipWarning), actzip.compress():
        assert plain(torch.randn(64, 64)).shape == (64, 64)


def test_a_tensor_of_inference_mode_among_the_operands_is_no_error() -> None:
    """It has no version: what is made from it cannot be made again."""
    x = torch.randn(64, 64).requires_grad_()
    with torch.inference_mode():
        y = torch.erf(x)
    with actzip.compress():
        h = x + y
        (h.tanh() * h.sigmoid()).sum().backward()
    ours, x.grad = x.grad, None
    h = x + y
    (h.tanh() * h.sigmoid()).sum().backward()
    assert ours is not None
    assert x.grad is not None
    assert torch.equal(ours, x.grad)


def _negated(x: Tensor, w: Tensor) -> Tensor:
    a = torch._neg_view(x * w)
    z = torch.complex((x * w).tanh(), w.tanh())
    copies = a.clone() * w + a.to(torch.float64).float() * w
    return copies * a.tanh() + (z.conj().clone() * w).imag + (z.conj() * z.conj().sin()).real


@METHODS
@pytest.mark.parametrize("width", [40, 160])  # the larger ones are not held by a call
@pytest.mark.parametrize("code", [_imaginary, _negated])
def test_negated_and_conjugated_views_are_not_their_base(
    code: Callable[[Tensor, Tensor], Tensor], width: int, method: actzip.Method
) -> None:
    """They have its memory, version and place, and other values."""
    x = torch.randn(width, width)
    assert_trains_the_same(
        Program(code, width), lambda m: m(x), compresses=None, method=method, min_bytes=0
    )
