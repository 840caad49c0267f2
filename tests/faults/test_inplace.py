"""In-place edits after saving: refused as in plain PyTorch, or the value before the edit counts."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import actzip


def _leaf() -> torch.Tensor:
    return torch.randn(64, 64, requires_grad=True)


def test_an_edit_of_a_tensor_left_alone_is_refused() -> None:
    w = _leaf()
    with actzip.compress() as session:
        h = w * 2
        y = h.sin().relu()
        h.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    assert session.stats().sites[0].reason


def test_an_edit_after_a_mask_was_taken_gives_the_gradient_before_the_edit() -> None:
    w = _leaf()
    with actzip.compress():
        y = F.leaky_relu(w * 2, 0.1)
        z = F.dropout(y, 0.5) + F.relu(y)
        F.relu(y)
    z.sum().backward()
    expected = w.grad
    assert expected is not None
    torch.manual_seed(0)
    v = w.detach().clone().requires_grad_()
    with actzip.compress():
        h = F.relu(v * 2)
        out = h + 0
        h.zero_()  # plain PyTorch would refuse; the bits are a snapshot
    out.sum().backward()
    assert v.grad is not None
    assert torch.equal(v.grad, (v > 0).float() * 2)


def test_an_edit_of_a_shared_tensor_is_refused_by_every_reader() -> None:
    w = _leaf()
    with actzip.compress():
        h = F.relu(w * 2)
        y = h @ h
        h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_tensor_read_before_and_after_an_edit_is_two_tensors() -> None:
    w = _leaf()

    def run() -> torch.Tensor:
        w.grad = None
        h = w * 2
        a = F.relu(h.clone())
        b = F.relu_(h)
        c = F.leaky_relu_(b.clone().sub_(0.5), 0.1)
        (a * 3 + b + c).sum().backward()
        assert w.grad is not None
        return w.grad.clone()

    plain = run()
    with actzip.compress():
        ours = run()
    assert torch.equal(ours, plain)


#: What is done with a view of a leaf, which was edited under no_grad, before it is used.
HANDED_ON: dict[str, Callable[[torch.Tensor], object]] = {
    "edited": lambda v: v.clamp_(-1, 1),
    "written to": lambda v: torch.clamp(v.clone(), -1, 1, out=v),
    "relu in place": lambda v: F.relu(v, inplace=True),
    "filled": lambda v: torch.nn.init.ones_(v),
    "given back": lambda v: v.contiguous(),
    "given back with another": lambda v: torch.atleast_1d((v, v)),
}


class _Root(torch.nn.Module):
    """Gives back what it calls."""

    def __init__(self, call: Callable[[], object]):
        super().__init__()
        self.call = call

    def forward(self) -> object:
        return self.call()


@pytest.mark.parametrize("how", HANDED_ON)
def test_a_view_edited_under_no_grad_gets_its_node_when_the_program_uses_it(how: str) -> None:
    """PyTorch makes it a new node when somebody asks: asked for early, backward comes to it later,
    and a sum of three gradients is rounded otherwise."""

    def grad(around: contextlib.AbstractContextManager[object]) -> torch.Tensor | None:
        torch.manual_seed(0)
        x = torch.randn(64, dtype=torch.float64, requires_grad=True)
        a, b = torch.randn(2, 64, dtype=torch.float64)
        with around:
            v = x.view(8, 8)
            with torch.no_grad():
                v.mul_(2)
                if not how.startswith("given back"):
                    HANDED_ON[how](v)
            if how.startswith("given back"):
                HANDED_ON[how](v)
            first = x * a + x * b
            (first.sum() + (v.view(64) * a * b).sum()).backward()
        return x.grad

    expected, found = grad(contextlib.nullcontext()), grad(actzip.compress(min_bytes=0))
    assert expected is not None
    assert found is not None
    assert torch.equal(expected, found)


def test_a_view_that_a_model_gives_back_gets_its_node_in_the_loss() -> None:
    def grad(compressed: bool) -> torch.Tensor | None:
        torch.manual_seed(0)
        x = torch.randn(64, dtype=torch.float64, requires_grad=True)
        a, b = torch.randn(2, 64, dtype=torch.float64)

        def forward() -> object:
            v = x.view(8, 8)
            with torch.no_grad():
                v.mul_(2)
            return v

        root = _Root(forward)
        if compressed:
            actzip.compress(root, min_bytes=0)
        v = root()
        first = x * a + x * b
        (first.sum() + (v.view(64) * a * b).sum()).backward()
        return x.grad

    expected, found = grad(False), grad(True)
    assert expected is not None
    assert found is not None
    assert torch.equal(expected, found)


class _Square(torch.autograd.Function):
    """Its result is a view of what it filled."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        filled = torch.empty(x.numel(), dtype=x.dtype)
        filled.copy_((x * x).flatten())
        return filled.view(x.shape)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return 2 * g * x


def test_what_a_function_at_the_very_end_saves_is_seen_when_it_gives_back_a_view() -> None:
    w = _leaf()
    root = _Root(lambda: _Square.apply(torch.sigmoid(w * 2)))
    session = actzip.compress(root, min_bytes=0)
    y = root()
    assert "_SquareBackward.tensors[0]" in {f"{s.node}.{s.slot}" for s in session.stats().sites}
    y.sum().backward()
