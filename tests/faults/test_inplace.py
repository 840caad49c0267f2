"""In-place edits after saving: refused as in plain PyTorch, or the value before the edit counts."""

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
