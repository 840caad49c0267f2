"""checkpoint in both nestings, no_grad, inference_mode, eval, torch.func, accumulation."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from nets import batch, convnet, loss_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import actzip
from training import assert_equal, gradients


class Counted(nn.Module):
    """A block that counts how often it runs forward."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(64, 64)
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return F.dropout(torch.relu(self.lin(x)), 0.2).sin()


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.block, self.last = Counted(), Counted(), Counted()
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        h = checkpoint(self.block, self.first(x), use_reentrant=self.reentrant)
        out: Tensor = self.last(h)
        return out


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_block_inside_an_attached_model_is_recomputed(reentrant: bool) -> None:
    model, x = Checkpointed(reentrant), torch.randn(64, 64)
    expected = gradients(copy.deepcopy(model), lambda m: m(x).sum())
    with actzip.compress(model) as session:
        assert_equal(gradients(model, lambda m: m(x).sum()), expected)
        assert model.block.runs == 2, "the recomputation must still happen"
        assert model.first.runs == 1
        stats = session.stats()
        assert stats.ratio > 1.0
        if not reentrant:
            assert any("checkpoint" in kind for kind in stats.unseen)
        assert session.live_bytes == 0


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.filterwarnings("ignore::actzip.ActzipWarning")
def test_an_attached_model_inside_a_checkpoint_is_recomputed(reentrant: bool) -> None:
    model = Counted()
    x = torch.randn(64, 64, requires_grad=True)

    def loss(m: nn.Module) -> Tensor:
        out: Tensor = checkpoint(m, x, use_reentrant=reentrant)
        return out.sum()

    expected = gradients(copy.deepcopy(model), loss)
    with actzip.compress(model) as session:
        assert_equal(gradients(model, loss), expected)
        assert model.runs == 2
        assert session.live_bytes == 0


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_nothing_happens_without_gradients(guard: type) -> None:
    model, (x, _) = convnet(), batch()
    with actzip.compress(model) as session:
        with guard():
            model(x)
        assert session.step == 0
        with pytest.raises(RuntimeError, match="no forward pass has finished yet"):
            session.stats()
        model.eval()
        with guard():
            model(x)
        assert session.step == 0
        model.train()
        model(x)
        assert session.step == 1


def test_compress_may_be_called_in_eval_mode_and_under_no_grad() -> None:
    model = convnet().eval()
    with torch.no_grad():
        session = actzip.compress(model)
    model.train()
    expected = gradients(copy.deepcopy(model), loss_of())
    assert_equal(gradients(model, loss_of()), expected)
    assert session.stats().ratio > 1.0
    session.remove()


def test_torch_func_gradients_are_right_and_the_report_says_what_was_not_seen() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    x = torch.randn(32, 64)
    weights = {n: p.detach() for n, p in model.named_parameters()}

    def loss(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, p, (x,)).square().sum()

    plain = torch.func.grad(loss)(weights, x)
    per_sample = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, x)
    with actzip.compress(model) as session:
        with pytest.warns(actzip.ActzipWarning, match=r"torch\.func"):
            ours = torch.func.grad(loss)(weights, x)
        vmapped = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, x)
        assert any("torch.func" in kind for kind in session.stats().unseen)
    for name in plain:
        assert torch.equal(ours[name], plain[name])
        assert torch.equal(vmapped[name], per_sample[name])


def test_gradient_accumulation_equals_plain() -> None:
    def run(compressed: bool) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = convnet()
        session = actzip.compress(model) if compressed else None
        losses = [loss_of(seed)(model) for seed in range(3)]  # three graphs alive at once
        for loss in losses:
            loss.backward()
        if session is not None:
            assert session.step == 3
            assert session.live_bytes == 0
            session.remove()
        return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}

    assert_equal(run(True), run(False))


def test_a_hidden_state_kept_across_forwards_belongs_to_its_own_forward() -> None:
    def run(compressed: bool) -> dict[str, Tensor]:
        torch.manual_seed(0)
        cell = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3))
        session = actzip.compress(cell) if compressed else None
        h = torch.randn(32, 64)
        for _ in range(4):
            h = cell(h)
        h.sum().backward()
        if session is not None:
            assert session.live_bytes == 0
            session.remove()
        return {n: p.grad for n, p in cell.named_parameters() if p.grad is not None}

    assert_equal(run(True), run(False))
