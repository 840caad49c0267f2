"""compress() and Session: attaching, numbers, reports, state."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip


def _model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
    )


def _run(model: nn.Module) -> Tensor:
    out: Tensor = model(torch.randn(4, 3, 16, 16)).sum()
    return out


def test_stats_count_every_byte_of_a_known_model() -> None:
    model = _model()
    with actzip.compress(model) as session:
        _run(model)
        stats = session.stats()
    image, conv_out, pooled = 4 * 3 * 256 * 4, 4 * 8 * 256 * 4, 4 * 8 * 64
    small = 2 * 8 * 4  # batch norm's mean and invstd
    # saved: image (conv), conv's output (norm), norm's output after ReLU, int64 indices
    assert stats.raw_bytes == image + 2 * conv_out + pooled * 8 + small
    rows = {row.name: row for row in stats.sites}
    mask, index = rows["2:ReluBackward0.result"], rows["3:MaxPool2DWithIndicesBackward0.result1"]
    assert conv_out // 32 <= mask.stored_bytes < conv_out // 32 + 100
    assert index.stored_bytes <= pooled // 4 + 200  # two bits hold a place in a 2x2 window
    assert rows["3:MaxPool2DWithIndicesBackward0.self"].codec == "shape only"
    assert stats.stored_bytes == sum(row.stored_bytes for row in stats.sites) + small
    assert stats.ratio == stats.raw_bytes / stats.stored_bytes
    assert stats.small_bytes == small
    assert stats.backend in ("native", "reference")


def test_live_bytes_are_what_the_rows_say() -> None:
    model = _model()
    with actzip.compress(model) as session:
        loss = _run(model)
        coded = sum(row.stored_bytes for row in session.stats().sites if row.codec)
        assert session.live_bytes == coded > 0
        loss.backward()
        assert session.live_bytes == 0


def test_sites_know_their_module_path() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Linear(64, 64) for _ in range(2)])

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = F.relu(block(x))
            return F.relu(x * 2)

    model = Outer()
    with actzip.compress(model) as session:
        model(torch.randn(32, 64))
        names = [row.name for row in session.stats().sites]
    assert "blocks.0:AddmmBackward0.mat1" in names
    assert "blocks.1:AddmmBackward0.mat1" in names
    assert [n for n in names if "Relu" in n] == [
        ":ReluBackward0.result",
        ":ReluBackward0.result#1",
        ":ReluBackward0.result#2",
    ]


def test_the_report_groups_by_module_with_the_largest_first() -> None:
    model = _model()
    with actzip.compress(model) as session:
        _run(model)
        text = session.report()
    assert "Lossless()" in text
    assert "  MaxPool2DWithIndices.result1: index, Window(" in text
    modules = [line.split()[0] for line in text.splitlines() if line[:1] in tuple("0123")]
    # the ReLU's result counts at the norm's output that it edits; the image is smaller than both
    assert modules == ["1", "2", "3", "0"]
    assert f"{session.stats().ratio:.2f}x" in text


def test_explain_says_why_and_what_to_do() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Sigmoid())
    with actzip.compress(model) as session:
        model(torch.randn(64, 64))
        assert "BitMask" in session.explain("1:")
        assert "A lossy method would compress it" in session.explain("2:Sigmoid")
        nothing = session.explain("no.such.module")
    assert "No saved tensor" in nothing
    assert "0, 1, 2" in nothing


def test_repr_tells_model_method_and_ratio() -> None:
    model = _model()
    session = actzip.compress(model)
    assert repr(session) == "<actzip.Session of Sequential: Lossless(), step 0>"
    _run(model)
    assert f"step 1, {session.stats().ratio:.1f}x>" in repr(session)
    session.remove()
    assert "(removed)" in repr(session)
    assert "any code" in repr(actzip.compress())


def test_a_removed_session_lets_living_graphs_run_backward() -> None:
    model = _model()
    session = actzip.compress(model)
    loss = _run(model)
    session.remove()
    loss.backward()
    assert session.live_bytes == 0
    assert not model._forward_hooks


def test_around_code_every_op_is_seen_until_the_block_ends() -> None:
    w = torch.randn(64, 64, requires_grad=True)
    with actzip.compress() as session:
        y = F.relu(w).neg()
    torch.relu(w)
    y.sum().backward()
    (row,) = session.stats().sites
    assert (row.name, row.codec) == (":ReluBackward0.result", "BitMask()")
    assert torch.equal(w.grad, -(w > 0).float())  # type: ignore[arg-type]


def test_state_dict_round_trip_and_its_errors() -> None:
    model = _model()
    session = actzip.compress(model, seed=5)
    _run(model)
    state = session.state_dict()
    session.remove()
    again = actzip.compress(model)
    again.load_state_dict(state)
    assert (again.seed, again.step) == (5, 1)
    with pytest.raises(ValueError, match="saved with"):
        again.load_state_dict({**state, "method": "Fixed()"})
    with pytest.raises(ValueError, match="version"):
        again.load_state_dict({})
    again.remove()


def test_a_lossy_method_compresses_much_more_and_stays_close() -> None:
    model = _model()
    torch.manual_seed(1)
    _run(model).backward()
    plain = model[0].weight.grad.clone()
    model.zero_grad()
    torch.manual_seed(1)
    eight = actzip.codecs.Group(bits=8)
    with actzip.compress(model, method=actzip.Fixed(linear=eight, nonlinear=eight)) as session:
        _run(model).backward()
        assert session.stats().ratio > 4
    error = (model[0].weight.grad - plain).norm() / plain.norm()
    assert 0 < error < 0.02


def test_a_session_whose_handle_is_lost_is_found_and_replaced() -> None:
    model = _model()
    assert actzip.session_of(model) is None
    actzip.compress(model, "fixed")
    found = actzip.session_of(model)
    assert found is not None
    assert found.method == actzip.Fixed()
    assert actzip.session_of(model[0]) is None
    assert actzip.session_of(copy.deepcopy(model)) is None
    with pytest.raises(ValueError, match=r"session_of\(model\)\.remove\(\).*replace=True"):
        actzip.compress(model)
    with pytest.raises(ValueError, match="no method"):
        actzip.compress(model, "no such", replace=True)
    assert actzip.session_of(model) is found  # a call that fails removes nothing
    session = actzip.compress(model, replace=True)
    assert actzip.session_of(model) is session
    assert "(removed)" in repr(found)
    _run(model)
    assert (found.step, session.step) == (0, 1)
    found.remove()  # again: it is not the one that is attached
    assert actzip.session_of(model) is session
    session.remove()
    assert actzip.session_of(model) is None
    assert not model._forward_hooks
    actzip.compress(model, replace=True).remove()
    with pytest.raises(TypeError, match=r"needs an nn\.Module"):
        actzip.session_of(torch.relu)  # type: ignore[arg-type]


def test_a_model_with_a_session_can_be_freed() -> None:
    model = _model()
    actzip.compress(model)
    held = weakref.ref(model)
    del model
    gc.collect()
    assert held() is None
