"""Memory edited through `.data`, numpy or a base under no_grad: never a value that plain PyTorch
would not have read for the same op."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip
from training import EXACT

Around = Callable[[], AbstractContextManager[object]]


def _leaf(*shape: int) -> Tensor:
    return torch.randn(*(shape or (64, 64)), requires_grad=True)


def _grad(out: Tensor, *of: Tensor) -> Tensor:
    return torch.autograd.grad(out.sum(), of)[0]


def _grad_of_the_last(first: Tensor, last: Tensor, of: Tensor) -> Tensor:
    """The first use is alive until now: with it would go what it stored."""
    assert first.grad_fn is not None
    return _grad(last, of)


def _array_edited_between_two_uses(around: Around) -> Tensor:
    x = _leaf()
    with around():
        m = torch.bernoulli(torch.full((64, 64), 0.5))
        n = m.numpy()
        a = x * m
        n[:] = 1
        b = x * m
    return _grad_of_the_last(a, b, x)


def _array_taken_before_the_pass(around: Around) -> Tensor:
    x, m = _leaf(), torch.bernoulli(torch.full((64, 64), 0.5))
    n = m.numpy()
    with around():
        a = x * m
        n[:] = 1
        b = x * m
    return _grad_of_the_last(a, b, x)


def _data_edited_between_two_uses(around: Around) -> Tensor:
    x = _leaf()
    with around():
        h = x * 2
        a = h * x
        h.data.mul_(3)
        b = h * x
    return _grad_of_the_last(a, b, x)


def _source_of_a_clone_edited_through_data(around: Around) -> Tensor:
    a = _leaf()
    with around():
        h = a.exp()
        y = h.clone()
        z = y * y
        h.data.mul_(0)
    return _grad(z, y)


def _source_of_a_clone_edited_in_place(around: Around) -> Tensor:
    a = _leaf()
    with around():
        h = a.exp()
        y = h.clone()
        z = y * y
        h.add_(1)
    return _grad(z, y)


def _source_of_a_clone_kept_later_and_edited(around: Around) -> Tensor:
    a = _leaf()
    with around():
        h = a * 2
        first = h * a
        y = h.clone()
        z = y * y
        last = a / h  # keeps h as it is
        h.add_(1)
    assert first.grad_fn is not None
    assert last.grad_fn is not None
    return _grad(z, y)


def _result_of_a_relu_edited_and_put_back(around: Around) -> Tensor:
    x, w = _leaf(), _leaf()
    with around():
        y = x.relu()
        before = y.detach().clone()
        y.detach().numpy()[:] = 3
        z = y * w  # keeps another state of y than the mask is of
        y.data.copy_(before)
    return _grad(z, x)


def _view_of_a_parameter_edited_under_no_grad(around: Around) -> Tensor:
    x, w = _leaf(), nn.Parameter(torch.randn(8, 64))
    with around():
        with torch.no_grad():
            w[0].zero_()
        y = (x @ w.t()).exp()
    return _grad(y, x)


def _embedding_made_inside(around: Around) -> Tensor:
    with around():
        table = nn.Embedding(50, 64, padding_idx=0)
        y = table(torch.arange(50)).exp()
    return _grad(y, table.weight)


def _pieces_of_an_edited_base(around: Around) -> Tensor:
    x, h = _leaf(), torch.randn(64, 64)
    with around():
        h.requires_grad_()
        with torch.no_grad():
            first, _ = h.split(32)
            rows = h.unbind(0)
            h.mul_(2)
        y = (first.detach() * x[:32]).exp().sum() + (rows[1].detach() * x[0]).sin().sum()
    return _grad(y, x)


def _thin_slice_of_a_clone(around: Around) -> Tensor:
    x = _leaf(32, 64, 16)
    with around():
        h = torch.tanh(x)
        c = h.clone()[:, 0]
        d = h.to(torch.bfloat16)[:, 1]
        y = (c * c).sum() + (d * d).sum() + h.sum()
    return _grad(y, x)


def _zero_initialised_head(around: Around) -> Tensor:
    x, head = _leaf(32, 64), nn.Linear(64, 10)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    with around():
        y = F.softmax(head(x), -1).clamp(min=1e-7).log()
    return _grad(y * torch.arange(10.0), head.weight)


PROGRAMS = {
    f.__name__.strip("_"): f
    for f in (
        _array_edited_between_two_uses,
        _array_taken_before_the_pass,
        _data_edited_between_two_uses,
        _source_of_a_clone_edited_through_data,
        _source_of_a_clone_edited_in_place,
        _source_of_a_clone_kept_later_and_edited,
        _result_of_a_relu_edited_and_put_back,
        _view_of_a_parameter_edited_under_no_grad,
        _embedding_made_inside,
        _pieces_of_an_edited_base,
        _thin_slice_of_a_clone,
        _zero_initialised_head,
    )
}


@pytest.fixture(params=EXACT.values(), ids=EXACT)
def compressed(request: pytest.FixtureRequest) -> Around:
    return lambda: actzip.compress(method=request.param, min_bytes=0)


@pytest.mark.parametrize("method", ["actnn", "division", "comet", "acgc", "auto"])
def test_a_zero_initialised_head_trains_under_every_method(method: str) -> None:
    """Its softmax holds only zero and one other value, and a mask is read from that: BitMask, which
    stores such tensors, did not tell zeros from small values, and backward raised."""
    torch.manual_seed(1)
    expected = _zero_initialised_head(nullcontext)
    for derive in (None, True):
        torch.manual_seed(1)
        ours = _zero_initialised_head(
            lambda derive=derive: actzip.compress(method=method, min_bytes=0, derive=derive)
        )
        assert (ours - expected).norm() <= expected.norm()  # two bits each


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_gradient_is_plain_pytorchs(name: str, compressed: Around) -> None:
    torch.manual_seed(1)
    expected = PROGRAMS[name](nullcontext)
    torch.manual_seed(1)
    assert torch.equal(PROGRAMS[name](compressed), expected)
    assert expected.abs().sum() > 0


@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_a_constant_that_nobody_edits_is_stored_once() -> None:
    x, m = _leaf(), torch.bernoulli(torch.full((64, 64), 0.5))
    with actzip.compress(min_bytes=0) as session:
        (x * m + x.exp() * m).sum().backward()
    rows = [r for r in session.stats().sites if r.node == "MulBackward0" and r.slot == "other"]
    assert [bool(r.shared_with) for r in rows] == [False, True]


def test_an_edit_to_values_that_the_code_does_not_hold_is_seen() -> None:
    """All of a softmax of zeros are one number, as of a dropout's factor; half of it is another."""

    def gradient() -> Tensor:
        x = torch.randn(12, requires_grad=True)
        y = torch.softmax(x * 0, -1)
        z = y * x
        y.data.mul_(0.5)
        (found,) = torch.autograd.grad((z + F.hardsigmoid(y) * y).sum(), x)
        return found

    torch.manual_seed(0)
    expected = gradient()
    for method in ("lossless", actzip.Fixed(actzip.codecs.Keep(), actzip.codecs.Keep())):
        torch.manual_seed(0)
        with actzip.compress(method=method, min_bytes=0):
            found = gradient()
        assert found.shape == expected.shape
        assert torch.isfinite(found).all()


@pytest.mark.parametrize("derive", [False, True])
def test_a_lossy_method_never_gives_what_was_there_before_an_edit(derive: bool) -> None:
    """What was made again from codes, or stored in one, was given to an op after the edit, too."""
    torch.manual_seed(0)
    expected = _data_edited_between_two_uses(nullcontext)
    eight = actzip.Fixed(actzip.codecs.Group(8), actzip.codecs.Group(8))
    torch.manual_seed(0)
    ours = _data_edited_between_two_uses(
        lambda: actzip.compress(method=eight, min_bytes=0, derive=derive)
    )
    assert (ours - expected).norm() < 0.03 * expected.norm()
